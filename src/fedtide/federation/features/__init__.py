"""Capabilities of rounds, a module each; see :class:`fedtide.federation.types.Feature`."""
