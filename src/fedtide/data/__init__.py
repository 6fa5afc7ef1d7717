"""Datasets: one file per dataset, held in memory as tensors."""

NOT_PLUGINS = (
    "archives",
    "dataset",
    "download",
    "idx",
    "longtail",
    "pages",
    "prepared",
    "sources",
    "text",
    "validation",
)
