"""Published tables, reproduced: experiment files, their cells and runs, obtained beside published numbers."""
