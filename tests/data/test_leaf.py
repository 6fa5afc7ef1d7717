"""LEAF's JSON files, through the real loader, and a run on them."""

import json

import numpy as np
import pytest

from fedtide.core.errors import SettingsError
from fedtide.world.data.leaf import Leaf
from fedtide.world.storage.prepared import load


def write(path, users, /, **changed):
    path.parent.mkdir(exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }
    path.write_text(json.dumps(content | changed))


def read(tmp_path, **chosen):
    chosen.setdefault("path", str(tmp_path / "train"))
    return load(Leaf(Leaf.Settings(**chosen)), tmp_path)


def test_users_are_clients_in_both_sets(tmp_path):
    write(tmp_path / "train" / "0.json", {"zoe": ([[0.5, 1.5], [2.5, 3.5]], [4, 2])})
    write(tmp_path / "train" / "1.json", {"amy": ([[5, 6]], [10])})
    write(tmp_path / "test" / "0.json", {"amy": ([[7, 8]], [2]), "bob": ([[9, 9]], [4])})
    data = read(tmp_path, test=str(tmp_path / "test"))
    assert data.train_inputs.tolist() == [[0.5, 1.5], [2.5, 3.5], [5, 6]]
    assert (data.train_labels.tolist(), data.test_labels.tolist(), data.num_classes) == ([1, 0, 2], [0, 1], 3)
    origins = data.origins
    assert origins.clients == ("amy", "bob", "zoe")
    assert (origins.train_client.tolist(), origins.test_client.tolist()) == ([2, 2, 0], [0, 1])


def test_a_share_of_every_user_is_held_out(tmp_path):
    write(tmp_path / "train" / "0.json", {name: ([[row] for row in range(10)], [0, 1] * 5) for name in ("a", "b", "c")})
    data = read(tmp_path, split={"share": 0.3})
    assert np.bincount(data.origins.test_client).tolist() == [3, 3, 3]
    assert read(tmp_path, split={"share": 0.3, "seed": 1}).digest != data.digest


@pytest.mark.parametrize(("shape", "expected"), [((2, 3), (1, 2, 3)), ((3, 2, 1), (3, 2, 1))])
def test_pixels_with_a_shape_are_images(tmp_path, shape, expected):
    pixels = np.random.default_rng(0).random((4, 6)).round(3)
    write(tmp_path / "train" / "0.json", {"a": (pixels.tolist(), [0, 1, 0, 1])})
    data = read(tmp_path, test=str(tmp_path / "train"), shape=shape)
    assert (data.kind, data.input_shape) == ("image", expected)
    assert np.allclose(data.train_inputs.flatten(1), pixels)


def test_characters_and_their_successor(tmp_path):
    write(tmp_path / "train" / "0.json", {"HAMLET": (["to be", "or no"], [" ", "t"])})
    write(tmp_path / "test" / "0.json", {"HAMLET": (["xo be or", "t"], ["t", " "])})
    data = read(tmp_path, test=str(tmp_path / "test"), tokens="characters")
    # by frequency: "o" 3, " " 2, then b, e, n, r, t
    assert (data.kind, data.vocabulary, data.num_classes) == ("text", 9, 2)
    assert data.train_inputs.tolist() == [[8, 2, 3, 4, 5], [2, 7, 3, 6, 2]]
    assert data.test_inputs.tolist() == [[1, 2, 3, 4, 5], [8, 0, 0, 0, 0]]
    assert data.train_labels.tolist() == [0, 1]


def test_a_text_among_others_and_lists_of_words(tmp_path):
    tweets = [["1", "Mon", "q", "amy", "Good, good day"], ["2", "Tue", "q", "amy", "bad day"]]
    write(tmp_path / "train" / "0.json", {"amy": (tweets, ["4", "0"])})
    data = read(tmp_path, test=str(tmp_path / "train"), field=4, vocabulary=4, length=2)
    assert data.train_inputs.tolist() == [[3, 3], [1, 2]]
    assert data.train_labels.tolist() == [1, 0]
    lists = read(tmp_path, test=str(tmp_path / "train"))
    assert lists.input_shape == (5,)


def test_users_without_samples_are_left_out(tmp_path):
    write(tmp_path / "train" / "0.json", {"amy": A, "bob": ([], []), "cy": A})
    write(tmp_path / "train" / "1.json", {"dan": ([], []), "eve": A})
    assert read(tmp_path, split={"share": 0.5}).origins.clients == ("amy", "cy", "eve")


@pytest.mark.parametrize(("labels", "names"), [(["no", "yes"], ("no", "yes")), ([7, 3], ("3", "7"))])
def test_labels_keep_their_names(tmp_path, labels, names):
    write(tmp_path / "train" / "0.json", {"amy": ([[0.0], [1.0]], labels)})
    assert read(tmp_path, test=str(tmp_path / "train")).class_names == names
    assert read(tmp_path, test=str(tmp_path / "train")).class_names == names  # of the prepared file


A = ([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize(
    ("users", "changed", "chosen", "message"),
    [
        ({"a": A}, {"users": None}, {}, r"0\.json: not a LEAF file \(users: Input should be a valid list"),
        ({"a": A}, {"users": ["a", "a"]}, {}, "users has a name twice, or one that user_data has not"),
        ({"a": ([[0.0]], [0, 1])}, {}, {}, r"user_data\.a: .*1 x and 2 y"),
        ({"a": A, "b": ([[1.0], [1.0, 2.0]], [0, 1])}, {}, {}, r"0\.json: user 'b', sample 1: inputs have shape \[2\]"),
        ({"a": A, "b": ([["x"], [1.0]], [0, 1])}, {}, {}, r"0\.json: user 'b', sample 0: inputs are \['x'\], expected numbers"),
        ({"a": (["x", 1], [0, 1])}, {}, {}, r"0\.json: user 'a', sample 1: x is int, expected a text"),
        ({"a": ([["x"], ["y"]], [0, 1])}, {}, {"field": 1}, r"user 'a', sample 0: x has 1 texts, but data\.field = 1"),
        ({"a": A, "b": ([[1.0]], [7])}, {}, {"classes": ("0", "1")}, r"user 'b', sample 0: y is '7', expected one of 0, 1"),
        ({"a": A}, {}, {"shape": (2, 2)}, r"user 'a', sample 0: 1 numbers, but data\.shape = \[2, 2\] has 4"),
        ({"a": A}, {}, {"path": "nowhere"}, r"data\.path = 'nowhere': no such file, or no \.json files in this folder"),
    ],
)  # fmt: skip
def test_what_cannot_be(tmp_path, users, changed, chosen, message):
    write(tmp_path / "train" / "0.json", users, **changed)
    with pytest.raises(SettingsError, match=message) as raised:
        read(tmp_path, **{"split": {"share": 0.5}} | chosen)
    assert "\n" not in str(raised.value)
