"""Protocols for summing label histograms: exact sums, masks that cancel, traffic, clients that leave."""

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from fedtide.core.errors import SettingsError
from fedtide.core.randomness import Randomness
from fedtide.methods.algorithms._histograms import CIPHERTEXT, Encrypted, Masked, histograms
from support import assert_same, federation, run_rounds, settings, steady, timeline, vectors

FIVE = Randomness(5)
COUNTS = np.random.default_rng(0).integers(0, 600, (100, 10))
SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(0, 99))


@given(SHAPES)
@examples(max_examples=30, deadline=None)
def test_sums_are_exact(shape):
    clients, classes, seed = shape
    counts = np.random.default_rng(seed).integers(0, 10**6, (clients, classes))
    for protocol in ("plain", "masked"):
        assert histograms(protocol).total(counts, Randomness(seed), 0).tolist() == counts.sum(0).tolist()


@given(SHAPES, st.data())
@examples(max_examples=30, deadline=None)
def test_the_sum_of_those_who_answer_survives_those_who_leave(shape, data):
    clients, classes, seed = shape
    counts = np.random.default_rng(seed).integers(0, 1000, (clients, classes))
    gone = data.draw(st.sets(st.integers(0, clients - 1), max_size=clients - 1))
    exchange = Masked()
    uploads = {
        client: counts[client].astype(np.uint32) + exchange.mask(client, clients, classes, Randomness(seed), 0)
        for client in range(clients)
        if client not in gone
    }
    assert exchange.unmask(uploads, gone, Randomness(seed), 0).tolist() == counts[list(uploads)].sum(0).tolist()


def test_a_masked_upload_is_uniform_and_another_in_every_session():
    """Zero counts of two clients under 4000 masks: mean and spread of a uniform number below 2^32."""
    exchange = Masked()
    mask = exchange.mask(0, 2, 4000, FIVE, 0).astype(np.float64) / 2**32
    assert mask.mean() == pytest.approx(0.5, abs=0.02)
    assert mask.std() == pytest.approx(math.sqrt(1 / 12), abs=0.01)
    assert not np.array_equal(exchange.mask(0, 2, 8, FIVE, 0), exchange.mask(0, 2, 8, FIVE, 1))
    assert np.array_equal(
        exchange.mask(0, 2, 8, FIVE, 0) + exchange.mask(1, 2, 8, FIVE, 0), np.zeros(8, dtype=np.uint32)
    )


def test_a_sum_beyond_32_bits_is_refused():
    with pytest.raises(SettingsError, match="do not fit into 32 bits"):
        histograms("masked").total(np.full((2, 1), 2**31), Randomness(0), 0)


def test_what_is_sent():
    assert histograms("plain").traffic(100, 10) == (4000, 4000)
    assert histograms("masked").traffic(100, 10) == (100 * (32 + 40), 100 * (99 * 32 + 40))


@pytest.mark.parametrize("name", ["fedwcm", "fedwcm_x"])
def test_masks_change_nothing_but_the_bytes_of_a_sessions_first_round(name):
    everybody = {0: 0, 1: 1, 2: 2}
    world = timeline(
        [np.arange(0, 20), np.arange(20, 30), np.arange(30, 60)], [everybody] * 4, session_of_round=[0, 0, 1, 1]
    )
    played = {}
    for protocol in ("plain", "masked"):
        own = {"name": name, "label_histogram": protocol}
        fed = federation(settings(algorithm=own), world, vectors())
        played[protocol] = (*run_rounds(fed), fed.parts.payload())
    (plain, rows, payload), (hidden, other, _) = played["plain"], played["masked"]
    assert_same(plain, hidden)
    first, second, third, _ = (record.row["bytes_up"] for record in rows)
    assert (first, second - first) == (3 * payload.up + 3 * 3 * 4, 3 * payload.up)
    assert third - second == first
    extra = [b.row["bytes_up"] - a.row["bytes_up"] for a, b in zip(rows, other, strict=True)]
    assert extra == [3 * 36, 3 * 36, 6 * 36, 6 * 36]  # a key and a score more, in each session


def test_a_missing_extra_is_reported_before_the_run_starts(monkeypatch):
    monkeypatch.setitem(sys.modules, "tenseal", None)
    chosen = settings(algorithm={"name": "fedwcm", "label_histogram": "he"})
    with pytest.raises(
        SettingsError, match=r"label_histogram = he requires .* pip install '\.\[he\]', or choose masked"
    ):
        federation(chosen, steady((30, 30), 1), vectors())


@pytest.mark.slow
def test_encrypted_sums_are_exact_ciphertexts_have_the_published_size_and_large_counts_are_refused():
    pytest.importorskip("tenseal")
    exchange = Encrypted()
    _, public = exchange.contexts()
    assert not public.has_secret_key()
    uploads = [exchange.encrypt(public, each) for each in COUNTS]
    for ciphertext in uploads:
        assert 88_000 < len(ciphertext) < 89_000
    assert np.mean([len(each) for each in uploads]) == pytest.approx(CIPHERTEXT, abs=60)
    assert exchange.total(COUNTS, Randomness(0), 0).tolist() == COUNTS.sum(0).tolist()
    up, down = exchange.traffic(100, 10)
    assert up == 134_269 + 100 * 88_556 + 40
    assert down == 99 * 134_269 + 88_556 + 100 * 40
    for classes in (20, 100):  # the size does not tell their number
        assert 88_000 < len(exchange.encrypt(public, np.arange(classes))) < 89_000
    assert exchange.total(np.full((2, 1), 258_048), Randomness(0), 0).tolist() == [516_096]
    with pytest.raises(SettingsError, match="a class has 516097 samples; the plain modulus allows 516096"):
        exchange.total(np.array([[258_048], [258_049]]), Randomness(0), 0)


def test_an_encrypted_run_is_the_plain_one():
    pytest.importorskip("tenseal")
    states = [
        run_rounds(
            federation(
                settings(algorithm={"name": "fedwcm", "label_histogram": protocol}), steady((25, 35), 2), vectors()
            )
        )[0]
        for protocol in ("plain", "he")
    ]
    assert_same(*states)
    assert torch.equal(states[0].extra["histogram"], states[1].extra["histogram"])
