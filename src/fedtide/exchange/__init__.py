"""Exchanges: when, inside a round, clients average."""
