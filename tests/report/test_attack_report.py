"""The figure of a report on how often an attack succeeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from synthetic_runs import finish_again, write_run

from fedtide.records import frames
from fedtide.report.sections.kept import success


def attacked(root: Path, label: str, seed: int, level: float) -> Path:
    """A run of four rounds that is evaluated after the second and the last one."""
    path = write_run(root, label, seed=seed, sessions=1, rounds=4, every=2)
    history = pd.read_csv(path / "history.csv").assign(attack_success=[np.nan, level, np.nan, level + 0.25])
    history.to_csv(path / "history.csv", index=False)
    finish_again(path)
    return path


def test_success_of_an_attack_by_round(tmp_path: Path) -> None:
    honest = write_run(tmp_path, "fedprox", sessions=1, rounds=4)
    runs = [attacked(tmp_path, "fedavg", seed, 0.5 * seed) for seed in (0, 1)]
    assert success(frames.load([honest])) is None
    chart = success(frames.load([*runs, honest]))
    assert chart is not None
    (line,) = chart.panels[0].series
    assert (line.x.tolist(), line.y.tolist()) == ([2.0, 4.0], [0.25, 0.5])
    assert (line.low.tolist(), line.high.tolist()) == ([0.0, 0.25], [0.5, 0.75])
