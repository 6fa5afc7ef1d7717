"""Every image dataset read from small files in its true raw format."""

import gzip
import io
import json
import pickle
import struct
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from fedtide.core.errors import SettingsError
from fedtide.world.data.cifar10 import Cifar10
from fedtide.world.data.cifar100 import Cifar100
from fedtide.world.data.emnist_letters import EmnistLetters
from fedtide.world.data.fashion_mnist import FashionMnist
from fedtide.world.data.femnist import Femnist
from fedtide.world.data.mnist import Mnist
from fedtide.world.data.svhn import Svhn
from fedtide.world.data.tiny_imagenet import TinyImagenet
from fedtide.world.storage.prepared import read_files
from raw_files import batch, idx, noise, write_emnist, write_tar


def make(cls, **chosen):
    return cls(cls.Settings(**chosen))


def refused(cls, raw, reason=""):
    """The files below ``raw`` are refused in one line, for this reason."""
    with pytest.raises(SettingsError, match=f"data '.*': the files in {raw} are .*{reason}") as found:
        read_files(make(cls), raw)
    assert "\n" not in str(found.value)


def write_mnist(raw):
    content = {"train": (noise(0, 5, 28, 28), np.arange(5)), "t10k": (noise(1, 2, 28, 28), np.array([9, 3]))}
    for prefix, (images, labels) in content.items():
        (raw / f"{prefix}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (raw / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(idx(labels))


@pytest.mark.parametrize(
    ("cls", "name", "mean", "std"), [(Mnist, "mnist", 0.1307, 0.3081), (FashionMnist, "fashion_mnist", 0.2861, 0.3530)]
)
def test_mnist_family(tmp_path, cls, name, mean, std):
    write_mnist(tmp_path)
    dataset = make(cls).read(tmp_path)
    assert (dataset.name, dataset.num_classes) == (name, 10)
    assert np.array_equal(dataset.train_inputs[:, 0].numpy(), noise(0, 5, 28, 28))
    assert np.array_equal(dataset.test_inputs[:, 0].numpy(), noise(1, 2, 28, 28))
    assert dataset.train_labels.tolist() == [0, 1, 2, 3, 4]
    assert dataset.test_labels.tolist() == [9, 3]
    expected = (noise(0, 5, 28, 28).astype(np.float64) / 255 - mean) / std
    assert np.allclose(dataset.prepare(dataset.train_inputs, torch.float64)[:, 0].numpy(), expected, atol=1e-12)


@pytest.mark.parametrize(
    "content",
    [
        idx(noise(0, 5, 28, 28))[:-9],
        gzip.compress(bytes((0, 0, 8, 3)) + struct.pack(">3I", 6, 28, 28) + bytes(5 * 784), mtime=0),
        gzip.compress(bytes((0, 0, 8, 3)), mtime=0),
    ],
)
def test_a_damaged_idx_file_is_refused(tmp_path, content):
    write_mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(content)
    refused(Mnist, tmp_path)


@pytest.mark.parametrize("classes", [26, 10])
def test_emnist_letters(tmp_path, classes):
    write_emnist(tmp_path / "gzip.zip")
    dataset = make(EmnistLetters, classes=classes).read(tmp_path)
    assert dataset.num_classes == classes
    assert torch.bincount(dataset.train_labels).tolist() == [3] * classes
    assert torch.bincount(dataset.test_labels).tolist() == [1] * classes
    pixels = noise(3, 78, 28, 28)[np.tile(np.arange(26), 3) < classes].astype(np.float64)
    prepared = dataset.prepare(dataset.train_inputs, torch.float64)[:, 0].numpy()
    assert np.allclose(prepared, (pixels - pixels.mean()) / pixels.std(), atol=1e-9)
    assert abs(prepared.mean()) < 1e-9
    assert abs(prepared.std() - 1) < 1e-9


def cifar10_files():
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    files = {f"cifar-10-batches-py/{name}": batch("labels", noise(i, 2, 3072), [i, 9]) for i, name in enumerate(names)}
    return {"cifar-10-batches-py/readme.html": b"<html>", **dict(reversed(files.items()))}


@pytest.mark.parametrize(("name", "mode"), [("cifar-10-python.tar.gz", "w:gz"), ("cifar-10-batches-py.tar.xz", "w:xz")])
def test_cifar10(tmp_path, name, mode):
    write_tar(tmp_path / name, mode, cifar10_files())
    dataset = make(Cifar10).read(tmp_path)
    assert dataset.train_inputs.shape == (10, 3, 32, 32)
    assert dataset.train_labels.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]
    assert dataset.test_labels.tolist() == [5, 9]
    expected = np.concatenate([noise(number, 2, 3072) for number in range(5)]).reshape(10, 3, 32, 32)
    assert np.array_equal(dataset.train_inputs.numpy(), expected)
    assert np.array_equal(dataset.test_inputs.numpy(), noise(5, 2, 3072).reshape(2, 3, 32, 32))


def test_cifar100(tmp_path):
    files = {
        f"cifar-100-python/{name}": batch("fine_labels", noise(9, 3, 3072), [0, 99, 5]) for name in ("train", "test")
    }
    write_tar(tmp_path / "cifar-100-python.tar.gz", "w:gz", files)
    dataset = make(Cifar100, normalization="fedssg").read(tmp_path)
    assert (dataset.name, dataset.num_classes) == ("cifar100", 100)
    assert (dataset.mean, dataset.std) == ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
    assert dataset.train_labels.tolist() == [0, 99, 5]
    assert np.array_equal(dataset.test_inputs.numpy(), noise(9, 3, 3072).reshape(3, 3, 32, 32))


class Attack:
    def __reduce__(self):
        return print, ("this must not run",)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (pickle.dumps(Attack()), "asks for builtins.print"),
        (pickle.dumps({b"data": noise(0, 2, 100), b"labels": [0, 1]}), "cannot reshape"),
        (batch("labels", noise(0, 2, 3072), [0, 1])[:-40], "EOFError"),
    ],
)
def test_forged_or_damaged_batch_is_refused(tmp_path, capsys, content, wanted):
    files = {**cifar10_files(), "cifar-10-batches-py/data_batch_2": content}
    write_tar(tmp_path / "cifar-10-python.tar.gz", "w:gz", files)
    refused(Cifar10, tmp_path, wanted)
    assert capsys.readouterr().out == ""


def test_svhn(tmp_path):
    from scipy.io import savemat

    images, labels = noise(4, 32, 32, 3, 6), np.array([[1], [10], [2], [10], [9], [3]], dtype=np.uint8)
    for split in ("train", "test"):
        savemat(tmp_path / f"{split}_32x32.mat", {"X": images, "y": labels}, do_compression=True)
    dataset = make(Svhn).read(tmp_path)
    assert dataset.train_labels.tolist() == [1, 0, 2, 0, 9, 3]
    assert dataset.train_inputs.shape == (6, 3, 32, 32)
    assert dataset.train_inputs[4, 2, 7, 5] == images[7, 5, 2, 4]
    assert (dataset.mean, dataset.std) == ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))


def leaf(path, writers):
    """A file as LEAF writes it: gray values over 255, flattened, per writer."""
    data = {name: {"x": [(image / 255).tolist() for image in x], "y": y} for name, (x, y) in writers.items()}
    content = {"users": list(writers), "num_samples": [len(y) for _, y in writers.values()], "user_data": data}
    path.write_text(json.dumps(content))


def test_femnist_pools_writers_and_restores_gray_values(tmp_path):
    """Images restored from their files belong to their writer, and their labels are those of the images."""
    of = {"b": noise(0, 12, 784), "a": noise(1, 3, 784), "c": noise(2, 5, 784)}
    labels = {"b": list(range(12)), "a": [61, 36, 10], "c": [35] * 5}
    leaf(tmp_path / "all_data_0.json", {name: (of[name], labels[name]) for name in "ba"})
    leaf(tmp_path / "all_data_1.json", {"c": (of["c"], labels["c"])})
    dataset = make(Femnist).read(tmp_path)
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (16, 4)
    assert (dataset.num_classes, dataset.mean, dataset.std) == (62, (0.9614,), (0.1634,))
    assert dataset.origins.clients == ("a", "b", "c")
    found = {
        (image.numpy().tobytes(), int(label), "abc"[client])
        for split in ("train", "test")
        for image, label, client in zip(
            getattr(dataset, f"{split}_inputs"),
            getattr(dataset, f"{split}_labels"),
            getattr(dataset.origins, f"{split}_client"),
            strict=True,
        )
    }
    assert found == {(image.tobytes(), y, name) for name in of for image, y in zip(of[name], labels[name], strict=True)}
    assert sorted(dataset.train_labels.tolist()) != dataset.train_labels.tolist()


def test_femnist_doubled_first_image_of_a_writer(tmp_path):
    x = noise(3, 4, 784)
    doubled = np.concatenate([x[:1], x])
    writers = {"first": (x, [1, 2, 3, 4]), "second": (doubled, [1, 1, 2, 3, 4]), "equal_labels": (x, [7, 7, 8, 9])}
    leaf(tmp_path / "all_data_0.json", writers)
    for keep, total in ((False, 12), (True, 13)):
        dataset = make(Femnist, leaf_duplicates=keep).read(tmp_path)
        assert len(dataset.train_labels) + len(dataset.test_labels) == total


def jpeg(color, mode="RGB", size=64):
    stream = io.BytesIO()
    Image.new(mode, (size, size), color).save(stream, "JPEG", quality=100)
    return stream.getvalue()


def write_tiny(raw, annotations="val_0.JPEG\tn02\t0\t0\t62\t57\nval_1.JPEG\tn01\t1\t2\t3\t4\n", **other):
    files = {
        "wnids.txt": b"n02\nn01\n",
        "train/n02/images/n02_0.JPEG": jpeg((250, 0, 0)),
        "train/n02/n02_boxes.txt": b"n02_0.JPEG\t0\t0\t62\t57\n",
        "train/n01/images/n01_0.JPEG": jpeg(130, "L"),
        "train/n01/images/n01_1.JPEG": jpeg((0, 0, 250)),
        "val/images/val_1.JPEG": jpeg((0, 250, 0)),
        "val/images/val_0.JPEG": jpeg((10, 10, 10)),
        "val/val_annotations.txt": annotations.encode(),
        "test/images/test_0.JPEG": b"never decoded",
    } | other
    with zipfile.ZipFile(raw / "tiny-imagenet-200.zip", "w") as archive:
        archive.writestr("tiny-imagenet-200/", "")
        for name, content in files.items():
            archive.writestr(f"tiny-imagenet-200/{name}", content)


def test_tiny_imagenet(tmp_path):
    write_tiny(tmp_path)
    dataset = make(TinyImagenet).read(tmp_path)
    assert dataset.train_inputs.shape == (3, 3, 64, 64)
    assert dataset.train_labels.tolist() == [0, 0, 1]
    assert dataset.test_labels.tolist() == [1, 0]
    means = dataset.train_inputs.double().mean((2, 3))
    assert torch.allclose(means, torch.tensor([[130, 130, 130], [0, 0, 250], [250, 0, 0]]).double(), atol=4)
    assert torch.allclose(dataset.test_inputs.double().mean((1, 2, 3)), torch.tensor([10, 250 / 3]).double(), atol=4)
    assert dataset.mean == (0.485, 0.456, 0.406)
    assert make(TinyImagenet, normalization="fedwcm").read(tmp_path).std == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    "damaged",
    [
        {"annotations": "val_0.JPEG\tn02\n"},
        {"annotations": "val_0.JPEG\tn02\nval_1.JPEG\tn99\n"},
        {"train/n01/images/n01_1.JPEG": jpeg((1, 2, 3))[:-300]},
        {"train/n01/images/n01_1.JPEG": jpeg((1, 2, 3), size=32)},
    ],
)
def test_tiny_imagenet_with_incomplete_annotations_or_a_damaged_picture_is_refused(tmp_path, damaged):
    write_tiny(tmp_path, **damaged)
    refused(TinyImagenet, tmp_path)
