"""Tide-1: a fixed suite of changing client populations, and a board of methods on it."""
