"""Datasets: one file per dataset, held in memory as tensors."""

NOT_PLUGINS = ("archives", "dataset", "download", "longtail", "prepared", "sources", "text", "validation")
