"""Progress of runs on a terminal or in a notebook."""
