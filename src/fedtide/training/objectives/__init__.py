"""Objectives: the loss of one sample, one file each."""
