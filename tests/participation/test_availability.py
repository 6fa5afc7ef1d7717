"""Availability models: long-run shares, lengths of stays, waves, turns, and who is drawn of those available."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtide.core import plugins
from fedtide.world.participation import dpfl_reference
from fedtide.world.participation._available import Available, client_shares, draw_label_chances, label_shares
from fedtide.world.participation.base import coins
from fedtide.world.participation.heterogeneous import Heterogeneous
from fedtide.world.participation.markov import from_mean_on, from_stability
from fedtide.world.participation.time_dependent import TimeDependent, chances
from fedtide.world.timeline import Timeline
from support import deal, steady, timeline

GOLDEN = json.loads((Path(__file__).parent / "availability_models.json").read_text(encoding="utf-8"))
SHARES = (0.3, 0.5, 0.8)
MODELS = ("heterogeneous", "time_dependent", "markov", "alternating", "least_recently_selected", "dpfl_reference")


def model(name: str, world: Timeline | None = None, labels: Any = None, seed: int = 0, **chosen: Any) -> Any:
    """A model, by default of three clients with one sample of every class each, for 40 rounds."""
    cls: Any = plugins.load("participation", name)
    made = cls(cls.Settings(**chosen))
    world = world or steady((3, 3, 3), 40)
    made.bind(world, np.arange(sum(map(len, world.shards))) % 3 if labels is None else np.array(labels), seed)
    return made


def given(name: str, clients: int = 100, rounds: int = 40, **chosen: Any) -> Any:
    """A model of many clients that have the availabilities above, a third each."""
    world = steady((1,) * 3 * clients, rounds)
    return model(name, world, shares="given", values=SHARES * clients, **chosen)


def history(rule: Available, rounds: int) -> Any:
    """Who is available when, bool [N, rounds]."""
    return np.stack([rule.states(t) for t in range(rounds)], axis=1)


def stays(row: Any) -> list[int]:
    """Lengths of the stays in a row of states that begin and end within it."""
    runs = [(on, len(list(run))) for on, run in groupby(row.tolist())]
    return [length for on, length in runs[1:-1] if on]


def assert_share(row_means: Any, expected: Any, correlation: float = 0.0, samples: int = 1) -> None:
    """Means of 0-1 chains within three and a half standard errors."""
    error = np.sqrt(np.maximum(expected * (1 - expected), 1e-12) / samples * (1 + correlation) / (1 - correlation))
    assert (np.abs(row_means - expected) < 3.5 * error).all()


@pytest.mark.parametrize("case", GOLDEN["patterns"][1:], ids=lambda case: case["pattern"])
def test_patterns_of_dpfl(case: dict[str, Any]) -> None:
    """The permanent ones are scenarios; the first one is everybody in every round."""
    shape, expected = (case["clients"], case["rounds"]), [[c == "1" for c in row] for row in case["rows"]]
    if case["pattern"] == "round-robin":
        found = dpfl_reference.round_robin(*shape, case["interval"], case["step"], case["overlap"])
    elif case["pattern"] in ("random", "markov"):
        found = getattr(dpfl_reference, case["pattern"])(*shape, case["seed"])
        rule = model("dpfl_reference", steady((1,) * shape[0], shape[1]), seed=case["seed"], pattern=case["pattern"])
        assert np.array_equal(history(rule, shape[1]), found)
        assert rule.stationary().tolist() == found.mean(1).tolist()
    else:
        cls: Any = plugins.load("scenarios", case["pattern"].replace("-", "_"))
        names = {key: case[key] for key in ("rounds", "start", "initial", "interval", "step") if key in case}
        found = cls(cls.Settings(num_clients=case["clients"], **names)).present()
    assert found.tolist() == expected


def test_an_empty_round_of_dpfl_gets_one_client_and_leaves_the_chain_alone() -> None:
    """One client: its chain is off about half of the time, but it takes part in every round."""
    alone = dpfl_reference.markov(1, 50, 0)
    assert alone.all()
    assert dpfl_reference.random(2, 200, 0).any(0).all()


@pytest.mark.parametrize("case", GOLDEN["chains"])
def test_chains(case: dict[str, float]) -> None:
    pi = np.array([case["share"]])
    chain = from_mean_on(pi, case["mean_on"]) if "stability" not in case else from_stability(pi, case["stability"])
    found = {
        "stay": chain.stay,
        "come": chain.come,
        "mean_on": 1 / (1 - chain.stay),
        "eigenvalue": chain.stay - chain.come,
    }
    for name, value in found.items():
        assert float(value[0]) == pytest.approx(case[name], abs=1e-9)
    assert float((chain.come / (1 - chain.stay + chain.come))[0]) == pytest.approx(case["share"], abs=1e-12)


@pytest.mark.parametrize("case", GOLDEN["dynamics"]["rounds"], ids=lambda case: f"{case['kind']}-{case['t']}")
def test_dynamics(case: dict[str, Any]) -> None:
    base = np.array(GOLDEN["dynamics"]["shares"]) @ np.array(GOLDEN["dynamics"]["u"])
    assert base == pytest.approx(GOLDEN["dynamics"]["base"], abs=1e-9)
    names = {key: case[key] for key in ("gamma", "period") if key in case}
    chosen = TimeDependent.Settings(dynamics=case["kind"], **names)
    phase = np.full(len(base), case.get("phase", 0.0))
    assert chances(chosen, base, case["t"], phase) == pytest.approx(case["p"], abs=1e-9)


def test_shares_by_label() -> None:
    """Client 0 holds classes 0, 0, 1; client 1 classes 2, 2; client 2 nothing. With given u_c the average is exact."""
    world, labels = timeline(deal((3, 2, 0)), [{0: 0, 1: 1, 2: 2}]), [0, 0, 1, 2, 2]
    assert label_shares(world, np.array(labels)) == pytest.approx(np.array([[2 / 3, 1 / 3, 0], [0, 0, 1], [0, 0, 0]]))
    rule = model("heterogeneous", world, labels, shares="labels", values=(0.9, 0.3, 0.5))
    assert rule.stationary() == pytest.approx([0.7, 0.5, 0.0])
    drawn = model("heterogeneous", world, labels, shares="labels", seed=4)
    assert drawn.stationary() == pytest.approx(label_shares(world, np.array(labels)) @ draw_label_chances(3, 4))
    smallest = model("heterogeneous", world, labels, shares="smallest_label", lowest=0.2)
    assert smallest.stationary()[:2] == pytest.approx([0.2, 1.0])


def test_data_that_changes_counts_every_shard_once() -> None:
    """Client 0 holds shard 0 twice and then shard 1."""
    world = timeline(deal((2, 2)), [{0: 0}, {0: 0}, {0: 1}])
    assert label_shares(world, np.array([0, 0, 1, 2])) == pytest.approx(np.array([[1 / 2, 1 / 4, 1 / 4]]))


def test_label_chances_are_halved_for_the_second_half() -> None:
    drawn = np.stack([draw_label_chances(5, seed) for seed in range(400)])
    for c, end in enumerate((1, 1, 0.5, 0.5, 0.5)):
        assert drawn[:, c].max() < end
        assert abs(drawn[:, c].mean() - end / 2) < 3.5 * end / np.sqrt(12 * 400)


@pytest.mark.parametrize(
    ("chosen", "mean", "variance"),
    [
        ({"shares": "range", "lowest": 0.2}, 0.6, 0.64 / 12),
        ({"shares": "beta", "beta": (2.0, 3.0)}, 0.4, 0.04),
        ({"shares": "two_groups"}, 0.5, 0.0),
    ],
)
def test_laws_of_the_shares(chosen: dict[str, Any], mean: float, variance: float) -> None:
    world = steady((1,) * 2000, 1)
    found = client_shares(Heterogeneous.Settings(**chosen), world, np.zeros(2000, dtype=np.int64), 0)
    assert abs(found.mean() - mean) <= 3.5 * np.sqrt(variance / 2000) + 1e-12
    assert found.min() >= chosen.get("lowest", 0)
    assert found.max() <= 1


@pytest.mark.parametrize(
    ("name", "chosen", "correlation"),
    [
        ("heterogeneous", {}, 0.0),
        ("markov", {"stability": 0.6}, 0.6),
        ("markov", {"stability": -0.2}, -0.2),
        ("time_dependent", {"dynamics": "stationary"}, 0.0),
    ],
)
def test_shares_and_lengths_of_stays(name: str, chosen: dict[str, Any], correlation: float) -> None:
    """10^5 rounds of clients in each of three groups, against the closed forms, within 3.5 standard errors."""
    clients, rounds = 100, 1000
    rule = given(name, clients, rounds, **chosen)
    states = history(rule, rounds)
    for group, pi in enumerate(SHARES):
        rows = states[group::3]
        assert_share(rows.mean(), pi, correlation, rows.size)
        stay = pi + correlation * (1 - pi)
        lengths = np.concatenate([stays(row) for row in rows])
        error = np.sqrt(stay) / (1 - stay) / np.sqrt(len(lengths))
        assert abs(lengths.mean() - 1 / (1 - stay)) < 3.5 * error + 1 / (1 - stay) ** 2 / rounds  # cut at both ends
        now, then = rows[:, :-1].ravel(), rows[:, 1:].ravel()
        assert abs(np.corrcoef(now, then)[0, 1] - correlation) < 3.5 / np.sqrt(rows.size)
    assert rule.stationary() == pytest.approx(np.tile(SHARES, clients))
    assert rule.participation_fraction(300) == pytest.approx(np.mean(SHARES))


def test_a_chain_that_is_always_on_stays_on_and_one_without_memory_is_independent_availability() -> None:
    always = model("markov", shares="given", values=(0.3, 0.5, 1.0), mean_on=4.0)
    assert history(always, 40)[2].all()
    chain, independent = given("markov", stability=0.0), given("heterogeneous")
    assert np.array_equal(history(chain, 40), history(independent, 40))


def test_a_chain_starts_from_its_long_run_law() -> None:
    """Over many seeds, the share on in the first round and in a later one is pi."""
    rules = [given("markov", 10, seed=seed) for seed in range(200)]
    for t in (0, 7):
        states = np.stack([rule.states(t) for rule in rules])
        for group, pi in enumerate(SHARES):
            assert_share(states[:, group::3].mean(), pi, 0.0, 2000)


@pytest.mark.parametrize("dynamics", ["sine", "staircase", "interleaved"])
def test_shares_of_waves(dynamics: str) -> None:
    """The mean of p_i(t) over a period of 20: pi (1 - gamma) for a sine, 0.7 pi for a staircase."""
    rule = model("time_dependent", dynamics=dynamics, shares="given", values=SHARES)
    assert rule.stationary() == pytest.approx(np.mean([rule.chances(t) for t in range(20)], axis=0))
    if dynamics != "interleaved":
        assert rule.stationary() == pytest.approx(0.7 * np.array(SHARES), abs=1e-12)


def test_phases() -> None:
    """Two groups half a period apart: what one has in round t the other has ten rounds later."""
    rule = model("time_dependent", shares="given", values=(0.5, 0.5, 0.5), phases="by_group")
    for t in range(20):
        assert rule.chances(t)[1] == pytest.approx(rule.chances(t + 10)[0])
    drawn = model("time_dependent", steady((1,) * 300, 1), phases="uniform").phase()
    assert 0 <= drawn.min() < 0.02 < 0.98 < drawn.max() < 1


@pytest.mark.parametrize(
    ("chosen", "share", "stay"),
    [
        ({"length": 10, "ratio": 0.5}, [10 / 15, 5 / 15], [10, 5]),
        ({"length": 10, "ratio": 0.25}, [10 / 12, 2 / 12], [10, 2]),
        ({"length": 12, "ratio": None, "blocks": 3}, [1 / 3] * 3, [4, 4, 4]),
        ({"length": 12, "blocks": 3}, [1 / 3] * 3, [4, 4, 4]),
    ],
)
def test_turns(chosen: dict[str, Any], share: list[float], stay: list[int]) -> None:
    """Exactly: the share of every block, how long each stays, and that one block is there at a time."""
    blocks, clients = len(share), 6
    rule = model("alternating", steady((1,) * clients, 60), **chosen)
    states = history(rule, 60)
    assert rule.stationary()[:: clients // blocks] == pytest.approx(share)
    assert states.mean(1)[:: clients // blocks] == pytest.approx(share)
    assert (states.sum(0) == clients // blocks).all()
    lengths = [set(stays(np.roll(row, 1))) for row in states[:: clients // blocks]]
    assert lengths == [{length} for length in stay]


def test_those_drawn_longest_ago_come_first() -> None:
    """Everybody there: in turns, by id. Client 4 joins in the third round and is drawn at once."""
    rule = model("least_recently_selected", steady((1,) * 5, 10), count=2)
    assert [rule.draw(np.arange(5), t, 0).tolist() for t in range(5)] == [[0, 1], [2, 3], [0, 4], [1, 2], [0, 3]]
    late = timeline(deal((1,) * 5), [{i: i for i in range(4 + (t >= 2))} for t in range(6)])
    rule = model("least_recently_selected", late, count=2)
    cohorts = [late.at(t).clients[rule.draw(late.at(t).clients, t, 0)].tolist() for t in range(6)]
    assert cohorts == [[0, 1], [2, 3], [0, 4], [1, 2], [0, 3], [1, 4]]


def test_the_oldest_are_chosen_among_those_available() -> None:
    """Against a replay by hand; and a rule asked for one late round alone gives the same."""
    world = steady((1,) * 20, 30)
    chosen = {"shares": "range", "lowest": 0.3, "count": 4, "choose": "oldest"}
    rule, last = model("heterogeneous", world, **chosen), np.full(20, -1)
    for t in range(30):
        here = np.flatnonzero(rule.states(t))
        expected = sorted(sorted(here, key=lambda i: (last[i], i))[:4])
        drawn = rule.draw(np.arange(20), t, 0)
        assert drawn.tolist() == expected
        last[drawn] = t
    fresh = model("heterogeneous", world, **chosen)
    assert fresh.draw(np.arange(20), 29, 0).tolist() == expected
    assert fresh.draw(np.arange(20), 3, 0).tolist() == rule.draw(np.arange(20), 3, 0).tolist()


def test_some_of_those_available_are_drawn_uniformly() -> None:
    """Two of those available, each equally often; the states do not change."""
    rule = model("alternating", steady((1,) * 8, 4000), count=2, length=4000, ratio=None)
    cohorts = [rule.draw(np.arange(8), t, 0) for t in range(2000)]
    drawn = np.bincount(np.concatenate(cohorts), minlength=8)
    assert not drawn[4:].any()
    assert (np.abs(drawn[:4] - 1000) < 3.5 * np.sqrt(2000 / 4)).all()
    assert rule.participation_fraction(8) == 0.25


@pytest.mark.parametrize("name", MODELS)
def test_the_state_of_a_client_does_not_depend_on_the_others(name: str) -> None:
    world = steady((1,) * 12, 20)
    rule, other = model(name, world), model(name, world)
    some = np.array([1, 4, 5, 9])
    for t in (0, 3, 11, 2):
        states = rule.states(t)
        drawn = some[other.available(some, t)]
        if states[some].any():
            assert drawn.tolist() == some[states[some]].tolist()


def test_in_a_round_without_anybody_one_client_takes_part() -> None:
    """A chain that is off for everybody: one, drawn uniformly, and its chain stays off."""
    rule = model("markov", steady((1,) * 3, 3000), shares="given", values=(0.0, 0.0, 0.0))
    cohorts = [rule.draw(np.arange(3), t, 0).tolist() for t in range(1500)]
    assert {len(cohort) for cohort in cohorts} == {1}
    drawn = np.bincount(np.concatenate(cohorts))
    assert (np.abs(drawn - 500) < 3.5 * np.sqrt(1500 * 2 / 9)).all()
    assert not rule.states(1499).any()


def test_independent_rounds_without_anybody_are_drawn_again() -> None:
    rule, redrawn = model("heterogeneous", shares="given", values=(0.1, 0.05, 0.05)), 0
    for t in range(40):
        attempt = 0
        while not (here := coins(np.arange(3), t, 0, attempt) < np.array([0.1, 0.05, 0.05])).any():
            attempt += 1
        redrawn += attempt > 0
        assert rule.draw(np.arange(3), t, 0).tolist() == np.flatnonzero(here).tolist()
    assert redrawn > 10


def test_nobody_with_a_chance_is_one_drawn_uniformly() -> None:
    rule = model("time_dependent", dynamics="interleaved", shares="given", values=(0.2, 0.2, 0.2))
    assert not rule.chances(15).any()
    assert len(rule.draw(np.arange(3), 15, 0)) == 1
