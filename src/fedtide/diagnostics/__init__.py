"""Quantities of the convergence analyses, computed where they have closed forms."""
