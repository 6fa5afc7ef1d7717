"""Datasets in files: sources, hashes, prepared arrays."""
