"""Means, medians, worst worlds and intervals of small tables, against numbers worked out by hand."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params
from fedtide.studies.tide.board import board, half_width_of_mean, read_rows
from fedtide.studies.tide.page import NOT_APPLICABLE, gain_lines, lines, write
from fedtide.studies.tide.scores import Row, scores, untrained
from fedtide.studies.tide.suite import Limits, World
from fedtide.world.building.build import timeline_for
from fedtide.world.storage.prepared import load_data

RAW = {"compare": {"seeds": [0, 1, 2, 3]}, "scenario": {"name": "static", "num_clients": 4, "rounds": 30}, "validation": 0.1,
       "tune": {"metric": "validation_accuracy", "over": "end"}}  # fmt: skip
LIMITS = Limits(file="", data="", timelines={}, trivial=0.1, bytes=1)
WORLDS = [World(name, RAW, LIMITS, "ours") for name in "abcd"]
BASE = {world: [0.1, 0.5, 0.3, 0.7] for world in "abcd"}


def rows(**scores: dict[str, list[float]]) -> pd.DataFrame:
    """Scores by method, world and seed, negative ones of runs that diverged; only fedavg sends one byte, others ten."""
    return pd.DataFrame(
        Row(
            *(method, world, seed, "diverged" if value < 0 else "complete", abs(value)),
            *(math.nan if method == "local" else abs(value) / 2, 10 if method != "fedavg" else 1, 5.0, 1.0),
        )
        for method, found in scores.items()
        for world, values in found.items()
        for seed, value in enumerate(values)
    )


def ahead(**points: float) -> dict[str, list[float]]:
    """Scores of a method that is so many points ahead in these worlds at every seed."""
    return {world: [value + points[world] / 100 for value in BASE[world]] for world in points}


def test_a_constant_lead_has_no_width() -> None:
    """What a method and the reference share at a seed cancels."""
    found = board(rows(fedavg=BASE, better=ahead(a=1, b=2, c=3, d=10), worse=ahead(a=0, b=-3, c=0, d=1)), WORLDS)
    table = found.methods
    assert list(table.index) == ["better", "fedavg", "worse"]
    assert table.loc["better", ["mean", "mean_low", "mean_high"]].tolist() == pytest.approx([4, 4, 4])
    assert table.loc["worse", ["mean", "mean_low", "mean_high"]].tolist() == pytest.approx([-0.5, -0.5, -0.5])
    assert table["median"].tolist() == pytest.approx([2.5, 0, 0])
    assert table["worst"].tolist() == pytest.approx([1, 0, -3])
    assert table["worst_world"][["better", "worse"]].tolist() == ["a", "b"]
    for gains in (found.gains, found.low, found.high):
        assert gains.loc["better"].tolist() == pytest.approx([1, 2, 3, 10])
    assert table["bytes"].tolist() == [10, 1, 10]
    assert table["gradients"].tolist() == [1, 1, 1]
    assert found.global_scores.loc["fedavg", "a"] == pytest.approx(20)


def test_intervals_are_those_of_the_mean_over_seeds() -> None:
    drawn = np.random.default_rng(0).normal(0.02, 0.03, (4, 4))
    other = {world: list(np.array(BASE[world]) + d) for world, d in zip("abcd", drawn, strict=True)}
    found = board(rows(fedavg=BASE, other=other), WORLDS)
    for place, world in enumerate("abcd"):
        closed = stats.t.interval(0.95, 3, 100 * drawn[place].mean(), 100 * drawn[place].std(ddof=1) / 2)
        assert (found.low[world]["other"], found.high[world]["other"]) == pytest.approx(closed)
    line = found.methods.loc["other"]
    assert line["mean"] == pytest.approx(100 * drawn.mean())
    variances = 1e4 * drawn.var(axis=1, ddof=1) / 4  # of the means over four seeds
    width = stats.t.ppf(0.975, variances.sum() ** 2 / (variances**2 / 3).sum()) * np.sqrt(variances.sum()) / 4
    assert (line["mean_low"], line["mean_high"]) == pytest.approx((line["mean"] - width, line["mean"] + width))


@pytest.mark.slow
def test_the_interval_of_the_mean_covers_what_it_says() -> None:
    """Of worlds with five and ten seeds and spreads that differ, as those of the suite do; a bootstrap's covered 89 to 93 %."""
    rng, seeds, spreads = np.random.default_rng(1), [5, 5, 5, 10, 10, 10, 10, 10], [4, 1, 1, 1, 0.5, 2, 1, 1]
    many = 4000
    paired = {
        str(w): pd.DataFrame(rng.normal(0, s, (n, many))) for w, (n, s) in enumerate(zip(seeds, spreads, strict=True))
    }
    half, mean = (
        half_width_of_mean(paired),
        pd.DataFrame({name: each.mean() for name, each in paired.items()}).mean(axis=1),
    )
    assert 0.94 <= (mean.abs() <= half).mean() <= 0.97


def test_a_method_that_a_world_refuses_has_no_overall_number() -> None:
    found = board(rows(fedavg=BASE, partly=ahead(a=30, b=30, c=30), worse=ahead(a=-9, b=-9, c=-9, d=-9)), WORLDS)
    assert list(found.methods.index) == ["fedavg", "worse", "partly"]
    assert found.methods.loc["partly", ["mean", "mean_low", "mean_high", "median", "worst"]].isna().all()
    assert found.methods.loc["partly", "bytes"] == 10
    assert found.gains.loc["partly"].tolist() == pytest.approx([30, 30, 30, np.nan], nan_ok=True)
    assert lines(found)[-1][1:4] == [NOT_APPLICABLE] * 3
    assert gain_lines(found)[-1] == ["partly", "+30.0", "+30.0", "+30.0", NOT_APPLICABLE]


def test_what_diverged_counts_with_its_score_and_is_said(tmp_path: Path) -> None:
    table = rows(fedavg=BASE, other=ahead(a=0, b=0, c=0) | {"a": [0.1, 0.5, 0.3, -0.1]})
    table = pd.concat([table, pd.DataFrame(untrained("other", WORLDS[3]))])
    assert table["score"].tolist()[-4:] == [0.1] * 4
    found = board(table, WORLDS)
    assert found.diverged == {("other", "a"): 1, ("other", "d"): 4}
    assert found.gains.loc["other"].tolist() == pytest.approx([-15, 0, 0, -30])
    assert found.methods.loc["other", "mean"] == pytest.approx(-45 / 4)
    assert found.methods.loc["other", "bytes"] == 10  # of complete runs
    assert gain_lines(found)[-1][1] == "\N{MINUS SIGN}15.0*"
    page = write(found, table, tmp_path, "ours").read_text()
    assert "4 diverged" in page
    assert len(read_rows(tmp_path / "scores.csv")) == 32


def test_references_are_below_the_methods_and_have_a_mean(tmp_path: Path) -> None:
    table = rows(fedavg=BASE, local=ahead(a=9, b=9, c=9, d=9), partly=ahead(a=0, b=0))
    found = board(table, WORLDS)
    assert list(found.methods.index) == ["fedavg", "partly", "local"]
    assert found.methods["line"].tolist() == [False, False, True]
    assert found.methods.loc["local", "mean"] == pytest.approx(9)
    assert found.global_scores.loc["local"].isna().all()
    page = write(found, table, tmp_path, "ours").read_text()
    assert page.count('<tr class="line">') == 3


def test_runs_that_are_missing_are_refused() -> None:
    with pytest.raises(SettingsError, match="world b: method other is missing seeds 3"):
        board(rows(fedavg=BASE, other={**BASE, "b": [0.5] * 3}), WORLDS)
    with pytest.raises(SettingsError, match="compares with fedavg"):
        board(rows(other=BASE), WORLDS)


def test_a_table_of_scores_is_checked(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "scores.csv").empty
    found = rows(fedavg={"a": [0.5, 0.5]})
    found.to_csv(tmp_path / "scores.csv", index=False)
    assert len(read_rows(tmp_path / "scores.csv")) == 2
    for bad in (found.rename(columns={"seed": "sed"}), pd.concat([found, found])):
        bad.to_csv(tmp_path / "scores.csv", index=False)
        with pytest.raises(SettingsError, match="and every run once"):
            read_rows(tmp_path / "scores.csv")


def test_evaluations_count_until_the_seconds_are_spent() -> None:
    params = Params(RAW)
    timeline = timeline_for(params.run(), load_data(params.run()))
    history = [
        {"round": str(number), "latency": "2.0", "test_accuracy": f"{number / 100}" if number % 2 == 0 else ""}
        for number in range(1, 31)
    ]
    last_tenth = (0.28 + 0.30) / 2
    assert scores(WORLDS[0], 0, history, timeline) == pytest.approx([last_tenth] * 2)
    limited = replace(WORLDS[0], limits=LIMITS.model_copy(update={"seconds": {0: 21.0, 1: 99.0}}))
    assert scores(limited, 0, history, timeline) == pytest.approx([(0.06 + 0.08 + 0.10) / 3] * 2)
    assert scores(limited, 0, history[:1], timeline) == (None, None)


def test_the_global_model_is_scored_in_the_same_rounds_by_the_metric_of_the_world() -> None:
    raw = RAW | {"evaluation": {"metrics": ["balanced_accuracy"], "clients_every": 1},
                 "tune": {"metric": "served_accuracy_mean", "over": "end"}}  # fmt: skip
    params = Params(raw)
    timeline = timeline_for(params.run(), load_data(params.run()))
    names = ("client_accuracy_mean", "test_accuracy", "test_balanced_accuracy", "served_accuracy_mean")
    history = [{"round": str(number), names[0]: "0.9", names[1]: "0.7", names[2]: "0.5"} for number in range(1, 31)]
    world = World("long", raw, LIMITS, "ours")
    assert scores(world, 0, history, timeline) == pytest.approx([0.9, 0.5])
    served = [line | {names[3]: "0.95", names[2]: ""} for line in history]
    assert scores(world, 0, served, timeline) == (pytest.approx(0.95), None)
