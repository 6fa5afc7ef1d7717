"""Processes, cards and clusters that execute runs."""
