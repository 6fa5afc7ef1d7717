"""What happens between sessions."""
