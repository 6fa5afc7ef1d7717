"""Weightings: how much each participant counts in the server's average."""
