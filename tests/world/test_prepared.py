"""Prepared files: made once, again after the reader has changed, and not of what is malformed."""

from dataclasses import replace

import pytest
import torch

from fedtide.core import plugins
from fedtide.core.discovery import source
from fedtide.core.errors import SettingsError
from fedtide.world.storage.prepared import content_digest, load
from support import dataset

READER = '''import torch

from fedtide.world.data.base import DatasetPlugin, DatasetSettings


class Mine(DatasetPlugin):
    """Labels from a text file of digits."""

    class Settings(DatasetSettings):
        name: str = "mine"

    samples = 3

    def files(self):
        return (self.folder / "labels.txt",)

    def read(self, raw):
        with (self.folder / "reads").open("a") as log:
            log.write(".")
        labels = torch.tensor([int(digit) for digit in self.files()[0].read_text()])
        return self.dataset("vector", [(torch.ones(self.samples, 1), labels)] * 2, 3)
'''


@pytest.fixture
def plugin(own, tmp_path):
    (own / "data").mkdir(parents=True)
    (own / "data" / "mine.py").write_text(READER)
    cls = plugins.load("data", "mine")
    plugin = cls(cls.Settings())
    plugin.folder = tmp_path
    (tmp_path / "labels.txt").write_text("012")
    return plugin


def reads(plugin):
    return len((plugin.folder / "reads").read_text())


def test_a_changed_reader_reads_again(plugin, own, tmp_path):
    load(plugin, tmp_path)
    load(plugin, tmp_path)
    assert reads(plugin) == 1
    file = own / "data" / "mine.py"
    for addition, times in (("    # a comment\n", 1), ("    note = 1\n", 2)):
        file.write_text(file.read_text() + addition)
        source.tree.cache_clear()
        source._meaning.cache_clear()
        load(plugin, tmp_path)
        assert reads(plugin) == times


def test_two_processes_prepare_once(plugin, tmp_path, together):
    assert together(lambda: load(plugin, tmp_path), 2) == [0, 0]
    assert reads(plugin) == 1


@pytest.mark.parametrize(
    ("labels", "samples", "message"),
    [
        ("013", 3, "read of mine should return train labels from 0 to 2, got 0 to 3"),
        ("012", 2, "the train files hold 2 samples and 3 labels"),
    ],
)
def test_what_is_malformed_is_refused_and_not_stored(plugin, tmp_path, labels, samples, message):
    plugin.files()[0].write_text(labels)
    plugin.samples = samples
    with pytest.raises(SettingsError, match=message):
        load(plugin, tmp_path)
    assert not list((tmp_path / "mine").glob("*.npz"))


def test_digest_covers_everything_but_itself():
    base = dataset(torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 0]), 2)
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
