"""How a round is evaluated."""
