"""Checks of the throw-away capability, run by ``test_new_kind.py`` in a copy of the project that has it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from federation.test_ranks import compare
from fedtide.authoring.trial import Trial
from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.federation.state import restored_state
from fedtide.runs.open_run import modules
from support import assert_same, closest, deal, federation, run_rounds, settings, steady, timeline, vectors, watch

SIZES = (5, 4, 8, 3)
LOCAL: dict[str, Any] = {"epochs": 2, "batch_size": 3, "lr": 0.2}
HALF = {"name": "scale", "factor": 0.5}


def made(world: Any = None, **values: Any) -> Any:
    return federation(settings(**{"local": LOCAL, **values}), world or steady(SIZES, 3), vectors())


def test_what_is_lost_is_added_to_the_next_update() -> None:
    fed = made(damping=HALF)
    seen, lost = watch(fed), torch.zeros(len(SIZES), fed.parts.layout.size, dtype=torch.float64)
    state, records = run_rounds(fed)
    for (r, w), record in zip(seen, records, strict=True):
        whole = r.trained.W - r.w + lost
        lost = 0.5 * whole
        assert closest(w, r.w + (r.weights * 0.5 * whole).sum(0)) < 1e-14
        assert record.clients["lost"] == pytest.approx(lost.norm(dim=1).tolist(), rel=1e-12)
    assert closest(state.memory["damping.lost"], lost) < 1e-14


def test_the_plug_in_that_does_nothing_is_no_feature() -> None:
    plain, none = (run_rounds(made(**values)) for values in ({}, {"damping": "none"}))
    assert_same(plain[0], none[0])
    assert "lost" not in none[1][-1].clients


def test_a_client_that_leaves_loses_what_is_kept() -> None:
    everybody = {c: c for c in range(4)}
    fed = made(timeline(deal(SIZES), [everybody, {c: c for c in (0, 2, 3)}], clients=4), damping=HALF)
    state, _ = run_rounds(fed)
    assert state.memory["damping.lost"].any(dim=1).tolist() == [True, False, True, True]


def test_a_resumed_run_goes_on() -> None:
    whole, _ = run_rounds(made(damping=HALF))
    half, _ = run_rounds(made(damping=HALF), 1)
    fed = made(damping=HALF)
    assert_same(whole, run_rounds(fed, 2, restored_state(fed.parts, half.tensors()))[0])


def test_three_processes_compute_and_record_what_one_does() -> None:
    compare("fedavg", "threads", 3, LOCAL, communication=False, damping=HALF)


def test_it_is_refused_where_it_cannot_work_and_settings_name_what_there_is() -> None:
    with pytest.raises(SettingsError, match="mode: async may use two results"):
        made(damping=HALF, algorithm="fedbuff", mode="async")
    with pytest.raises(SettingsError, match="did you mean 'scale'"):
        settings(damping="scael")
    with pytest.raises(SettingsError, match=r"unknown key 'damping\.facter'"):
        settings(damping={"name": "scale", "facter": 0.3})


def test_its_code_and_settings_are_part_of_the_run() -> None:
    assert "fedtide.methods.damping.scale" in modules(settings(damping="scale"))
    assert settings(damping=HALF).canonical()["damping"] == HALF
    assert "damping" not in settings(damping="none").canonical()
    assert plugins.names("damping") == ["none", "scale"]
    assert Trial("damping", "scale").settings(factor=0.25).canonical()["damping"]["factor"] == 0.25


CALLBACK = """
import os, signal
import lightning as L

class Kill(L.Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        if pl_module.state.round == 3 and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_continues_to_the_same_records(tmp_path: Path) -> None:
    raw = {
        "damping": HALF,
        "model": "softmax_regression",
        "scenario": {"name": "static", "num_clients": 4, "rounds": 5},
        "checkpoint": {"every": 1},
        "engine": {"workers": 1, "precision": "64-true", "callbacks": [{"path": "kill:Kill"}]},
        "tracking": {"mlflow": False},
    }
    histories = []
    for name, codes in (("killed", [-signal.SIGKILL, 0]), ("whole", [0])):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "kill.py").write_text(CALLBACK)
        (folder / "params.yaml").write_text(yaml.safe_dump(raw))
        if name == "whole":
            (folder / "killed").touch()
        environment = {**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{folder}"}
        for code in codes:
            done = subprocess.run(
                [sys.executable, "-m", "fedtide", "run"], cwd=folder, env=environment, capture_output=True, check=False
            )
            assert done.returncode == code, done.stderr.decode()
        (history,) = (folder / "runs").glob("*/history.csv")
        (clients,) = (folder / "runs").glob("*/clients.csv")
        rows = [line.split(",") for line in history.read_text().splitlines()]
        seconds = rows[0].index("seconds")
        histories.append(([row[:seconds] + row[seconds + 1 :] for row in rows], clients.read_text()))
    assert histories[0] == histories[1]
    assert len(histories[0][0]) == 6
