"""Accounting: bytes, latency, energy."""
