"""Selections: which clients exchange models often."""
