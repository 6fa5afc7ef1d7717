"""Clients that want to harm the model."""
