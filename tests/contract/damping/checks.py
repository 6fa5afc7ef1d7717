"""Checks of the throw-away capability, run by ``test_new_kind.py`` in a copy of the project that has it."""

from typing import Any

import pytest
import torch

from federation.test_ranks import compare
from fedtide.authoring.rounds import assert_resumes
from fedtide.authoring.trial import Trial
from fedtide.core import plugins
from fedtide.core.errors import SettingsError
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
    assert_resumes((settings(local=LOCAL, damping=HALF), steady(SIZES, 3), vectors()))


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
