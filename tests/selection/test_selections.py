"""Selections of the group: the program of DynaComm, its comparators, and what all of them promise."""

import itertools
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.randomness import Randomness
from fedtide.methods.selection.base import Candidates, Floats, divergence
from fedtide.methods.selection.brute_force import optimum
from fedtide.methods.selection.dynacomm import best_group
from fedtide.methods.selection.label_private import turn

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "dynamicfl.json").read_text(encoding="utf-8"))
tables = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).negative_binomial(0.5, 0.05, (7, 4)).astype(np.float64) + np.eye(7, 4)
)
"""Label counts of seven clients, four classes, all different in size."""


def selection(name: str, **values: Any) -> Any:
    cls = plugins.load("selection", name)
    return cls(cls.Settings(name=name, **values))


def candidates(
    counts: Floats, eligible: Any = None, most: int = 99, size: int | None = None, seed: int = 0
) -> Candidates:
    """Active clients that are the whole population."""
    eligible = np.arange(len(counts)) if eligible is None else np.array(eligible)
    table = torch.from_numpy(np.array(counts, dtype=np.float64))
    slots = [SimpleNamespace(name="head.weight", start=0, stop=table.shape[1])]
    r: Any = SimpleNamespace(
        t=3,
        problem=SimpleNamespace(randomness=Randomness(seed), layout=SimpleNamespace(parameters=slots)),
        label_counts=table,
        n=table.sum(1, keepdim=True),
        w=None,
        services=SimpleNamespace(
            population_counts=lambda: table, full_gradient=lambda w: table / table.sum(1, keepdim=True)
        ),
    )
    return Candidates(r, eligible, min(most, len(eligible)), size)


def golden(case: dict[str, Any], size: int | None = None, orders: Any = None) -> tuple[list[int], float]:
    """The group that the program finds in a golden instance, over all of its orders or some."""
    counts = np.array(case["counts"], dtype=np.float64)
    affordable = [m for m in case["active"] if case["budgets"][m] >= case["k_high"]]
    visits = np.array([[m for m in order if m in affordable] for order in orders or case["shuffles"]])
    score = partial(divergence, population=counts.sum(0) / counts.sum())
    return best_group(counts, score, visits, case["budget_high"] // case["k_high"], size)


@pytest.mark.parametrize("case", GOLDEN["dynacomm"])
def test_dynacomm_finds_the_golden_groups(case: dict[str, Any]) -> None:
    found, value = golden(case)
    assert found == case["selected"]
    assert value == pytest.approx(case["kl"], abs=1e-12)
    for order, wanted in zip(case["shuffles"], case["per_shuffle"], strict=True):
        found, value = golden(case, orders=[order])
        assert found == wanted["selected"]
        assert value == pytest.approx(wanted["kl"], abs=1e-12)
    for size, wanted in case["by_size"].items():
        found, value = golden(case, int(size))
        assert found == wanted["selected"]
        assert value == pytest.approx(wanted["kl"], abs=1e-12)


@pytest.mark.parametrize("case", GOLDEN["dynacomm"])
def test_brute_force_finds_the_golden_optima(case: dict[str, Any]) -> None:
    counts = np.array(case["counts"], dtype=np.float64)
    population = counts.sum(0) / counts.sum()
    eligible = [m for m in case["active"] if case["budgets"][m] >= case["k_high"]]
    most = min(case["budget_high"] // case["k_high"], len(eligible))
    instances = [(range(1, most + 1), case["optimum"])]
    instances += [([int(size)], wanted["optimum"]) for size, wanted in case["by_size"].items()]
    for sizes, wanted in instances:
        found, value = optimum(counts[eligible], population, sizes)
        assert [eligible[row] for row in found] == wanted["selected"]
        assert value == pytest.approx(wanted["kl"], abs=1e-12)


def test_the_program_is_a_heuristic() -> None:
    case = GOLDEN["dynacomm_by_size_witness"]
    counts = np.array(case["counts"], dtype=np.float64)
    population = np.array(case["global_distribution"])
    score = partial(divergence, population=population)
    found, value = best_group(counts, score, np.array(case["shuffles"]), len(counts), case["size"])
    assert found == case["selected"]
    assert value == pytest.approx(case["kl"], abs=1e-12)
    assert optimum(counts, population, [case["size"]]) == (case["optimum"]["selected"], case["optimum"]["kl"])


@given(tables, st.integers(1, 7))
@settings(max_examples=20, deadline=None)
def test_more_orders_never_hurt_and_nobody_beats_brute_force(counts: Floats, most: int) -> None:
    """Nor does it matter in which units samples are counted."""
    c = candidates(counts, most=most)

    def value(rows: list[int], table: Floats = counts) -> float:
        return float(divergence(table[rows].sum(0), c.population))

    best = value(selection("brute_force").choose(c))
    one, ten = (value(selection("dynacomm", orders=number).choose(c)) for number in (1, 10))
    assert best - 1e-12 <= ten <= one + 1e-12
    assert best - 1e-12 <= value(selection("genetic", repeats=1, generations=20).choose(c))
    again = candidates(8 * counts, most=most)
    assert selection("dynacomm").choose(again) == selection("dynacomm").choose(c)


@given(tables)
@settings(max_examples=20, deadline=None)
def test_the_optimum_is_what_a_plain_enumeration_finds(counts: Floats) -> None:
    population = counts.sum(0) / counts.sum()
    groups = [list(g) for size in (1, 2, 3) for g in itertools.combinations(range(7), size)]
    values = [float(divergence(counts[g].sum(0), population)) for g in groups]
    assert optimum(counts, population, range(1, 4))[1] == pytest.approx(min(values), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", plugins.names("selection"))
def test_every_selection_keeps_to_what_can_be_afforded(name: str) -> None:
    counts = np.random.default_rng(1).integers(1, 30, (9, 5)).astype(np.float64)
    eligible = [0, 2, 3, 5, 8]
    for most, size in ((5, None), (2, None), (5, 4), (1, 1)):
        found = selection(name).choose(candidates(counts, eligible, most, size))
        assert found == sorted(set(found))
        assert set(found) <= set(eligible)
        assert len(found) == size if size else 1 <= len(found) <= most
        assert found == selection(name).choose(candidates(counts, eligible, most, size))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=10), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_one_client_of_each_class_is_enough(classes: list[int], most: int) -> None:
    """K = 1: a doubled set of classes is as close as a single one, and ties go to the smaller group."""
    counts = 500.0 * np.eye(6)[classes]
    population = np.full((1, 6), 500.0)
    c = candidates(counts, most=most)
    object.__setattr__(c.r.services, "population_counts", lambda: torch.from_numpy(population))
    assert len(selection("dynacomm").choose(c)) == min(len(set(classes)), most)


def test_zero_counts_and_classes_nobody_has() -> None:
    population = np.array([0.5, 0.5, 0.0])
    assert divergence(np.array([2.0, 2.0, 0.0]), population) == 0
    assert divergence(np.array([3.0, 0.0, 0.0]), population) == pytest.approx(np.log(2))
    assert divergence(np.array([0.0, 1.0, 1.0]), population) == np.inf


def test_a_random_group_of_any_client_is_equally_likely() -> None:
    counts = np.ones((6, 2))
    drawn = np.zeros(6)
    for seed in range(300):
        drawn[selection("random").choose(candidates(counts, most=2, seed=seed))] += 1
    assert abs(drawn - 100).max() < 40


def test_the_genetic_search_finds_the_optimum_of_ten_clients() -> None:
    counts = np.random.default_rng(2).dirichlet(np.full(5, 0.3), 10) * 500
    c = candidates(counts, size=5)
    found = selection("genetic").choose(c)
    assert found == selection("brute_force").choose(c)


def test_a_genetic_search_that_finds_no_group_of_a_legal_size_takes_the_first_clients() -> None:
    """Two individuals of twelve bits, one generation, one client at most: all are far too big."""
    counts = np.random.default_rng(2).dirichlet(np.full(5, 0.3), 12) * 500
    small = selection("genetic", population=2, generations=1, repeats=1)
    for size in (None, 2):
        found = small.choose(candidates(counts, most=1 if size is None else 12, size=size))
        assert len(found) == (size or 1)


def test_too_many_groups_are_refused() -> None:
    with pytest.raises(
        SettingsError,
        match=r"communication\.selection\.limit = 100: 511 groups of 9 clients exceed it; raise it, or use another selection",
    ):
        selection("brute_force", limit=100).choose(candidates(np.ones((9, 2))))


def test_without_labels_everybody_together_points_the_right_way() -> None:
    """With u_m := c_m / |D_m| the sum of all is at distance 0, and it is what is chosen if sizes cost nothing."""
    counts = np.random.default_rng(3).dirichlet(np.full(4, 0.2), 6) * 100
    assert turn(counts.sum(0), counts.sum(0)) == pytest.approx(0, abs=1e-12)
    c = candidates(counts)
    del c.r.label_counts  # it must not look
    found = selection("label_private", sketch=200).choose(c)
    assert found == list(range(6))
