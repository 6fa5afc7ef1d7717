"""What counts as a transition, recovery after it, and what it costs; measures/sessions is tested in tests/reproduce."""

import json
import math

import numpy as np
import pytest
from synthetic_runs import changed, finish_again, write_run
from synthetic_sessions import ENERGY, LATENCY, START, curve, write_sessions

from fedtide.records.frames import load
from fedtide.report.tables.transitions import evaluated_sessions, per_session, transitions
from fedtide.settings.experiment import ReportSettings


@pytest.mark.parametrize(
    ("counting", "sessions", "counted"),
    [("stored", 7, [4, 5, 6, 7]), ("stored", 3, [2, 3]), ("all", 7, [2, 3, 4, 5, 6, 7])],
)
def test_which_sessions_of_a_run_count(tmp_path, counting, sessions, counted):
    records = load([write_sessions(tmp_path, "fedavg", "dynamic", 0, sessions=sessions)])
    assert evaluated_sessions(records, records.runs["key"][0], counting) == counted
    frame = transitions(records, ReportSettings(transition_counting=counting))
    assert frame["session"].tolist() == counted


@pytest.mark.parametrize(("period", "counted"), [("weekpart", [4, 5, 6, 7]), ("week", [2, 3, 4, 5, 6, 7])])
def test_periods_count_from_their_second_turn_on_where_they_recur(tmp_path, period, counted):
    path = write_sessions(tmp_path, "fedavg", "dynamic", 0)
    records = load([changed(path, {"scenario": {"name": "calendar", "period": period}})])
    assert evaluated_sessions(records, records.runs["key"][0], "stored") == counted


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Five initializers x 2 seeds, 7 sessions of 12 rounds: transitions by (initializer, seed, session)."""
    root = tmp_path_factory.mktemp("runs")
    frame = transitions(
        load([write_sessions(root, "fedavg", start, seed) for start in START for seed in (0, 1)]),
        ReportSettings(transition_window=6),
    )
    return frame.set_index(["initializer", "seed", "session"]).sort_index()


@pytest.mark.slow
def test_transitions_of_every_run(found):
    assert found.loc[("previous", 0)].index.tolist() == [4, 5, 6, 7]
    for (start, seed, session), row in found.iterrows():
        own, best = (curve(name, session, 12) + 0.001 * seed for name in (start, "dynamic"))
        before = curve(start, session - 1, 12)[-1] + 0.001 * seed
        assert row["accuracy"] == pytest.approx(own[:6].mean())
        assert row["start"] == START[start]
        assert row["dip"] == pytest.approx(before - START[start])
        assert row["gain"] == pytest.approx((best - own).sum())
        reached = np.flatnonzero(own >= 0.95 * best.max())
        assert row["rounds"] == (reached[0] + 1 if len(reached) else math.inf)


def test_gradient_rounds_count_on_their_side(found):
    """A round costs the same whatever it is for; the reference pays one more per session."""
    at = ("dynamic", 0, 5)
    assert (found["rounds_gradient"] - found["rounds"])[at] == 1
    assert found.loc[at, ["speed_up", "speed_up_gradient"]].tolist() == [1, 1]
    assert found.loc[at, "rounds"] == 1
    other = found.loc[("average", 0, 5)]
    assert other["rounds_gradient"] == other["rounds"] == 2 * other["speed_up_gradient"] == other["speed_up"]


def test_costs_are_rounds_times_a_round(found):
    for ending in ("", "_gradient"):
        assert found[f"latency{ending}"].tolist() == pytest.approx((LATENCY * found[f"rounds{ending}"]).tolist())
        assert found[f"energy{ending}"].tolist() == pytest.approx((ENERGY * found[f"rounds{ending}"]).tolist())


def test_never_there_is_never_paid(tmp_path):
    runs = [write_sessions(tmp_path, "fedavg", start, 0, rate=40.0) for start in ("dynamic", "previous")]
    rows = transitions(load(runs), ReportSettings(rho=1.0)).set_index(["initializer", "session"])
    assert (rows.loc["previous", ["rounds", "speed_up", "latency", "energy"]] == math.inf).all(axis=None)
    assert (rows.loc["dynamic", "rounds"] == 12).all()


def test_a_session_of_another_length_is_no_reference(tmp_path):
    lengths = {"dynamic": 12, "previous": 10}
    runs = [write_sessions(tmp_path, "fedavg", start, 0, rounds=rounds) for start, rounds in lengths.items()]
    rows = transitions(load(runs), ReportSettings()).set_index(["initializer", "session"])
    assert rows.loc["dynamic", ["rounds", "gain", "latency"]].notna().all(axis=None)
    assert rows.loc["previous", "accuracy"].notna().all()
    assert rows.loc["previous", ["rounds", "speed_up", "gain", "latency"]].isna().all(axis=None)


def test_over_seeds(found):
    table = per_session(found.reset_index()).set_index(["initializer", "session"])
    values = [found.loc[("average", seed, 6), "accuracy"] for seed in (0, 1)]
    assert table.loc[("average", 6), "accuracy_mean"] == pytest.approx(np.mean(values))
    assert table.loc[("average", 6), "accuracy_std"] == pytest.approx(np.std(values, ddof=1))
    assert table.loc[("average", 6), "seeds"] == 2
    assert len(table) == 5 * 4


def test_missing_records_stay_missing(tmp_path):
    frame = transitions(
        load([write_run(tmp_path, seed=seed, state=state) for seed, state in ((0, "complete"), (1, ""))]),
        ReportSettings(),
    )
    assert frame[["seed", "session"]].to_numpy().tolist() == [[0, 2]]
    assert frame["accuracy"].notna().all()
    assert frame[["start", "dip", "rounds", "gain", "latency"]].isna().all(axis=None)


def test_a_repeated_boundary_counts_once_and_a_torn_line_not_at_all(tmp_path):
    path = write_sessions(tmp_path, "fedavg", "dynamic", 0)
    again = {"event": "session", "session": 5, "test_accuracy": 0.25, "weights": {"2": 1.0}, "losses": {"start": None}}
    with (path / "events.jsonl").open("a") as stream:
        stream.write(json.dumps(again) + '\n{"event": "sess')
    finish_again(path)
    rows = load([path]).boundaries.set_index("session")
    assert rows.index.is_unique
    assert (rows.loc[5, "start_accuracy"], rows.loc[5, "mu"], rows.loc[5, "losses"]) == (0.25, {2: 1.0}, {})
    assert sorted(rows.loc[7, "mu"]) == [2, 3, 4, 5, 6]
    assert sum(rows.loc[7, "mu"].values()) == pytest.approx(1)
