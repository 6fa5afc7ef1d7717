"""Where modules, sources and shipped files are found."""
