"""Run directories and how they are read."""
