import torch
from hypothesis import given
from hypothesis import strategies as st

from fedtide.world.data._text import encode, words

texts = st.lists(st.text(max_size=20), min_size=1, max_size=3)


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
