"""What is measured in a session: windows of rounds, time to accuracy, costs, gains."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.core.errors import SettingsError
from fedtide.records.measures.sessions import Session
from fedtide.studies.reproduce.history import History
from fedtide.studies.reproduce.measures import BestRound, BestRounds, Learning, Quantity, Recovery, TransitionAccuracy

curves = st.lists(st.floats(0, 100), min_size=1, max_size=12)


def session(accuracy, gradient_rounds=0.0, latency=2.0, energy=500.0):
    """A session whose gradient rounds cost as much as others and are paid with the first round."""
    rounds = len(accuracy)
    cost = np.ones(rounds)
    cost[0] += gradient_rounds
    return Session(np.array(accuracy, dtype=float), gradient_rounds, latency * cost, energy * cost, 0.25 * cost)


def recover(own, reference, share=0.9):
    measure = Recovery(share=share)
    return dict(zip(map(tuple, measure.quantities), measure.measure(own, reference), strict=True))


def test_a_window_is_the_mean_of_the_first_evaluated_rounds_and_never_longer_than_the_session():
    assert TransitionAccuracy(windows=(3,)).measure(session([10, math.nan, 30]), session([0])) == [20]
    measure = TransitionAccuracy(windows=(1, 2, 10))
    assert measure.measure(session([10, 20, 60]), session([0])) == pytest.approx([10, 15, 30])
    assert measure.quantities[:2] == [Quantity("accuracy", "1 round"), Quantity("accuracy", "2 rounds")]


def test_the_best_round_beside_what_a_run_ends_with():
    measure = BestRound(last=2, kappa=True)
    assert measure.measure(session([10, 90, math.nan, 40, 20]), session([0])) == [90, 30, 20, 0.25]
    assert [quantity.title.rpartition(", ")[2] for quantity in measure.quantities] == [
        *("best round", "last 2 rounds", "last round", "kappa")
    ]
    assert measure.center(np.array([1.0, 2.0, 6.0])) == 3


@given(curves, st.integers(1, 20))
def test_no_window_beats_the_best_round(curve, last):
    best, mean, final = BestRound(last=last).measure(session(curve), session([0]))
    assert best == max(curve)
    assert mean <= best + 1e-9
    assert final <= best


@given(curves)
def test_the_reference_against_itself(curve):
    found = recover(session(curve, 1.0), session(curve, 1.0))
    assert found["gain", ""] == 0
    assert found["speedup", ""] == found["speedup", "gradient rounds counted"] == 1
    assert 1 <= found["rounds", ""] <= len(curve)


@given(curves, st.floats(-50, 50))
def test_a_constant_gap_gains_its_area(curve, gap):
    other = [value - gap for value in curve]
    assert recover(session(other), session(curve))["gain", ""] == pytest.approx(gap * len(curve), abs=1e-9)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=9), st.floats(0.1, 0.9))
def test_a_higher_target_is_never_reached_sooner(pairs, low):
    own, reference = zip(*pairs, strict=True)
    high = low + 0.1
    rounds = [recover(session(own), session(reference), share)["rounds", ""] for share in (low, high)]
    assert rounds[0] <= rounds[1]


def test_costs_are_those_of_a_round_times_the_rounds_with_and_without_gradient_rounds():
    # Chang et al., Table VII: 150 rounds against 1; with one gradient round 150 against 2.
    slow, fast = session([50] * 149 + [95], latency=113.585), session([95] * 150, 1.0, latency=113.585, energy=1429.0)
    found = recover(slow, fast)
    assert found["rounds", ""] == 150
    assert found["latency", ""] == pytest.approx(150 * 113.585)
    assert found["speedup", ""] == 150
    assert found["speedup", "gradient rounds counted"] == 75
    own = recover(fast, fast)
    assert own["rounds", "gradient rounds counted"] == 2
    assert own["energy", ""] == pytest.approx(1.429)
    assert own["energy", "gradient rounds counted"] == pytest.approx(2 * 1.429)


def test_a_method_that_never_gets_there():
    found = recover(session([1, 2]), session([90, 90]))
    assert found["rounds", ""] == found["latency", ""] == found["energy", ""] == found["speedup", ""] == math.inf


def test_seeds_are_averaged_or_their_median_is_taken():
    values = np.array([1.0, 2.0, 6.0])
    assert TransitionAccuracy().center(values) == 3
    assert Recovery().center(values) == 2
    assert Recovery().center(np.array([1.0, 2.0, math.inf])) == 2


def test_a_history_is_cut_into_sessions(tmp_path):
    (tmp_path / "history.csv").write_text(
        "round,session,test_accuracy,gradient_rounds,latency,energy\n"
        "1,1,0.1,0,1,10\n2,1,0.2,0,1,10\n3,2,,2,3,30\n4,2,0.4,2,1,10\n5,3,0.5,3,2,20\n"
    )
    history = History(tmp_path)
    second = history.session(2)
    np.testing.assert_allclose(second.score, [math.nan, 40])
    assert (second.gradient_rounds, history.session(1).gradient_rounds, history.session(3).gradient_rounds) == (2, 0, 1)
    assert second.latency.tolist() == [3, 1]
    with pytest.raises(SettingsError, match="no session 4: the runs have 3 sessions"):
        history.session(4)


def test_the_best_rounds_wherever_they_are():
    curve = dataclasses.replace(session([50, 90, math.nan, 70, 80]), information_loss=0.25)
    assert BestRounds(rounds=2).measure(curve, curve) == [85]
    measure = BestRounds(rounds=9, information_loss=True)
    assert measure.measure(curve, curve) == pytest.approx([72.5, 0.25])
    assert [quantity.name for quantity in measure.quantities] == ["accuracy", "information_loss"]


def test_the_last_measured_loss_of_a_session(tmp_path):
    (tmp_path / "history.csv").write_text("round,session,test_accuracy\n1,1,0.5\n")
    assert math.isnan(History(tmp_path).session(1).information_loss)
    rows = [f"{t},{1 + t // 4},0.5,{'0.5' if t == 2 else ''}" for t in range(1, 7)]
    (tmp_path / "history.csv").write_text("\n".join(["round,session,test_accuracy,information_loss", *rows, ""]))
    history = History(tmp_path)
    assert history.session(1).information_loss == 0.5
    assert math.isnan(history.session(2).information_loss)


def test_costs_that_were_not_recorded_are_nan(tmp_path):
    (tmp_path / "history.csv").write_text("round,session,test_accuracy\n1,1,0.5\n")
    only = History(tmp_path).session(1)
    assert only.gradient_rounds == 0
    assert math.isnan(recover(only, only)["latency", ""])
    (tmp_path / "history.csv").write_text("round,accuracy\n1,0.5\n")
    with pytest.raises(SettingsError, match="no column 'session'"):
        History(tmp_path)


def learn(own, reference, **settings):
    measure = Learning(**settings)
    values = measure.measure(session(own), session(reference))
    return dict(zip((quantity.name for quantity in measure.quantities), values, strict=True))


def test_learning_is_the_last_rounds_and_the_first_that_reaches_the_target():
    found = learn([10, 97.5, 40, 60], [10, 20, 30, 98], last=2, target=97)
    assert found == {"accuracy": 50, "spread": 10, "rounds": 2, "speedup": 2}


def test_a_target_never_reached_is_infinitely_far_and_counts_with_all_rounds_in_the_speed_up():
    found = learn([10, 20, 30], [10, 99, 99], target=97)
    assert (found["rounds"], found["speedup"]) == (math.inf, pytest.approx(2 / 3))
    assert learn([10, 98, 98, 98], [10, 20, 30, 40], target=97)["speedup"] == 2


@given(curves, curves)
def test_speed_ups_of_two_runs_are_inverse(first, second):
    both = learn(first, second, target=50)["speedup"] * learn(second, first, target=50)["speedup"]
    assert both == pytest.approx(1)


def test_without_a_target_no_run_is_needed_beside():
    assert learn([10, 20], [0], last=1) == {"accuracy": 20, "spread": 0}
    assert Learning().reference_run("fedssg", "previous") is None
    assert Learning(target=97).reference_run("fedssg", "previous") == ("fedavg", "previous")
