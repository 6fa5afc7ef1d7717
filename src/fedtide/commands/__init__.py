"""Commands that stand for themselves; :mod:`fedtide.cli` registers them."""
