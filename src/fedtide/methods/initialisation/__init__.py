"""Initialisers: the model a session starts from."""
