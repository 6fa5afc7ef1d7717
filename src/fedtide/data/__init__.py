"""Datasets: one file per dataset, held in memory as tensors."""

NOT_PLUGINS = ("sources", "text", "dataset", "longtail", "validation")
