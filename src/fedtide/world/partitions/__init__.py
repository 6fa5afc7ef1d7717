"""Partitions deal samples to clients."""
