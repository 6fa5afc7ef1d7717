"""Tide-1: a fixed suite of moving populations, and a board of methods on it."""
