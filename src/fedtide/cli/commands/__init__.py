"""Subcommands of ``fedtide``."""
