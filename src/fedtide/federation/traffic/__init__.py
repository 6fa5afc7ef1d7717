"""Bytes, seconds and joules of a round."""
