"""Memory, threads and process-wide settings."""
