"""Files that a dataset comes from are compared by content: what was edited is read again, what was not is read once."""

import os
import shutil
from pathlib import Path

import pytest
import torch

from fedtide.core.errors import SettingsError
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import load, prepared_file
from fedtide.world.storage.sources import Resource


class Labels(DatasetPlugin):
    """Labels from a text file of digits; it declares nothing."""

    class Settings(DatasetSettings):
        name: str = "labels"

    folder: Path
    reads = 0

    def read(self, raw):
        self.reads += 1
        text = (self.folder / "labels.txt").read_text()
        labels = torch.tensor([int(digit) for digit in text], dtype=torch.int64)
        return Dataset("labels", "vector", labels[:, None].float(), labels, torch.ones(1, 1), labels[:1], 10, digest="")


class Declared(Labels):
    def files(self):
        return (self.folder / "labels.txt",)


class Raw(Labels):
    resources = (Resource("labels.txt"),)


class More(Declared):
    """It inherits a declaration that does not say what it reads besides."""

    def read(self, raw):
        noise = int((self.folder / "noise.txt").read_text())
        data = super().read(raw)
        return Dataset(**{**vars(data), "test_labels": data.test_labels * 0 + noise})


def made(kind, root):
    """The plug-in, and the file with its labels."""
    plugin = kind(kind.Settings(name="labels"))
    plugin.folder = root / "labels" / "raw" if kind is Raw else root
    plugin.folder.mkdir(parents=True, exist_ok=True)
    (plugin.folder / "labels.txt").write_text("012345")
    return plugin, plugin.folder / "labels.txt"


def labels_of(plugin, root):
    return "".join(map(str, load(plugin, root).train_labels.tolist()))


def with_the_old_date(path, text):
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("kind", [Labels, Declared, Raw])
def test_an_edited_file_is_read_again(tmp_path, kind):
    plugin, file = made(kind, tmp_path)
    first = load(plugin, tmp_path)
    assert first.digest == load(plugin, tmp_path).digest
    with_the_old_date(file, "543210")
    second = load(plugin, tmp_path)
    assert second.train_labels.tolist() == [5, 4, 3, 2, 1, 0]
    assert second.digest != first.digest
    with_the_old_date(file, "012345")
    assert load(plugin, tmp_path).digest == first.digest


@pytest.mark.parametrize(("kind", "reads"), [(Labels, 3), (Declared, 1), (Raw, 1)])
def test_only_declared_files_are_read_once(tmp_path, kind, reads):
    plugin, _ = made(kind, tmp_path)
    for _ in range(3):
        load(plugin, tmp_path)
    assert plugin.reads == reads
    assert prepared_file(plugin, tmp_path).exists() == (reads == 1)


def test_a_reader_that_overrides_another_declares_for_itself(tmp_path):
    plugin, _ = made(More, tmp_path)
    for noise in (7, 3):
        (tmp_path / "noise.txt").write_text(str(noise))
        assert load(plugin, tmp_path).test_labels.tolist() == [noise]


def test_a_deleted_file_is_missed_unless_it_can_be_fetched_again(tmp_path):
    plugin, file = made(Raw, tmp_path / "raw")
    load(plugin, tmp_path / "raw")
    file.unlink()
    assert labels_of(plugin, tmp_path / "raw") == "012345"
    plugin, file = made(Declared, tmp_path)
    load(plugin, tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        load(plugin, tmp_path)


def test_a_file_that_changes_while_it_is_read_is_refused_and_nothing_is_stored(tmp_path):
    class Changing(Declared):
        def read(self, raw):
            data = super().read(raw)
            (self.folder / "labels.txt").write_text("543210")
            return data

        def files(self):
            return super().files()

    plugin, _ = made(Changing, tmp_path)
    with pytest.raises(SettingsError, match="data 'labels': its files changed while they were read; try again"):
        load(plugin, tmp_path)
    assert not prepared_file(plugin, tmp_path).exists()
    assert labels_of(plugin, tmp_path) == "543210"


def test_a_prepared_file_of_other_settings_under_this_name_is_made_again(tmp_path):
    class Named(Declared):
        class Settings(DatasetSettings):
            name: str = "labels"
            note: str = ""

    one, _ = made(Named, tmp_path)
    other = Named(Named.Settings(note="other"))
    other.folder = tmp_path
    load(one, tmp_path)
    load(other, tmp_path)
    shutil.copy(prepared_file(one, tmp_path), prepared_file(other, tmp_path))
    load(other, tmp_path)
    assert (one.reads, other.reads) == (1, 2)


@pytest.mark.parametrize("cut", [False, True])
def test_a_flipped_or_cut_prepared_file_is_made_again(tmp_path, cut):
    """That no such damage goes unnoticed is in `core/test_arrays.py`."""
    plugin, _ = made(Declared, tmp_path)
    data, path = load(plugin, tmp_path), prepared_file(plugin, tmp_path)
    content, at = path.read_bytes(), path.stat().st_size // 2
    path.write_bytes(content[:at] if cut else content[:at] + bytes((content[at] ^ 4,)) + content[at + 1 :])
    again = load(plugin, tmp_path)
    assert plugin.reads == 2
    assert again.digest == data.digest
    assert torch.equal(again.train_labels, data.train_labels)
