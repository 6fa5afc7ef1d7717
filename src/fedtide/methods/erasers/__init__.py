"""Methods that remove from a model what clients left in it."""
