"""From a params file and overrides to settings."""
