"""The engine: advances the rows of a cohort matrix by local steps. It knows no algorithm."""
