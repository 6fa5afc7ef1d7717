"""Partitions deal samples to clients."""

NOT_PLUGINS = ("dealing",)
