"""Selections: which clients exchange models often."""

NOT_PLUGINS = ("divergence",)
