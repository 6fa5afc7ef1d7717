"""Prepared datasets: read once from the raw files, then kept as plain arrays next to them."""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtide.core import plugins
from fedtide.core.discovery.faults import broken_contract
from fedtide.core.discovery.source import closure, fingerprint
from fedtide.core.errors import SettingsError, shortened
from fedtide.core.storage.arrays import read_arrays, write_arrays
from fedtide.core.storage.files import creating, short_hash
from fedtide.core.storage.locks import held
from fedtide.settings.run import RunSettings
from fedtide.world.data.base import DatasetPlugin
from fedtide.world.dataset import (
    ARRAYS,
    ORIGINS,
    SHAPES,
    TABLES,
    TASKS,
    Dataset,
    Origins,
    constants_of,
    content_digest,
    further_arrays,
    refuse_other_task,
)
from fedtide.world.storage.sources import fetch, make_folder


def load_data(settings: RunSettings) -> Dataset:
    """The dataset of a run, fetched and prepared if necessary; refused as by :func:`load`, or if not for the objective."""
    choice = settings.data
    mirror = Path(choice.mirror) if choice.mirror else None
    dataset = load(plugins.create(DatasetPlugin, choice), Path(choice.root), mirror)
    refuse_other_task(dataset, settings)
    return dataset


def load(plugin: DatasetPlugin, root: Path, mirror: Path | None = None) -> Dataset:
    """The dataset of ``plugin``, on the CPU: fetched and read at the first call, loaded from the prepared file afterwards.

    Each choice of settings has its own prepared file. It is made again when it is damaged, or when a file that it was made
    from or a source file of the plug-in has changed; all raw files may be deleted once it exists. A plug-in that does not
    declare its files (``DatasetPlugin``) has none and is read every time. Of several processes that call this, one prepares.

    Raises:
        SettingsError: a file is unavailable, not what its name says, or changed while it was read.
    """
    if not _declares_files(plugin):
        return read_files(plugin, fetch(plugin.settings.name, plugin.resources, root, mirror))
    path = prepared_file(plugin, root)
    dataset = _cached(plugin, path)
    if dataset is None:
        lock = path.with_suffix(".lock")
        with creating(path.parent):
            make_folder(path.parent)
            try:
                with held(lock, f"{path}: another process is preparing this dataset", timeout=-1):
                    dataset = _cached(plugin, path) or _build(plugin, path, root, mirror)
            except SettingsError:
                lock.unlink(missing_ok=True)
                raise
    return dataset


def prepared_file(plugin: DatasetPlugin, root: Path) -> Path:
    """Where :func:`load` stores the dataset of ``plugin``."""
    name: str = plugin.settings.name
    return root / name / f"prepared-{short_hash(plugin.settings.canonical())}.npz"


def _reader(plugin: DatasetPlugin) -> str:
    """Hash of the source files that decide what the prepared file holds."""
    return fingerprint(closure([type(plugin).__module__]))


def _declares_files(plugin: DatasetPlugin) -> bool:
    """Whether it is known what ``read`` reads: declared where it is defined, or by a class derived from that."""
    if not plugin.resources and not plugin.files():
        return False
    for owner in type(plugin).__mro__:
        if {"resources", "files"} & vars(owner).keys():
            return owner is not DatasetPlugin
        if "read" in vars(owner):
            return False
    return False


def _contents(plugin: DatasetPlugin, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Hashes of the raw files that are present, by name, and of the other files, by path."""
    raw = [path for resource in plugin.resources for path in resource.present(folder / "raw")]
    others = plugin.files()
    try:
        hashes = content_hashes([*raw, *others])
    except OSError as error:
        raise SettingsError(f"data {plugin.settings.name!r}: cannot read {error.filename} ({error.strerror})") from None
    return {path.name: hashes[str(path)] for path in raw}, {str(path): hashes[str(path)] for path in others}


def _cached(plugin: DatasetPlugin, path: Path) -> Dataset | None:
    if not path.is_file():
        return None
    raw, others = _contents(plugin, path.parent)
    try:
        stored = read_arrays(path)
        record = json.loads(str(stored["record"]))
        settings, reader, raw_before, others_before = (record[key] for key in ("settings", "reader", "raw", "files"))
    except (OSError, KeyError, ValueError):
        return None
    if (settings, reader, others_before) != (plugin.settings.canonical(), _reader(plugin), others):
        return None
    if raw not in ({}, raw_before):
        return None
    arrays: dict[str, Any] = {key: torch.from_numpy(stored[key]) for key in ARRAYS}
    constants = record["constants"]
    constants |= {key: tuple(constants.get(key, ())) for key in ("mean", "std", "class_names")}  # JSON has lists only
    constants["standardized"] = tuple(map(tuple, constants.get("standardized", ())))
    origins: dict[str, Any] = {key: stored[key] for key in ORIGINS if key in stored}
    if origins:
        origins |= {"clients": tuple(constants.pop("clients")), "unit": constants.pop("unit")}
    if "encoding" in constants:
        from fedtide.world.adapters.encoding import Encoding

        constants["encoding"] = Encoding.model_validate(constants["encoding"])
    if TABLES[0] in stored:
        constants["tables"] = tuple(torch.from_numpy(stored[key]) for key in TABLES)
    return Dataset(**arrays, **constants, digest=record["digest"], origins=Origins(**origins))


def _build(plugin: DatasetPlugin, path: Path, root: Path, mirror: Path | None) -> Dataset:
    raw = fetch(plugin.settings.name, plugin.resources, root, mirror)
    before = _contents(plugin, path.parent)
    dataset = read_files(plugin, raw)
    if _contents(plugin, path.parent) != before:
        raise SettingsError(f"data {plugin.settings.name!r}: its files changed while they were read; try again")
    record = {
        "constants": constants_of(dataset) | {"class_names": dataset.class_names},
        "digest": dataset.digest,
        "reader": _reader(plugin),
        "settings": plugin.settings.canonical(),
        "raw": before[0],
        "files": before[1],
    }
    arrays = {key: getattr(dataset, key).numpy() for key in ARRAYS} | further_arrays(dataset)
    write_arrays(path, {"record": np.array(json.dumps(record)), **arrays})
    return dataset


def read_files(plugin: DatasetPlugin, raw: Path) -> Dataset:
    """The dataset read anew; whatever stops a shipped reader of raw files says that these are damaged or others."""
    try:
        dataset = plugin.read(raw)
    except (SettingsError, ImportError, MemoryError):
        raise
    except Exception as error:
        if not plugin.resources or not type(plugin).__module__.startswith("fedtide."):
            raise
        reason = shortened(f"{type(error).__name__}: {error}")
        problem = f"the files in {raw} are damaged, or not what their names say ({reason})"
        raise SettingsError(f"data {plugin.settings.name!r}: {problem}; replace them") from error
    refuse_malformed(plugin, dataset)
    return replace(dataset, digest=content_digest(dataset))


def refuse_malformed(plugin: Any, dataset: Any) -> None:
    """Refuse what ``read`` of a dataset plug-in returned, if its parts do not fit its kind and task, or each other."""

    def require(holds: bool, wanted: str, found: Any = "others") -> None:
        if not holds:
            raise broken_contract(plugin, "read", f"{wanted}, got {found}")

    require(isinstance(dataset, Dataset), "a Dataset", type(dataset).__name__)
    require(dataset.kind in SHAPES, f"kind {', '.join(SHAPES)}", repr(dataset.kind))
    require(dataset.task in TASKS, f"task {', '.join(TASKS)}", repr(dataset.task))
    classes = dataset.task == "classification"
    require(classes or dataset.num_classes == 1, f"num_classes = 1 for task {dataset.task}", dataset.num_classes)
    for split in ("train", "test"):
        inputs, labels = getattr(dataset, f"{split}_inputs"), getattr(dataset, f"{split}_labels")
        tensors = isinstance(inputs, Tensor) and isinstance(labels, Tensor)
        require(tensors, "tensors", f"{type(inputs).__name__} and {type(labels).__name__}")
        if classes:
            fits, wanted = labels.dtype == torch.int64 and labels.dim() == 1, "type torch.int64 and shape [n]"
        else:
            shapes = (1, 2) if dataset.task == "regression" else (2,)
            fits = labels.is_floating_point() and labels.dim() in shapes and labels.shape[1:].numel() > 0
            wanted = f"floating-point numbers {' or '.join(('[n]', '[n, T]')[-len(shapes) :])}"
        require(fits, f"{split}_labels of {wanted}", f"{labels.dtype} {list(labels.shape)}")
        require(classes or bool(labels.isfinite().all()), f"finite {split}_labels")
        if dataset.task == "multilabel":
            require(bool(((labels == 0) | (labels == 1)).all()), f"{split}_labels that are 0 or 1")
        fits = inputs.dtype == torch.int64 if dataset.kind == "text" else inputs.is_floating_point()
        fits |= dataset.kind == "image" and inputs.dtype == torch.uint8
        wanted = f"{split}_inputs of kind {dataset.kind}, numbers {SHAPES[dataset.kind]}"
        fits &= inputs.dim() == SHAPES[dataset.kind].count(",") + 1
        require(fits, wanted, f"{inputs.dtype} {list(inputs.shape)}")
        if inputs.is_floating_point() and not bool(inputs.sum().isfinite() or inputs.isfinite().all()):
            wrong = int((~inputs.flatten(1).isfinite().all(1)).nonzero()[0])
            require(False, "finite inputs", f"{split} sample {wrong} with one that is not")
        count = len(labels)
        if not len(inputs) == count > 0:
            counts = f"{len(inputs)} samples and {count} labels; the counts must be equal and above 0"
            raise SettingsError(f"data {plugin.settings.name!r}: the {split} files hold {counts}")
        origins, tables = dataset.origins, None if dataset.tables is None else dataset.tables[split == "test"].numpy()
        for name, array, shape, end in (
            (f"{split} labels", labels.numpy() if classes else None, (count,), dataset.num_classes),
            (f"tables of {split} labels", tables, (0 if tables is None else len(tables), count), dataset.num_classes),
            (f"{split}_client", getattr(origins, f"{split}_client"), (count,), len(origins.clients)),
            (f"{split}_time", getattr(origins, f"{split}_time"), (count,), None),
        ):
            if array is not None:
                require(
                    array.dtype == np.int64 and array.shape == shape,
                    f"{name} int64 {shape}",
                    f"{array.dtype} {array.shape}",
                )
                low, high = array.min(), array.max()
                require(end is None or 0 <= low <= high < end, f"{name} from 0 to {(end or 0) - 1}", f"{low} to {high}")
    if (encoding := dataset.encoding) is not None:
        from fedtide.world.adapters.encoding import Encoding

        require(isinstance(encoding, Encoding), "an Encoding", type(encoding).__name__)
        own = f"{dataset.task}, inputs {list(dataset.input_shape)}, {dataset.outputs} outputs"
        other = f"{encoding.task}, inputs {[len(encoding.features)]}, {len(encoding.outputs)} outputs"
        require(own == other, f"an encoding of {own}", other)


def content_hashes(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of each file by its path; empty for a file that does not exist."""
    hashes = dict.fromkeys(map(str, files), "")
    for name in hashes:
        with suppress(FileNotFoundError), Path(name).open("rb") as stream:
            hashes[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return hashes
