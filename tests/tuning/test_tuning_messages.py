"""What a search refuses: one line each, before any run."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from searches import search

from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params

Make = Callable[..., Params]
INTERVALS = {"communication": "intervals"}
WARM = {"local": {"steps": 2, "batch_size": 128, "momentum": 0.9}}


def between(key: str, low: float = 0.1, high: float = 1) -> dict[str, Any]:
    return {"space": {key: {"low": low, "high": high}}}


def among(key: str, *choices: Any) -> dict[str, Any]:
    return {"space": {key: {"choices": list(choices)}}}


@pytest.mark.parametrize(
    ("tune", "others", "message"),
    [
        # samplers and pruners
        ({"sampler": 3}, {}, r"tune\.sampler: should be tpe, gp, .*, got 3"),
        ({"pruner": "hyper"}, {}, r"tune\.pruner: unknown name 'hyper'; did you mean 'hyperband'"),
        ({"sampler": "cmaes", "cost": "kappa"}, {}, "sampler = cmaes supports a single objective"),
        ({"sampler": {"startup": 3}}, {}, r"^tune\.sampler = tpe has no argument 'startup'; did you mean 'n_startup_trials'\?"),
        ({"sampler": {"name": "grid", "points": 1}}, {}, r"^tune\.sampler = grid: points = 1 should lie between 2 and 1000$"),
        ({"sampler": {"n_startup_trials": 0, "n_ei_candidates": 0}}, {}, r"^tune\.sampler = tpe: "),
        ({"pruner": "percentile"}, {}, r"^tune\.pruner = percentile: .*missing .* 'percentile'$"),
        ({"pruner": {"name": "percentile", "percentile": 101}}, {}, r"^tune\.pruner = percentile: .*101"),
        ({"pruner": {"name": "hyperband", "min_resource": 5}}, {}, "min_resource = 5 is more than the 4 rounds of a run"),
        ({"sampler": "cmaes", **among("local.nesterov", True, False)}, WARM, "has choices, but it supports only ranges"),
        ({"sampler": "cmaes", **between("local.lr")}, WARM, "requires ranges of at least two settings"),
        # ranges
        (between("local.lrr"), {}, r"tune.space: unknown setting 'local.lrr'; did you mean 'lr'\?"),
        (between("local"), {}, "tune.space: local is not a number"),
        (between("local.epochs", 0.5, 2), {}, "tune.space: local.epochs is an integer, but its range is 0.5 to 2"),
        (between("local.lr", -1), {}, "local.lr = -1.0: should be greater than 0"),
        (between("seed", 0, 5), {}, "tune.space: seed cannot be searched, since it only changes the random seed"),
        (between("uplink.clp.bound"), {"uplink": ["clip"]}, r"unknown setting 'uplink\.clp\.bound'; did you mean 'clip'"),
        (between("uplink.clip"), {"uplink": ["clip"]}, r"tune\.space: uplink\.clip is not a number"),
        (between("local.lr"), {"initializers": {"previous": {"with": {"local": {"lr": 0.5}}}}}, "it is fixed elsewhere at 0.5"),
        ({"space": {"local.lr": 0.1}}, {}, r"local.lr: should be like {low: 0.1, high: 1.0} or {choices:"),
        ({"space": {"local.lr": {"choices": [0.1, 0.2], "low": 0.1}}}, {}, r"unknown key 'tune.space.local.lr.low'"),
        # choices
        (among("communication.intervals", "a", "h-a"), INTERVALS, r"'h-a' should be like a, a-g or a\*"),
        (among("communication.budget.beta", 0.5, 2), INTERVALS, "beta = 2: should be less than or equal to 1"),
        (among("communication.budget", "fix", "dynamic"), INTERVALS, "communication.budget is neither a string nor a number"),
        (among("local.nesterov", 0, 1), {}, "local.nesterov = 0: should be a valid boolean"),
        (among("local.lr", 0.1), {}, r"tune.space.local.lr.choices: should be a list of two values or more, got \[0.1\]"),
        (among("local.lr", 0.1, 0.2, 0.1), {}, "tune.space.local.lr.choices: lists 0.1 twice"),
        (among("local.lr", 0.1, [0.2]), {}, r"tune.space.local.lr.choices: should be words, numbers, .* got \[0.2\]"),
        # rounds, metrics and seeds
        ({"seeds": [3, 4, 3]}, {}, "tune: seeds lists 3 twice"),
        ({"metric": "finetuned_accuracy_mean"}, {}, r"finetuned_accuracy_mean requires evaluation\.finetune_steps > 0"),
        ({"metric": "erased_excess"}, {}, "erased_excess requires a request to erase clients; set erase"),
        ({"metric": "validation_accuracy_next"}, {}, r"^tune\.metric: there is no next period .+ next_period: 1$"),
        ({"until": 2}, {}, r"^tune\.until = 2: sessions are not periods of the data; use scenario calendar$"),
        ({"over": "changes"}, {}, r"^tune\.over = 'changes': there is no session change after the pilot; use end$"),
        ({"over": "drifts"}, {}, r"^tune\.over = 'drifts': there is no concept drift; use end, or set drift$"),
        ({"over": "periods"}, {}, r"^tune\.over = 'periods': sessions are not periods .* use scenario calendar$"),
        ({}, {"validation": 0.0}, "validation = 0: a study requires a validation share > 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_searched_is_one_line(
    params: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Any, others: Any, message: str
) -> None:
    monkeypatch.setattr("fedtide.core.extras.require", lambda *_: None)
    with pytest.raises(SettingsError, match=message) as refusal:
        search(params(tune, **others), tmp_path)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "runs").exists()


def test_a_missing_package_is_one_line(params: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cmaes", None)
    wanted = (
        r"^tune\.sampler = cmaes requires a package that is not installed \(cmaes\); .*: pip install '\.\[tuning\]'$"
    )
    with pytest.raises(SettingsError, match=wanted):
        search(params({"sampler": "cmaes"}), tmp_path)
    assert list(tmp_path.iterdir()) == []
