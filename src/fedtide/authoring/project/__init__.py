"""A new project: settings from a template or for a table, and the pipeline."""
