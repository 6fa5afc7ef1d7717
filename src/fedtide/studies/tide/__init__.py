"""Tide-2: a fixed suite of changing client populations, and a board of methods on it."""
