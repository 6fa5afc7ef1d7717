"""Passes over samples without training."""
