"""Datasets: one file per dataset, held in memory as tensors."""
