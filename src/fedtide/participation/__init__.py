"""Participation rules say who of the present clients is drawn in a round."""
