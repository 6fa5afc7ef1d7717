"""One communication round."""
