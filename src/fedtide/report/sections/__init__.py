"""Sections of the report: every file adds figures, tables or files where the runs have what they show."""
