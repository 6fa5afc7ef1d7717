"""Detectors of change in training losses, one file each."""
