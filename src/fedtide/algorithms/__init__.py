"""Federated algorithms: vector algebra in the paper's letters, one file each."""

NOT_PLUGINS = ("outlook", "round")
