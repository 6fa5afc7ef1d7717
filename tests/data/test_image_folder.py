"""Folders of images, through the real loader."""

import os

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from fedtide.core.errors import SettingsError
from fedtide.report.picture import names_in
from fedtide.settings.params import Params
from fedtide.world.building.build import build_timeline
from fedtide.world.data.image_folder import ImageFolder
from fedtide.world.storage.prepared import load, load_data


def write(folder, *names, size=(4, 6), mode="RGB"):
    """Images [height, width] of noise under their names."""
    rng, made = np.random.default_rng(len(names)), {}
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (*size, 3) if mode == "RGB" else size
        made[name] = rng.integers(0, 256, shape, dtype=np.uint8)
        Image.fromarray(made[name], mode=mode).save(path)
    return made


def read(tmp_path, **chosen):
    return load(ImageFolder(ImageFolder.Settings(**{"path": str(tmp_path / "images"), **chosen})), tmp_path)


TRAIN = ("dog/ann/1.png", "dog/bob/1.png", "cat/ann/2.png", "cat/cy/3.png")


def test_classes_are_folders_and_clients_are_in_the_path(tmp_path):
    made = write(tmp_path / "images", *TRAIN)
    write(tmp_path / "test", "cat/ann/1.png", "dog/dan/1.png")
    data = read(tmp_path, test=str(tmp_path / "test"), client=1)
    ordered = sorted(TRAIN)
    assert data.train_labels.tolist() == [0, 0, 1, 1]
    assert torch.equal(data.train_inputs, torch.tensor(np.stack([made[name] for name in ordered])).permute(0, 3, 1, 2))
    origins = data.origins
    assert [origins.clients[client] for client in origins.train_client] == ["ann", "cy", "ann", "bob"]
    assert [origins.clients[client] for client in origins.test_client] == ["ann", "dan"]


@pytest.mark.parametrize("client", [r"(\w+)-\d+\.png$", r"(?<=/)[a-z]+"])
def test_an_expression_finds_clients(tmp_path, client):
    write(tmp_path / "images", "cat/ann-1.png", "dog/bob-1.png")
    data = read(tmp_path, client=client, test=str(tmp_path / "images"))
    assert data.origins.clients == ("ann", "bob")


def test_a_changed_folder_is_read_again(tmp_path):
    write(tmp_path / "images", *TRAIN)
    (tmp_path / "images" / "dog" / "dan").symlink_to(tmp_path / "elsewhere")
    write(tmp_path / "elsewhere", "8.png")
    first = read(tmp_path)
    write(tmp_path / "elsewhere", "9.png")
    more = read(tmp_path)
    assert len(more.train_labels) + len(more.test_labels) == 1 + len(first.train_labels) + len(first.test_labels)
    (tmp_path / "elsewhere" / "9.png").unlink()
    assert read(tmp_path).digest == first.digest


def test_what_is_hidden_is_neither_class_nor_sample(tmp_path):
    folder = tmp_path / "images"
    write(folder, *TRAIN)
    first = read(tmp_path)
    write(
        folder, ".ipynb_checkpoints/1.png", "__MACOSX/dog/1.png", "dog/@eaDir/1.png", "cat/._2.png", "dog/Thumbs.db.png"
    )
    (folder / "dog/Thumbs.db.png").rename(folder / "dog/Thumbs.db")
    (folder / ".git").mkdir()
    assert read(tmp_path).digest == first.digest
    write(folder, "dog/a.png", "cat/b.png", "labels.png")
    (folder / "dog/a.png").rename(folder / "dog/a.HEIC")
    (folder / "cat/b.png").rename(folder / "cat/b.heic")
    assert read(tmp_path).digest == first.digest


@pytest.mark.parametrize("empty", [False, True])
def test_classes_are_those_of_training(tmp_path, empty):
    write(tmp_path / "images", *TRAIN)
    made = write(tmp_path / "test", "dog/1.png")
    if empty:
        (tmp_path / "test/cat").mkdir()
        (tmp_path / "test/elk").mkdir()
    data = read(tmp_path, test=str(tmp_path / "test"))
    assert (data.num_classes, data.test_labels.tolist()) == (2, [1])
    assert np.array_equal(data.test_inputs[0].permute(1, 2, 0).numpy(), made["dog/1.png"])


@pytest.mark.parametrize(
    ("spoil", "chosen", "message"),
    [
        (lambda folder: os.truncate(folder / "cat/ann/2.png", 90), {}, r"cat/ann/2\.png: not a readable image"),
        (lambda folder: (folder / "bird").mkdir(), {}, r"data\.path = .*: class 'bird' has no images"),
        (lambda folder: write(folder, "dog/zoe.png", size=(5, 5)), {}, r"zoe\.png: has height and width 5x5"),
        (None, {"path": "nowhere"}, r"data\.path = 'nowhere': no such folder"),
        (None, {"test": "nowhere"}, r"data\.test = 'nowhere': no such folder"),
        (lambda folder: write(folder.parent / "t", "bee/1.png"), {"test": "t"}, r"data\.test: class 'bee' is in t only"),
        (lambda folder: (folder.parent / "t/cat").mkdir(parents=True), {"test": "t"}, r"'t': no folder of a class with images"),
        (None, {"client": 2}, r"data\.client = 2 finds no client in 'cat/ann/2\.png'"),
        (None, {"client": "z+"}, r"data\.client = 'z\+' finds no client in 'cat/ann/2\.png'"),
        (None, {"client": "z*"}, r"data\.client = 'z\*' finds no client"),
        (None, {"client": "("}, r"client = '\(' is not a regular expression"),
        (None, {"client": "(a)(b)"}, r"client = '\(a\)\(b\)' has 2 groups"),
    ],
)  # fmt: skip
def test_what_cannot_be(tmp_path, monkeypatch, spoil, chosen, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "images", *TRAIN)
    if spoil:
        spoil(tmp_path / "images")
    with pytest.raises((SettingsError, ValidationError), match=message):
        read(tmp_path, **chosen)


def test_figures_have_the_names_of_the_folders(tmp_path):
    write(tmp_path / "images", *TRAIN)
    path = str(tmp_path / "images")
    data = {"name": "image_folder", "path": path, "test": path, "root": str(tmp_path)}
    settings = Params(
        {"data": data, "partition": "iid", "scenario": {"name": "static", "num_clients": 2, "rounds": 1}}
    ).run()
    loaded = load_data(settings)
    assert names_in(loaded, settings, build_timeline(settings, loaded)).classes == ("cat", "dog")
