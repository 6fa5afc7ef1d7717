"""Participation rules: which of the present clients are drawn in a round."""
