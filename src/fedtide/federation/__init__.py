"""The federation: rounds, client memories, saved state, and the Lightning module that runs them."""
