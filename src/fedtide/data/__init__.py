"""Datasets: one file per dataset, held in memory as tensors."""

NOT_PLUGINS = ("archives", "dataset", "download", "idx", "longtail", "prepared", "sources", "text", "validation")
