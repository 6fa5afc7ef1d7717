"""Initialisers: the model a session starts from."""

NOT_PLUGINS = ("distances", "mixing", "retention", "store")
