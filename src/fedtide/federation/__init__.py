"""The federation: rounds, memories, saved state, and the Lightning module that runs them."""
