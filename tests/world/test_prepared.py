import importlib.util
import os
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedtide.core.discovery.source import _meaning as fingerprint_of_file
from fedtide.core.discovery.source import tree
from fedtide.core.errors import SettingsError
from fedtide.world.data.ag_news import AgNews
from fedtide.world.data.mnist import Mnist
from fedtide.world.dataset import Dataset
from fedtide.world.storage import prepared
from fedtide.world.storage.prepared import content_digest, load, prepared_file
from fedtide.world.storage.sources import Resource
from raw_files import idx


def place(raw, train=6, test=3, top=9):
    raw.mkdir(parents=True, exist_ok=True)
    for prefix, count in (("train", train), ("t10k", test)):
        images = np.arange(count * 16).reshape(count, 4, 4) % 256
        (raw / f"{prefix}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (raw / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(idx(np.arange(count) % top))


@pytest.fixture
def plugin():
    plugin = Mnist(Mnist.Settings())
    plugin.resources = tuple(replace(resource, urls=(), checksum="") for resource in Mnist.resources)
    return plugin


@pytest.fixture
def root(tmp_path):
    place(tmp_path / "mnist" / "raw")
    return tmp_path


@pytest.fixture
def reads(monkeypatch):
    """Number of times that raw files were read."""
    calls = []
    read = Mnist.read
    monkeypatch.setattr(Mnist, "read", lambda self, raw: calls.append(raw) or read(self, raw))
    return calls


def same(one, other):
    arrays = all(torch.equal(getattr(one, key), getattr(other, key)) for key in prepared.ARRAYS)
    rest = ("name", "kind", "num_classes", "digest", "mean", "std", "scale", "vocabulary")
    return arrays and all(getattr(one, key) == getattr(other, key) for key in rest)


def test_read_once_then_the_same_from_the_prepared_file(plugin, root, reads):
    first, second = load(plugin, root), load(plugin, root)
    assert len(reads) == 1
    assert same(first, second)
    assert first.digest == content_digest(first)
    assert second.train_inputs.dtype == torch.uint8
    assert second.input_shape == (1, 4, 4)


def test_changed_reader_reads_again(root, reads, tmp_path, monkeypatch):
    source = tmp_path / "mine.py"
    source.write_text("from fedtide.world.data.mnist import Mnist\n\nclass Mine(Mnist):\n    resources = ()\n")
    spec = importlib.util.spec_from_file_location("mine", source)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mine", module)
    spec.loader.exec_module(module)
    plugin = module.Mine(Mnist.Settings())
    plugin.resources = tuple(replace(resource, urls=(), checksum="") for resource in Mnist.resources)
    load(plugin, root)
    load(plugin, root)
    assert len(reads) == 1
    for addition, times in (("    # a comment\n", 1), ("    note = 1\n", 2)):
        source.write_text(source.read_text() + addition)
        tree.cache_clear()
        fingerprint_of_file.cache_clear()
        load(plugin, root)
        assert len(reads) == times


def test_each_choice_of_settings_has_its_own_file(tmp_path):
    raw = tmp_path / "ag_news" / "raw"
    raw.mkdir(parents=True)
    (raw / "test.csv").write_text("".join(f'"{1 + row % 4}","title {row}","more"\n' for row in range(20)))
    plugins = [AgNews(AgNews.Settings(source="test_only", length=length)) for length in (3, 5)]
    for plugin in plugins:
        plugin.resources = (Resource("test.csv"),)
    assert [load(plugin, tmp_path).input_shape for plugin in plugins * 2] == [(3,), (5,), (3,), (5,)]
    assert len({prepared_file(plugin, tmp_path) for plugin in plugins}) == 2


def test_where_files_lie_does_not_count(plugin, root, reads):
    elsewhere = Mnist(Mnist.Settings(root="elsewhere", mirror="somewhere"))
    elsewhere.resources = plugin.resources
    assert same(load(plugin, root), load(elsewhere, root))
    assert len(reads) == 1


def test_digest_covers_everything_but_itself():
    base = Dataset(
        name="toy",
        kind="vector",
        train_inputs=torch.arange(6.0).view(3, 2),
        train_labels=torch.tensor([0, 1, 0]),
        test_inputs=torch.zeros(1, 2),
        test_labels=torch.tensor([1]),
        num_classes=2,
        digest="",
    )
    changed = [
        {"train_inputs": base.train_inputs.double()},
        {"train_inputs": base.train_inputs.view(2, 3)},
        {"train_inputs": base.train_inputs + 1},
        {"train_labels": base.train_labels.flip(0) + 1},
        {"test_inputs": base.test_inputs + 1},
        {"test_labels": base.test_labels - 1},
        {"mean": (0.5,)},
        {"scale": 16.0},
        {"num_classes": 3},
        {"name": "other"},
    ]
    digests = [content_digest(base), *(content_digest(replace(base, **change)) for change in changed)]
    assert len(set(digests)) == len(digests)
    assert content_digest(replace(base, digest="something")) == content_digest(base)


def test_labels_out_of_range_are_refused(plugin, root):
    place(root / "mnist" / "raw", train=20, top=12)
    with pytest.raises(SettingsError, match=r"read of mnist should return train labels from 0 to 9, got 0 to 11"):
        load(plugin, root)
    assert not list((root / "mnist").glob("*.npz"))


@pytest.mark.parametrize("train", [0, 4])
def test_images_and_labels_must_be_as_many(plugin, root, train):
    raw = root / "mnist" / "raw"
    labels = (raw / "train-labels-idx1-ubyte.gz").read_bytes()
    place(raw, train=train)
    if train:
        (raw / "train-labels-idx1-ubyte.gz").write_bytes(labels)
    with pytest.raises(SettingsError, match=f"hold {train} samples and {6 if train else 0} labels"):
        load(plugin, root)


def test_two_processes_prepare_once(plugin, root, together, monkeypatch, tmp_path):
    log = tmp_path / "log"
    read = Mnist.read

    def logged(self, raw):
        with log.open("a") as writing:
            writing.write(f"{os.getpid()}\n")
        return read(self, raw)

    monkeypatch.setattr(Mnist, "read", logged)
    assert together(lambda: load(plugin, root), 2) == [0, 0]
    assert len(log.read_text().splitlines()) == 1
