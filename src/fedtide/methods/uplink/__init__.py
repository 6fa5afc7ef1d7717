"""Links that an update passes on its way to the server."""
