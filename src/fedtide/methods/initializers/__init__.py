"""Initializers: the model a session starts from."""
