"""Published tables, reproduced: experiment files, their cells and runs, obtained next to published numbers."""
