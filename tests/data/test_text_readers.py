"""The text datasets read from small files in their true raw format."""

import csv

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedtide.core.errors import SettingsError
from fedtide.world.data._text import encode, words
from fedtide.world.data.ag_news import TEST, TRAIN, AgNews
from fedtide.world.data.newsgroups20 import Newsgroups20
from fedtide.world.storage.prepared import read_files
from raw_files import write_tar


def make(cls, **chosen):
    return cls(cls.Settings(**chosen))


def write_csv(path, rows):
    with path.open("w", newline="", encoding="utf-8") as writing:
        csv.writer(writing, quoting=csv.QUOTE_ALL).writerows(rows)


def test_ag_news_full(tmp_path):
    write_csv(tmp_path / "train.csv", [(3, "Fears, for T N", 'Unions "say"'), (1, "Café", "two\nlines"), (4, "a", "b")])
    write_csv(tmp_path / "test.csv", [(2, "Sports", "won")])
    dataset = make(AgNews, length=5, vocabulary=999).read(tmp_path)
    assert dataset.train_labels.tolist() == [2, 0, 3]
    assert dataset.test_labels.tolist() == [1]
    assert (dataset.kind, dataset.vocabulary, dataset.num_classes) == ("text", 999, 4)
    assert torch.equal(dataset.train_inputs, encode(["fears for t n unions", "café two lines", "A B"], 5, 999))
    assert torch.equal(dataset.test_inputs, encode(["Sports won"], 5, 999))


def test_ag_news_from_the_test_rows_alone(tmp_path):
    write_csv(tmp_path / "test.csv", [(1 + row % 4, f"title{row}", "text") for row in range(40)])
    plugin = make(AgNews, source="test_only")
    assert plugin.resources == (TEST,)
    dataset = plugin.read(tmp_path)
    assert torch.bincount(dataset.train_labels).tolist() == [8] * 4
    assert torch.bincount(dataset.test_labels).tolist() == [2] * 4
    rows = torch.cat([dataset.train_inputs, dataset.test_inputs])
    assert sorted(rows.tolist()) == sorted(encode([f"title{row} text" for row in range(40)], 64).tolist())
    assert make(AgNews).resources == (TRAIN, TEST)


@pytest.mark.parametrize("content", ['"1","title"\n', '"1","a","b","c"\n'])
def test_row_of_another_form_is_refused(tmp_path, content):
    (tmp_path / "test.csv").write_bytes(content.encode())
    with pytest.raises(SettingsError, match=f"data 'ag_news': the files in {tmp_path} are damaged"):
        read_files(make(AgNews, source="test_only"), tmp_path)


POST = """From: me@there
Subject: rockets

Bob Smith writes:
> does it fly?
| no
It flies, Bob wrote nothing.

And lands.

--
Me, rocketeer
"""


def test_newsgroups(tmp_path):
    posts = {
        "./20news-bydate-train/sci.space/2": "second é",
        "./20news-bydate-train/alt.atheism/7": "first",
        "./20news-bydate-train/sci.space/1": "",
        "./20news-bydate-test/sci.space/3": "test",
    }
    write_tar(tmp_path / "20news-bydate.tar.xz", "w:xz", {name: text.encode("latin-1") for name, text in posts.items()})
    dataset = make(Newsgroups20, length=4).read(tmp_path)
    assert dataset.train_labels.tolist() == [0, 1, 1]
    assert dataset.test_labels.tolist() == [1]
    assert dataset.num_classes == 2
    assert torch.equal(dataset.train_inputs, encode(["first", "", "second é"], 4))
    assert torch.equal(dataset.test_inputs, encode(["test"], 4))


@pytest.mark.parametrize(
    ("remove", "left"),
    [
        ((), POST),
        (("headers",), POST[POST.index("Bob Smith") :]),
        (("quotes",), "From me there Subject rockets It flies Bob wrote nothing And lands Me rocketeer"),
        (("footers",), POST[: POST.index("--")]),
        (("headers", "footers", "quotes"), "It flies, Bob wrote nothing. And lands."),
    ],
)
def test_parts_of_a_post_can_be_left_out(tmp_path, remove, left):
    posts = {f"20news-bydate-{split}/sci.space/1": POST.encode() for split in ("train", "test")}
    write_tar(tmp_path / "20news-bydate.tar.gz", "w:gz", posts)
    dataset = make(Newsgroups20, remove=remove, length=40).read(tmp_path)
    assert torch.equal(dataset.train_inputs, encode([left], 40))


texts = st.lists(st.text(max_size=20), min_size=1, max_size=3)


@pytest.mark.slow
@given(texts, st.integers(1, 12), st.integers(2, 500))
def test_shape_range_and_padding_only_at_the_end(some, length, vocabulary):
    ids = encode(some, length, vocabulary)
    assert ids.shape == (len(some), length)
    assert ids.dtype == torch.int64
    assert ids.min() >= 0
    assert ids.max() < vocabulary
    for row, text in zip(ids, some, strict=True):
        used = min(length, len(words(text)))
        assert (row[:used] > 0).all()
        assert (row[used:] == 0).all()


def test_ids_never_change():
    assert encode(["The cat, the DOG"], 6)[0].tolist() == [28246, 26869, 28246, 23718, 0, 0]
