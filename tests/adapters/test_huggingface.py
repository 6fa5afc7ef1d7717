"""Datasets made of Hugging Face's, in memory."""

import datetime

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

from fedtide import SettingsError, from_huggingface

COLUMNS = {
    "size": [1, 2, 3, 4],
    "pair": [[0.5, 1.5]] * 4,
    "kind": [0, 1, 1, 0],
    "who": ["b", "a", "b", "a"],
    "when": [datetime.datetime(1970, 1, day) for day in (1, 2, 3, 4)],
}


def table(**changed):
    return datasets.Dataset.from_dict(COLUMNS | changed)


def test_numbers_become_a_vector():
    data = from_huggingface(table(), test=table(), label="kind", client="who", time="when")
    assert data.kind == "vector"
    assert data.train_inputs.tolist() == [[size, 0.5, 1.5] for size in (1, 2, 3, 4)]
    assert data.origins.clients == ("a", "b")
    assert data.origins.train_client.tolist() == [1, 0, 1, 0]
    assert data.origins.train_time.tolist() == [0, 86400, 2 * 86400, 3 * 86400]


def test_rows_that_were_chosen_are_the_ones_that_are_read():
    chosen = table().select([3, 0]).with_format("torch")
    data = from_huggingface(chosen, test=chosen, label="kind", inputs=["pair", "size"], classes=3)
    assert data.train_inputs.tolist() == [[0.5, 1.5, 4], [0.5, 1.5, 1]]
    assert data.num_classes == 3


def test_images_and_named_classes():
    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 256, (5, 4, 3), dtype=np.uint8)) for _ in range(4)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["x", "y", "z"])})
    rows = datasets.Dataset.from_dict({"image": pictures, "label": [0, 1, 0, 1]}, features=features)
    data = from_huggingface(rows, test=rows)
    assert (data.kind, data.num_classes, data.input_shape) == ("image", 3, (3, 5, 4))
    assert all(
        torch.equal(image, torch.from_numpy(np.array(picture)).permute(2, 0, 1))
        for image, picture in zip(data.train_inputs, pictures, strict=True)
    )


def test_arrays_keep_their_shape():
    images = np.random.default_rng(0).random((4, 1, 2, 3))
    rows = datasets.Dataset.from_dict({"x": images.tolist(), "label": ["no", "yes"] * 2})
    assert np.array_equal(from_huggingface(rows, test=rows).train_inputs.numpy(), images)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (table(), {"label": "knid"}, "the training rows have no column 'knid'; did you mean 'kind'"),
        (table(), {"inputs": []}, "no column is left for inputs"),
        (table(), {"test": table().remove_columns("size"), "inputs": ["pair", "size"]}, "the test rows have no column 'size'"),
        (table(), {}, "column 'who': training sample 0: inputs are 'b', expected numbers"),
        (datasets.DatasetDict(train=table()), {}, "DatasetDict is not a datasets.Dataset"),
    ],
)  # fmt: skip
def test_what_cannot_be(rows, options, message):
    with pytest.raises(SettingsError, match=message) as raised:
        from_huggingface(rows, **{"label": "kind", **options})
    assert "\n" not in str(raised.value)


def test_an_image_that_cannot_be_read_is_named():
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    rows = datasets.Dataset.from_dict(
        {"image": [{"bytes": b"no picture", "path": None}], "label": [0]}, features=features
    )
    with pytest.raises(SettingsError, match="training sample 0: not a readable image"):
        from_huggingface(rows)
