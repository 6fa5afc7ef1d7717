"""``params.yaml`` as typed, immutable settings."""
