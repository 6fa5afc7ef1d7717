"""Files of a run directory."""
