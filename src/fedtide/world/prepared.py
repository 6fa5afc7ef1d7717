"""Prepared datasets: read once from the raw files, then kept as plain arrays next to them."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.files import replacing
from fedtide.core.hashing import short_hash
from fedtide.core.source import closure, fingerprint
from fedtide.data.base import DatasetPlugin
from fedtide.settings.run import RunSettings
from fedtide.world.dataset import Dataset, Ints, Origins
from fedtide.world.sources import fetch, make_folder

ARRAYS = ("train_inputs", "train_labels", "test_inputs", "test_labels")
ORIGINS = ("train_client", "test_client", "train_time", "test_time")
UNREADABLE = (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)


def load_data(settings: RunSettings) -> Dataset:
    """The dataset of a run, fetched and prepared if necessary."""
    choice = settings.data
    return load(
        plugins.create(DatasetPlugin, choice), Path(choice.root), Path(choice.mirror) if choice.mirror else None
    )


def load(plugin: DatasetPlugin, root: Path, mirror: Path | None = None) -> Dataset:
    """The dataset of ``plugin``: fetched and read at the first call, loaded from the prepared file afterwards.

    The prepared file is made again when it is damaged, when a source file of the plug-in has changed, or when the raw
    files that are present are not those it was made from. Several processes may call this at once: one prepares.

    Args:
        plugin: dataset with its settings; each choice of settings has its own prepared file. Its ``root`` and ``mirror``
            are ignored.
        root: data folder; everything goes to ``<root>/<name>``.
        mirror: see :func:`fedtide.world.sources.fetch`.

    Returns:
        The dataset on the CPU; ``digest`` is the SHA-256 of the arrays and of the preprocessing constants.

    Raises:
        SettingsError: a file is unavailable or not what its name says.
    """
    path = _path(plugin, root)
    dataset = _cached(plugin, path)
    if dataset is None:
        make_folder(path.parent)
        with FileLock(path.with_suffix(".lock")):
            dataset = _cached(plugin, path) or _build(plugin, path, root, mirror)
    return dataset


def prepare(plugin: DatasetPlugin, root: Path, mirror: Path | None = None) -> Path:
    """Make sure that the prepared file exists and is intact; returns its path. Arguments as in :func:`load`."""
    load(plugin, root, mirror)
    return _path(plugin, root)


def content_digest(dataset: Dataset) -> str:
    """SHA-256 of everything a run can see of a dataset: arrays, shapes, types and constants, not ``digest`` itself."""
    digest = hashlib.sha256(json.dumps(_constants(dataset), sort_keys=True).encode())
    for key in ARRAYS:
        array = np.ascontiguousarray(getattr(dataset, key).numpy())
        digest.update(f"{key} {array.dtype.str} {array.shape}".encode())
        digest.update(array.data)
    for key, array in _origins(dataset).items():
        digest.update(f"{key} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _path(plugin: DatasetPlugin, root: Path) -> Path:
    name: str = plugin.settings.name
    return root / name / f"prepared-{short_hash(plugin.settings.canonical())}.npz"


def _constants(dataset: Dataset) -> dict[str, Any]:
    left_out = (*ARRAYS, "digest", "origins")
    constants = {field.name: getattr(dataset, field.name) for field in fields(dataset) if field.name not in left_out}
    if _origins(dataset):
        constants |= {"clients": dataset.origins.clients, "unit": dataset.origins.unit}
    return constants


def _origins(dataset: Dataset) -> dict[str, Ints]:
    """Clients and times of the samples, as far as they are known."""
    return {key: array for key in ORIGINS if (array := getattr(dataset.origins, key)) is not None}


def _reader(plugin: DatasetPlugin) -> str:
    """Hash of the source files that decide what the prepared file holds."""
    return fingerprint(closure([type(plugin).__module__]))


def _raw_files(plugin: DatasetPlugin, raw: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for resource in plugin.resources for path in resource.present(raw)}


def _cached(plugin: DatasetPlugin, path: Path) -> Dataset | None:
    try:
        with np.load(path, allow_pickle=False) as stored:
            record = json.loads(str(stored["record"]))
            arrays: dict[str, Any] = {key: torch.from_numpy(stored[key]) for key in ARRAYS}
            origins: dict[str, Any] = {key: stored[key] for key in ORIGINS if key in stored}
        constants = record["constants"]
        constants |= {"mean": tuple(constants["mean"]), "std": tuple(constants["std"])}  # JSON has lists only
        known = {"clients": tuple(constants.pop("clients")), "unit": constants.pop("unit")} if origins else {}
        arrays["origins"] = Origins(**origins, **known)
        dataset = Dataset(**arrays, **constants, digest=record["digest"])
        made_by, made_from = record["reader"], record["raw_files"]
    except UNREADABLE:
        return None
    raw_files = _raw_files(plugin, path.parent / "raw")  # may be empty: raw files can be deleted once all is prepared
    fresh = made_by == _reader(plugin) and raw_files in ({}, made_from)
    return dataset if fresh and content_digest(dataset) == dataset.digest else None


def _build(plugin: DatasetPlugin, path: Path, root: Path, mirror: Path | None) -> Dataset:
    raw = fetch(plugin.settings.name, plugin.resources, root, mirror)
    dataset = plugin.read(raw)
    _refuse_inconsistent(dataset)
    dataset = replace(dataset, digest=content_digest(dataset))
    record = {
        "constants": _constants(dataset),
        "digest": dataset.digest,
        "reader": _reader(plugin),
        "raw_files": _raw_files(plugin, raw),
    }
    arrays = {key: getattr(dataset, key).numpy() for key in ARRAYS} | _origins(dataset)
    with replacing(path) as part, part.open("wb") as stream:
        np.savez(stream, record=np.array(json.dumps(record)), **arrays)
    return dataset


def _refuse_inconsistent(dataset: Dataset) -> None:
    for split in ("train", "test"):
        inputs, labels = getattr(dataset, f"{split}_inputs"), getattr(dataset, f"{split}_labels")
        if len(inputs) != len(labels) or len(labels) == 0:
            raise SettingsError(
                f"data {dataset.name!r}: the {split} files hold {len(inputs)} samples and {len(labels)} labels; "
                "both numbers must be equal and above 0"
            )
        for what in ("client", "time"):
            known = getattr(dataset.origins, f"{split}_{what}")
            if known is not None and (known.dtype != np.int64 or known.shape != (len(labels),)):
                raise SettingsError(
                    f"data {dataset.name!r}: {split}_{what} has {known.dtype} {known.shape}; expected int64 [{len(labels)}]"
                )
        client = getattr(dataset.origins, f"{split}_client")
        if client is not None and len(client) and not 0 <= client.min() <= client.max() < len(dataset.origins.clients):
            raise SettingsError(
                f"data {dataset.name!r}: {split} clients run from {client.min()} to {client.max()}, but there are "
                f"{len(dataset.origins.clients)} names"
            )
        if labels.min() < 0 or labels.max() >= dataset.num_classes:
            raise SettingsError(
                f"data {dataset.name!r}: {split} labels run from {int(labels.min())} to {int(labels.max())}; "
                f"allowed are 0 to {dataset.num_classes - 1}"
            )
