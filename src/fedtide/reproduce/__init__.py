"""Published tables, played again: experiment files, their cells and runs, obtained beside published numbers."""
