"""When the server updates its model."""
