"""Ranks, gains and their intervals, against numbers worked out by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params
from fedtide.studies.tide.board import board, read_rows
from fedtide.studies.tide.page import lines
from fedtide.studies.tide.scores import Row, score
from fedtide.studies.tide.suite import Limits, World
from fedtide.world.building.build import timeline_for
from fedtide.world.storage.prepared import load_data

RAW = {"compare": {"seeds": [0, 1, 2, 3]}, "scenario": {"name": "static", "num_clients": 4, "rounds": 30}, "validation": 0.1,
       "tune": {"metric": "validation_accuracy", "over": "end"}}  # fmt: skip
WORLDS = [World(name, RAW, Limits(file="", data="", timelines={}, bytes=1), "ours") for name in "abcd"]


def rows(**scores: dict[str, list[float]]) -> pd.DataFrame:
    """Scores by method, world and seed; bytes are ten times larger for methods other than fedavg."""
    return pd.DataFrame(
        Row(
            method,
            world,
            seed,
            "diverged" if value < 0 else "complete",
            max(value, 0.0),
            10 if method != "fedavg" else 1,
            5.0,
            1.0,
        )
        for method, found in scores.items()
        for world, values in found.items()
        for seed, value in enumerate(values)
    )


def test_a_constant_lead_has_no_width() -> None:
    base = {world: [0.1, 0.5, 0.3, 0.7] for world in "abcd"}
    more = {world: [value + 0.01 * place for value in values] for place, (world, values) in enumerate(base.items(), 1)}
    found = board(rows(fedavg=base, better=more, same=base), WORLDS).methods
    assert list(found.index) == ["better", "fedavg", "same"]
    assert found["rank"].tolist() == [1, 2.5, 2.5]
    # Of gains of 1, 2, 3 and 4 points the interquartile mean leaves out the first and the last.
    assert found.loc["better", ["gain", "gain_low", "gain_high"]].tolist() == pytest.approx([2.5, 2.5, 2.5])
    assert found.loc["better", ["better", "better_low", "better_high"]].tolist() == [1, 1, 1]
    assert found.loc["same", ["gain", "gain_low", "gain_high", "better"]].tolist() == [0, 0, 0, 0.5]
    assert found["bytes"].tolist() == [10, 1, 10]
    assert found["gradients"].tolist() == [1, 1, 1]


def test_intervals_are_those_of_the_mean_over_seeds() -> None:
    drawn = np.random.default_rng(0).normal(0.02, 0.03, (4, 4))
    base = {world: [0.5] * 4 for world in "abcd"}
    found = board(
        rows(fedavg=base, other={w: list(0.5 + d) for w, d in zip("abcd", drawn, strict=True)}), WORLDS
    ).methods
    line = found.loc["other"]
    means = np.sort(100 * drawn.mean(axis=1))
    assert line["gain"] == pytest.approx(means[1:3].mean())
    assert line["gain_low"] < line["gain"] < line["gain_high"]
    # The mean of one world has the standard error std / sqrt(n); half of the worlds are averaged.
    error = 100 * drawn.std(axis=1).mean() / 2 / np.sqrt(2)
    assert 1.2 * error < line["gain_high"] - line["gain_low"] < 2 * 1.96 * error * 1.8


def test_what_failed_scores_nothing_and_is_said() -> None:
    base = {world: [0.5] * 4 for world in "abcd"}
    partly = {**base, "a": [0.5, 0.5, 0.5, -1.0]}
    del partly["d"]
    found = board(rows(fedavg=base, other=partly), WORLDS)
    assert found.scores.loc["other"].tolist() == pytest.approx([37.5, 50, 50, 0])
    assert found.failed == {("other", "a"): "1 diverged", ("other", "d"): "no runs"}
    assert found.gains.loc["other"].tolist() == pytest.approx([-12.5, 0, 0, -50])
    assert lines(found)[0][0] == "fedavg"


def test_runs_that_are_missing_are_refused() -> None:
    base = {world: [0.5] * 4 for world in "abcd"}
    with pytest.raises(SettingsError, match="world b: method other is missing seeds 3"):
        board(rows(fedavg=base, other={**base, "b": [0.5] * 3}), WORLDS)
    with pytest.raises(SettingsError, match="compares with fedavg"):
        board(rows(other=base), WORLDS)


def test_a_table_of_scores_is_checked(tmp_path: Path) -> None:
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
    assert score(WORLDS[0], history, timeline) == pytest.approx((0.28 + 0.30) / 2)  # the last tenth of thirty rounds
    limited = replace(WORLDS[0], limits=WORLDS[0].limits.model_copy(update={"seconds": 21.0}))
    assert score(limited, history, timeline) == pytest.approx((0.06 + 0.08 + 0.10) / 3)
    assert score(limited, history[:1], timeline) == 0
