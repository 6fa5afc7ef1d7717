"""Exchanges: when, inside a round, clients average."""

NOT_PLUGINS = ("budgets",)
