"""Models: one file per network family."""
