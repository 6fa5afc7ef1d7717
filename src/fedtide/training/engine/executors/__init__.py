"""Executors: how a cohort takes its local steps."""
