"""Exchanges: when clients average inside a round."""
