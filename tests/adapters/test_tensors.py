"""Datasets made of arrays and of PyTorch's datasets."""

import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from fedtide import SettingsError, SplitSettings, from_tensors, from_torch
from fedtide.world.dataset import content_digest

X = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [7.0]]
Y = [0, 1, 2, 0, 1, 2, 0, 1]
WHO = ["bob", "ann", "bob", "ann", "bob", "ann", "bob", "ann"]


def rows(data):
    """What is known about every sample of both sets."""
    origins, found = data.origins, []
    for split in ("train", "test"):
        client, time = getattr(origins, f"{split}_client"), getattr(origins, f"{split}_time")
        for row, (x, y) in enumerate(
            zip(getattr(data, f"{split}_inputs"), getattr(data, f"{split}_labels"), strict=True)
        ):
            who = None if client is None else origins.clients[client[row]]
            found.append((float(x.flatten()[0]), int(y), who, None if time is None else int(time[row])))
    return sorted(found)


def expected(time=(None,) * 8):
    return [(x[0], y, who, when) for x, y, who, when in zip(X, Y, WHO, time, strict=True)]


@pytest.mark.parametrize("make", [list, np.array, torch.tensor, pd.Series])
def test_every_kind_of_sequence_is_the_same(make):
    inputs = X if make is pd.Series else make(X)
    assert rows(from_tensors(inputs, make(Y), WHO, make(range(8)))) == expected(range(8))


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_arrays_of_three_dimensions_are_series(dtype):
    inputs = np.arange(48).reshape(8, 2, 3).astype(dtype)
    data = from_tensors(inputs, Y, WHO)
    assert (data.kind, data.input_shape, data.train_inputs.dtype) == ("series", (2, 3), torch.float32)
    assert rows(data) == [(float(x[0, 0]), y, who, None) for x, y, who in zip(inputs, Y, WHO, strict=True)]
    samples = TensorDataset(torch.from_numpy(inputs), torch.tensor(Y), torch.arange(8) % 2)
    assert from_torch(samples, client=2).input_shape == (2, 3)


@pytest.mark.parametrize(("unit", "length"), [("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_integers_in_parts_of_seconds_become_seconds(unit, length):
    times = [1356998400 + 86400 * day for day in range(8)]
    data = from_tensors(X, Y, WHO, [time * length + length // 2 for time in times], unit=unit)
    assert data.origins.unit == "s"
    assert rows(data) == expected(times)
    with pytest.raises(SettingsError, match=f"set unit: {unit}"):
        from_tensors(X, Y, WHO, [time * length for time in times])


def test_the_digest_is_that_of_the_content():
    data = from_tensors(X, Y, WHO)
    assert data.digest == content_digest(data) == from_tensors(X, Y, WHO).digest
    assert data.digest != from_tensors(X, Y, WHO[::-1]).digest


@pytest.mark.parametrize(
    "time",
    [
        [f"2013-01-0{day}" for day in range(1, 9)],
        [datetime.datetime(2013, 1, day, tzinfo=datetime.UTC) for day in range(1, 9)],
        pd.date_range("2013-01-01", periods=8),
    ],
)
def test_dates_are_seconds(time):
    assert rows(from_tensors(X, Y, WHO, time)) == expected([1356998400 + 86400 * day for day in range(8)])


def test_a_test_set_is_kept():
    data = from_tensors(X, Y, WHO, range(8), test=(X[:2], Y[:2], ["cy", "ann"], [8, 9]))
    assert (len(data.train_labels), data.test_labels.tolist(), data.num_classes) == (8, [0, 1], 3)
    assert data.origins.clients == ("ann", "bob", "cy")
    assert data.origins.test_client.tolist() == [2, 0]
    assert data.origins.test_time.tolist() == [8, 9]


def test_kinds():
    picture = torch.randint(0, 256, (8, 3, 4, 5), dtype=torch.uint8)
    image = from_tensors(picture, Y, mean=(0.5,) * 3, std=(0.2,) * 3)
    assert (image.kind, image.train_inputs.dtype, image.mean) == ("image", torch.uint8, (0.5,) * 3)
    assert from_tensors(np.array(X, dtype=int), Y).train_inputs.dtype == torch.float32
    text = from_tensors(np.array(X, dtype=int), Y, kind="text")
    assert (text.kind, text.train_inputs.dtype, text.vocabulary) == ("text", torch.int64, 8)
    assert from_tensors(torch.rand(8, 1, 2, 2), Y).kind == "image"


def test_names_of_classes_are_numbered():
    names = ["cat", "dog", "cat", "dog"]
    assert rows(from_tensors(X[:4], names))[1][1] == 1
    assert rows(from_tensors(X[:4], names, classes=("dog", "cat")))[1][1] == 0
    assert from_tensors(X, Y, classes=10).num_classes == 10


@pytest.mark.parametrize("make", [np.array, torch.tensor])
@pytest.mark.parametrize("has_test", [False, True])
def test_the_array_of_the_caller_is_not_shared(make, has_test):
    own = make(X)
    data = from_tensors(own, Y, test=(own, Y) if has_test else None)
    own[:] = 9
    assert float(data.train_inputs.max()) <= 7


def test_arrays_of_any_layout():
    backwards, foreign = np.array(X)[::-1], np.array(X, dtype=">f4")
    assert rows(from_tensors(backwards, Y[::-1])) == rows(from_tensors(foreign, Y)) == rows(from_tensors(X, Y))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((X, Y[:7]), {}, "8 training samples, but 7 labels; the counts should be equal and above 0"),
        ((X, [0.5, *Y[1:]]), {}, "training sample 0: label is '0.5', expected an integer or a name"),
        ((X, Y), {"classes": 2}, "training sample 2: label is '2', expected a label from 0 to 1"),
        ((X, ["a", "b"] * 4), {"classes": ("a", "c")}, "training sample 1: label is 'b', expected one of a, c"),
        ((X, ["a", None] * 4), {}, "training sample 1: label is empty, expected a label"),
        ((X, [[0]] * 8), {}, "labels of the training samples: a value is a list; expected one value per sample"),
        (([[float("nan")], *X[1:]], Y), {}, "training sample 0: an input is not a finite number"),
        (([*X[:7], [1.0, 2.0]], Y), {}, r"training sample 7: inputs have shape \[2\], the first one \[1\]"),
        (([*X[:7], [[1.0], [2.0, 3.0]]], Y), {}, "training sample 7: inputs have rows of different lengths"),
        (([*X[:7], ["red"]], Y), {}, r"training sample 7: inputs are \['red'\], expected numbers"),
        ((torch.rand(8, 2, 2, 2, 2), Y), {}, r"inputs are float32 \[8, 2, 2, 2, 2\]; allowed are image"),
        ((torch.rand(8, 2), Y), {"kind": "text"}, r"expected for kind text: \[n, length\], integers"),
        ((torch.arange(8)[:, None], Y), {"kind": "text", "vocabulary": 5}, "token ids run from 0 to 7; allowed are 0 to 4"),
        ((X, Y, ["ann", " ", *WHO[2:]]), {}, "training sample 1: client is empty, expected a client"),
        ((X, Y, WHO), {"test": (X, Y)}, "the test samples have no client, but the other samples do"),
        ((X, Y), {"test": (torch.rand(8, 2), Y)}, r"training samples are float64 \[1\], test samples float64 \[2\]"),
        ((X[:2], Y[:2]), {"split": SplitSettings(share=1e-9)}, "2 samples are too few for split.share = 1e-09"),
        ((X, Y), {"test": (X,)}, "test has 1 parts, expected inputs, labels, and optionally client and time"),
        ((X, Y), {"mean": (0.5,)}, "mean has 1 numbers; expected one for each of 0 channels"),
    ],
)  # fmt: skip
def test_what_cannot_be(arguments, options, message):
    with pytest.raises(SettingsError, match=message) as raised:
        from_tensors(*arguments, **options)
    assert "\n" not in str(raised.value)


class Mapped(torch.utils.data.Dataset):
    """Samples by key."""

    def __init__(self, count=8):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, row):
        return {"x": torch.tensor(X[row]), "y": Y[row], "who": WHO[row], "when": f"1970-01-01T00:00:0{row}Z"}


def test_columns_of_a_torch_dataset_are_found_by_position_or_key():
    tensors = TensorDataset(torch.tensor(X), torch.tensor(Y), torch.tensor([name == "bob" for name in WHO]).long())
    known = from_torch(tensors, client=2)
    assert known.origins.clients == ("0", "1")
    by_key = from_torch(Mapped(), inputs="x", label="y", client="who", time="when")
    assert rows(by_key) == rows(from_torch(tensors, client=WHO, time=range(8))) == expected(range(8))


def test_a_torch_test_set_has_the_same_columns():
    data = from_torch(Mapped(), test=Mapped(3), inputs="x", label="y", client="who")
    assert (len(data.train_labels), data.test_labels.tolist()) == (8, Y[:3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "training sample 0 has no 0; it has 'x', 'y', 'who', 'when'"),
        ({"inputs": "x", "label": "z"}, "training sample 0 has no 'z'"),
        ({"inputs": "x", "label": "y", "client": WHO, "test": Mapped(2)}, "with a test set, expected the index or key"),
    ],
)
def test_what_a_torch_dataset_cannot_be(options, message):
    with pytest.raises(SettingsError, match=message):
        from_torch(Mapped(), **options)


def test_a_stream_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(SettingsError, match="the training set is Stream, expected a map-style one with len"):
        from_torch(Stream())
    with pytest.raises(SettingsError, match="training sample 0 is float, expected a tuple, a list or a mapping"):
        from_torch([1.0])


def test_numbers_and_several_labels():
    inputs = np.arange(20.0).reshape(10, 2)
    for targets in (inputs[:, 0], inputs[:, :1], torch.from_numpy(inputs[:, 0]), inputs[:, 0].tolist()):
        data = from_tensors(inputs, targets, task="regression")
        assert (data.task, data.num_classes, data.outputs) == ("regression", 1, 1)
        assert torch.equal(data.train_labels, data.train_inputs[:, :1].float())
    hot = (inputs > 7).astype(int)
    data = from_tensors(inputs, hot, test=(inputs[:3], hot[:3]), task="multilabel")
    assert (data.outputs, len(data.train_labels), data.test_labels.tolist()) == (2, 10, hot[:3].tolist())


@pytest.mark.parametrize(
    ("labels", "task", "words"),
    [
        (np.zeros(3), "multilabel", r"3 training samples have labels \[3\]; multilabel expects \[n, T\]"),
        (np.full((3, 2), 2), "multilabel", r"training sample 0: labels are \[2.0, 2.0\], expected 0 or 1"),
        ([0.0, 1.0, np.nan], "regression", r"training sample 2: labels are \[nan\], expected finite numbers"),
        (np.zeros((2, 1)), "regression", r"3 training samples have labels \[2, 1\]"),
    ],
    ids=str,
)
def test_labels_that_do_not_fit_their_task(labels, task, words):
    with pytest.raises(SettingsError, match=words):
        from_tensors(np.zeros((3, 2)), labels, task=task)
