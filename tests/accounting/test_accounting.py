"""What noise costs clients: golden values, closed forms, and the worst updates by brute force."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.methods.accounting import gaussian
from fedtide.methods.accounting.mechanisms import (
    Banded,
    Blt,
    Independent,
    Mechanism,
    Tree,
    sensitivities,
    separation,
    square_root,
)

GOLDEN = json.loads((Path(__file__).with_name("uplink_accounting.json")).read_text(encoding="utf-8"))
ENTRIES: list[dict[str, Any]] = GOLDEN["entries"]
EXACT: float = GOLDEN["tolerance"]["own"]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [entry for entry in ENTRIES if entry["kind"] in kinds]


def mechanism(entry: dict[str, Any]) -> Mechanism:
    if entry["kind"] == "banded":
        return Banded(entry["coefficients"])
    return Blt(entry["decay"], entry["scale"]) if entry["kind"] == "blt" else Tree()


def blocks(rounds: int, restart: int | None = None) -> Any:
    t = np.arange(rounds)
    return t - t % (restart or rounds)


def participations(rounds: int, *taken: int) -> Any:
    found = np.zeros((1, rounds))
    found[0, list(taken)] = 1
    return found


def matrix(chosen: Mechanism, rounds: int, restart: int | None = None) -> Any:
    """C."""
    return chosen.encode(np.eye(rounds), blocks(rounds, restart)).T


@pytest.mark.parametrize("entry", of_kind("known_cohorts"), ids=lambda entry: str(entry["participations"]))
def test_known_cohorts(entry: dict[str, Any]) -> None:
    mu = math.sqrt(entry["participations"]) / entry["z"]
    assert gaussian.epsilon(mu, entry["delta"]) == pytest.approx(entry["epsilon_exact"], abs=EXACT)
    assert gaussian.epsilon(mu, entry["delta"]) == pytest.approx(entry["epsilon"], abs=1e-7)


@pytest.mark.parametrize("entry", of_kind("fixed_size"), ids=lambda entry: str(entry["population"]))
def test_known_cohorts_of_fixed_size(entry: dict[str, Any]) -> None:
    found = gaussian.epsilon(math.sqrt(entry["participations"]) / entry["z"], entry["delta"])
    assert found == pytest.approx(entry["epsilon_known_cohorts_mean_participations"], abs=1e-7)


@pytest.mark.parametrize("entry", of_kind("tree", "banded", "blt"), ids=lambda entry: str(entry["participates_in"]))
def test_correlated_noise(entry: dict[str, Any]) -> None:
    chosen, rounds = mechanism(entry), entry["rounds"]
    starts = blocks(rounds, entry.get("restart"))
    taken = participations(rounds, *entry["participates_in"])
    sens = sensitivities(chosen, taken, starts)[0, -1]
    assert sens == pytest.approx(entry["sensitivity"], abs=EXACT)
    assert gaussian.epsilon(sens / entry["z"], entry["delta"]) == pytest.approx(entry["epsilon_exact"], abs=EXACT)
    assert separation(taken).tolist() == [entry["separation"]]
    assert sens <= entry["worst_sensitivity"] + EXACT  # of all clients with as many participations, as far apart


@given(st.floats(1e-3, 60), st.sampled_from([1e-3, 1e-5, 1e-8]))
def test_epsilon_and_delta_are_inverse(mu: float, delta: float) -> None:
    epsilon = float(gaussian.epsilon(mu, delta))
    assert float(gaussian.delta(epsilon, mu)) <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert float(gaussian.delta(epsilon, mu)) == pytest.approx(delta, rel=1e-6)
        assert gaussian.mu(epsilon, delta) == pytest.approx(mu, rel=1e-6)


def test_nothing_is_spent_without_participation() -> None:
    assert gaussian.epsilon([0.0, 0.1], 1e-5).tolist()[0] == 0.0


@given(st.integers(1, 70))
def test_a_tree_costs_one_participation_its_depth(rounds: int) -> None:
    sens = sensitivities(Tree(), np.eye(rounds), blocks(rounds))
    assert max(sens[:, -1] ** 2) == pytest.approx(math.ceil(math.log2(rounds + 1)))


@given(st.integers(1, 6), st.lists(st.integers(0, 4), max_size=4))
def test_participations_as_far_apart_as_bands_add_up(bands: int, gaps: list[int]) -> None:
    taken = np.cumsum([0, *(bands + gap for gap in gaps)])
    rounds = int(taken[-1]) + bands + 1
    c = square_root(bands)
    sens = sensitivities(Banded(c), participations(rounds, *taken), blocks(rounds))[0, -1]
    assert sens**2 == pytest.approx(len(taken) * np.sum(np.square(c)))


CHOSEN = {
    "independent": Independent(),
    "tree": Tree(),
    "banded": Banded([1.0, 0.5, 0.375]),
    "blt": Blt([0.9, 0.4], [0.2, 0.25]),
}


@pytest.mark.parametrize("chosen", CHOSEN.values(), ids=CHOSEN)
@given(st.integers(1, 7), st.sampled_from([None, 2, 3]), st.data())
def test_no_updates_cost_more_than_equal_ones(chosen: Mechanism, rounds: int, restart: int | None, data: Any) -> None:
    """Brute force over the signs of updates of length 1."""
    drawn = data.draw(st.sets(st.integers(0, rounds - 1), min_size=1, max_size=5))
    until = data.draw(st.integers(1, rounds))
    C = matrix(chosen, rounds, restart)[:until, :until]
    taken = [t for t in sorted(drawn) if t < until]
    signs = itertools.product((-1, 1), repeat=len(taken))
    worst = max(np.linalg.norm(C[:, taken] @ np.array(each)) for each in signs)
    found = sensitivities(chosen, participations(rounds, *drawn), blocks(rounds, restart))
    assert found[0, until - 1] == pytest.approx(worst, abs=1e-12)


@pytest.mark.parametrize("chosen", CHOSEN.values(), ids=CHOSEN)
@pytest.mark.parametrize("restart", [None, 5])
def test_noise_is_the_inverse_of_the_strategy(chosen: Mechanism, restart: int | None) -> None:
    rounds, size, nodes = 13, 3, dict[Any, Any]()
    rng, starts = np.random.default_rng(0), blocks(13, restart)
    last: list[Any] = []

    def draw(*key: int) -> Any:
        last.append(nodes.setdefault(key or len(last), rng.standard_normal(size)))
        return last[-1]

    x, nu = [], []
    for t, start in enumerate(starts.tolist()):
        state = chosen.state(size) if t == start else state  # noqa: F821
        last.clear() if isinstance(chosen, Tree) else None
        x.append(chosen.noise(draw, start, t - start, state))
        nu.append(last[0] if isinstance(chosen, Tree) else last[-1])
    np.testing.assert_allclose(matrix(chosen, rounds, restart) @ np.array(x), np.array(nu), atol=1e-12)


def test_the_default_coefficients_are_the_square_root_of_sums() -> None:
    C = matrix(Banded(square_root(9)), 9)
    np.testing.assert_allclose(C @ C, np.tril(np.ones((9, 9))), atol=1e-12)


@pytest.mark.parametrize(
    ("chosen", "error"),
    [
        (Independent(), 14.2),
        (Tree(), 11.4),
        (Banded(square_root(8)), 6.6),
        (Banded(square_root(16)), 5.6),
        (Banded(square_root(80)), 7.0),
    ],
    ids=["independent", "tree", "banded-8", "banded-16", "full"],
)
def test_coupled_noise_leaves_less_error_in_sums(chosen: Mechanism, error: float) -> None:
    """At equal privacy of a client that takes part in every 16th of 80 rounds; the table in the documentation."""
    C, sums = matrix(chosen, 80), np.tril(np.ones((80, 80)))
    sens = sensitivities(chosen, participations(80, *range(0, 80, 16)), blocks(80))[0, -1]
    assert sens * np.linalg.norm(sums @ np.linalg.inv(C)) / math.sqrt(80) == pytest.approx(error, abs=0.05)


def test_separations() -> None:
    taken = np.concatenate([participations(9), participations(9, 4), participations(9, 0, 5, 8)])
    assert separation(taken).tolist() == [9, 9, 3]
