"""Keyed generators."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedtide.core.randomness import generator

words = st.integers(-(2**63), 2**63 - 1)


def test_draws_of_a_key_are_these():
    drawn = generator(7, "batches", 3, 5)
    assert drawn.integers(0, 1000, 4).tolist() == [883, 399, 769, 136]
    assert drawn.permutation(5).tolist() == [1, 4, 2, 3, 0]


@given(seed=words, keys=st.lists(words, max_size=3))
def test_a_generator_is_philox_with_its_key_at_the_start_of_its_stream(seed, keys):
    made = generator(seed, "purpose", *keys)
    state = made.bit_generator.state
    assert state["state"]["counter"].tolist() == [0, 0, 0, 0]
    expected = np.random.Generator(np.random.Philox(key=state["state"]["key"]))
    assert made.random(9).tolist() == expected.random(9).tolist()
    assert generator(seed, "purpose", *keys).random() == generator(seed, "purpose", *keys).random()


def test_any_part_of_a_key_makes_another_stream():
    keys = [(7, "batches"), (8, "batches"), (7, "cohort"), (7, "batches", 0), (7, "batches", 1), (7, "batches", 0, 0)]
    assert len({generator(*key).random() for key in keys}) == len(keys)
