"""Federated algorithms: vector algebra in the paper's letters, one file each."""
