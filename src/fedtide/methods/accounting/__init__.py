"""Client-level differential privacy: correlated noise, and what it costs each client."""
