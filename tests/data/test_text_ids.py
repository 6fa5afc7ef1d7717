import string

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.world.data._text import encode, word_id, words

texts = st.lists(st.text(max_size=40), min_size=1, max_size=5)


@given(texts, st.integers(1, 12), st.integers(2, 500))
@settings(max_examples=80, deadline=None)
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


@given(st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=6), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_text_is_the_sequence_of_its_words(parts):
    expected = [word_id(part, 1000) for part in parts]
    assert encode([" ".join(parts)], len(parts), 1000)[0].tolist() == expected
    assert encode([", ".join(parts)], 3, 1000)[0, : min(3, len(parts))].tolist() == expected[:3]


def test_ids_never_change():
    assert encode(["The cat, the DOG"], 6)[0].tolist() == [28246, 26869, 28246, 23718, 0, 0]


def test_words_spread_over_the_table():
    ids = encode([f"word{number}" for number in range(2000)], 1, 30522)
    expected = 30521 * (1 - (1 - 1 / 30521) ** 2000)  # rows hit by 2000 uniform throws, standard deviation below 8
    assert abs(ids.unique().numel() - expected) < 40
