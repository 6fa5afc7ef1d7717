"""From settings to a timeline."""
