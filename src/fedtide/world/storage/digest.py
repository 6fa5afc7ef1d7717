"""What a dataset consists of, and the hash of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.world.dataset import Dataset

ARRAYS = ("train_inputs", "train_labels", "test_inputs", "test_labels")
TABLES = ("train_table", "test_table")
ORIGINS = ("train_client", "test_client", "train_time", "test_time")


def content_digest(dataset: Dataset) -> str:
    """SHA-256 of everything a run can see of a dataset: arrays, shapes, types and constants, not ``digest`` itself."""
    digest = hashlib.sha256(json.dumps(constants_of(dataset), sort_keys=True).encode())
    for key in ARRAYS:
        array = np.ascontiguousarray(getattr(dataset, key).numpy())
        digest.update(f"{key} {array.dtype.str} {array.shape}".encode())
        digest.update(array.data)
    for key, array in further_arrays(dataset).items():
        digest.update(f"{key} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def constants_of(dataset: Dataset) -> dict[str, Any]:
    """Everything but arrays and ``digest``, JSON-able."""
    left_out = [*ARRAYS, "digest", "origins", "encoding", "tables", "train_rows", "test_rows"]
    if dataset.task == "classification":  # so that datasets from before there was a choice keep their digests
        left_out.append("task")
    constants = {field.name: getattr(dataset, field.name) for field in fields(dataset) if field.name not in left_out}
    if any(key in ORIGINS for key in further_arrays(dataset)):
        constants |= {"clients": dataset.origins.clients, "unit": dataset.origins.unit}
    if dataset.encoding is not None:
        constants["encoding"] = dataset.encoding.model_dump(mode="json")
    return constants


def further_arrays(dataset: Dataset) -> dict[str, Ints]:
    """Clients, times and further labels of the samples, as far as they are known."""
    known = {key: array for key in ORIGINS if (array := getattr(dataset.origins, key)) is not None}
    return known | dict(zip(TABLES, (table.numpy() for table in dataset.tables or ()), strict=False))
