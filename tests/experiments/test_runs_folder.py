"""Scripts that draw what is in a folder of runs, and those that train without records."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import fedtide
from fedtide.settings.params import Params

Script = Callable[..., str]


@pytest.mark.slow
def test_figures_of_gates_progress_and_momentum_are_drawn_where_runs_recorded_them(here: Path, script: Script) -> None:
    params = {
        "scenario": {"name": "static", "num_clients": 4, "rounds": 4},
        "participation": {"name": "fixed", "count": 2},
        "local": {"steps": 2},
        "evaluation": {"consistency": True},
        "algorithms": {"fedssg": {}, "fedwcm": {}},
        "compare": {"algorithms": ["fedssg", "fedwcm"], "seeds": [0]},
        "engine": {"workers": 1},
        "tracking": {"mlflow": False},
    }
    fedtide.compare(Params(params), workers=1)
    drawn = script("fedssg/participants.py", "runs", "report/fmnist").split()
    assert drawn == ["report/fmnist/gates.png", "report/fmnist/consistency.png"]
    drawn += script("fedwcm/dynamics.py", "runs", "report").split()
    assert drawn[2:] == ["report/momentum.png"]
    assert all(np.ptp(np.asarray(Image.open(file))) > 0 for file in drawn)


@pytest.mark.slow
def test_rates_of_the_noisy_quadratic_are_beside_the_published_ones(here: Path, script: Script) -> None:
    printed = [
        line.split() for line in script("cfl/quadratic.py", "--seeds", "1", "--curves", "figure2.csv").splitlines()
    ]
    published = pd.read_csv("experiments/cfl/table7_rates.csv", dtype=str).set_index(["setting", "method"])["rate"]
    curves = pd.read_csv("figure2.csv").groupby(["setting", "method"])["loss"]
    rows = {(f"{row[0]} {row[1]}", row[2]): row[3:] for row in printed[1:]}
    assert len(rows) == 24 == len(curves)
    for cell, (rate, *theirs, loss) in rows.items():
        assert 0.01 <= float(rate) <= 0.4
        assert theirs == ([published[cell]] if cell in published else [])
        assert float(loss) == pytest.approx(curves.get_group(cell).iloc[-10:].mean(), abs=1e-3)
    for setting in published.index.unique("setting"):
        (rate, _, fedavg), (_, _, fedprox), (larger, _, cfl) = (
            map(float, rows[setting, method]) for method in ("fedavg", "fedprox", "cfl")
        )
        assert cfl < min(fedavg, fedprox), setting
        if setting.startswith("BRD"):
            assert (larger > rate, cfl < 0.6 * fedavg) == (True, True)


@pytest.mark.slow
def test_the_bound_is_printed_session_by_session(here: Path, script: Script) -> None:
    """One local step: drift and what is sampled while drifting are nothing, and the descent bounds the gradients."""
    (here / "params.yaml").write_text(Path(__file__).parents[2].joinpath("params.yaml").read_text())
    chosen = [
        "algorithm=fedavg",
        "local.momentum=0",
        "local.steps=1",
        "scenario.num_sessions=3",
        "scenario.rounds_per_session=3",
    ]
    lines = script(
        "dynamic_init/bound.py", "params.yaml", *chosen, "local.batch_size=2000", "engine.workers=1"
    ).splitlines()
    rows = {line[:30].strip(): [float(cell) for cell in line.split()[-3:]] for line in lines[1:]}
    assert lines[0].split() == ["session", "1", "2", "3"]
    for name in ("Lambda", "(b) sampling, 1/D_k", "(c) sampling while drifting", "(d) drift"):
        assert rows[name] == [0, 0, 0]
    assert rows["bound"] == rows["(a) descent"]
    assert all(0 < mean <= bound for mean, bound in zip(rows["mean |grad F|^2"], rows["bound"], strict=True))
