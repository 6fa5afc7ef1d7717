"""Whatever changes a run's key reaches the stage that executes the run, and nothing else does."""

import contextlib
from typing import Literal, get_args, get_origin

import pytest

from fedtide.cli import stages
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import SettingsModel
from fedtide.runs.open_run import run_key
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.world.storage.prepared import load_data

BASE = {
    "scenario": {"name": "sessions", "num_devices": 3, "num_sessions": 2, "rounds_per_session": 2},
    "local": {"momentum": 0.5},
    "evaluation": {"clients_every": 2, "finetune_steps": 1},
}
OTHERS = {  # plug-ins, and values of settings for which none can be made up
    "data": {"name": "two_rules"},
    "scenario": {**BASE["scenario"], "num_devices": 4},
    "partition": {"name": "iid"},
    "drift": {"name": "sudden"},
    "participation": {"name": "bernoulli"},
    "model": {"name": "softmax_regression"},
    "objective": {"name": "focal"},
    "algorithm": {"name": "fedprox"},
    "initializer": {"name": "average"},
    "communication": {"name": "intervals"},
    "detector": {"name": "ddm"},
    "mode": {"name": "async"},
    "uplink": [{"name": "top_k", "fraction": 0.3}],
    "downlink": {"name": "top_k", "fraction": 0.3},
    "aggregation": {"name": "median"},
    "attack": {"name": "sign_flip", "share": 0.3},
    "erase": [{"name": "rollback", "clients": [1], "at": 2}],
    "long_tail.order": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
    "local.optimizer": {"name": "adam"},
    "evaluation.splits": ["test", "validation"],
    "evaluation.metrics": ["auroc"],
    "evaluation.models": ["global", "all"],
    "evaluation.clients_every": 4,
    "costs.clock_factors": [0.5, 1.0],
    "engine.callbacks": [{"path": "lightning.pytorch.callbacks:Timer"}],
    "label": "mine",
    "initializer_label": "mine",
}
TOGETHER = {"local.optimizer": {"momentum": 0.0}}


def leaves(settings, prefix=""):
    """Dotted keys of all fields, and what each holds and may hold."""
    for name, field in type(settings).model_fields.items():
        key, value = prefix + name, getattr(settings, name)
        if isinstance(value, SettingsModel) and key not in OTHERS:
            yield from leaves(value, f"{key}.")
        else:
            yield key, value, field.annotation


def others(key, value, annotation):
    """Other values that a setting might take."""
    if key in OTHERS:
        return [OTHERS[key]]
    kinds = (annotation, *get_args(annotation))
    listed = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind) if choice != value]
    if listed:
        return listed
    if isinstance(value, bool):
        return [not value]
    return [0.5, 2] if value is None else [value + 1, value / 2]


def changed(key, value):
    """The base settings with one setting changed."""
    raw = {group: dict(values) for group, values in BASE.items()}
    group, _, name = key.partition(".")
    if name:
        raw[group] = {**raw.get(group, {}), name: value, **TOGETHER.get(key, {})}
    else:
        raw[group] = value
    return raw


def made(params, out):
    """Digits of the run keys of the grid and of a trial, and the files of the inputs by name."""
    trial = params.run(seed=params.experiment.tune.run_seeds[0])
    keys = [run_key(run, load_data(run)).rpartition("-")[2] for run in (*params.grid(), trial)]
    stages.inputs(params, [trial], out)
    return keys, {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.json")}


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    return made(Params(BASE), tmp_path_factory.mktemp("before"))


LEAVES = list(leaves(Params(BASE).run()))


def test_all_settings_of_a_run_are_changed():
    assert {key.partition(".")[0] for key, _, _ in LEAVES} == set(RunSettings.model_fields)
    assert OTHERS.keys() <= {key for key, _, _ in LEAVES}


@pytest.mark.parametrize(("key", "value", "annotation"), LEAVES, ids=[key for key, _, _ in LEAVES])
def test_a_setting_reaches_training_and_search_if_it_changes_the_key_of_their_runs(
    key, value, annotation, before, tmp_path
):
    for other in others(key, value, annotation):
        with contextlib.suppress(SettingsError):
            after = Params(changed(key, other))
            break
    else:
        raise AssertionError(f"no other value of {key} is valid")
    keys, files = made(after, tmp_path)
    differs = {name for name, content in files.items() if content != before[1][name]}
    assert ("algorithms/fedavg.json" in differs) == (keys[0] != before[0][0])
    assert ("search.json" in differs) == (keys[1] != before[0][1])


@pytest.mark.parametrize(
    ("changes", "reached"),
    [
        (
            {"algorithms": {"fedavg": {"with": {"uplink": [{"name": "clip"}]}}}},
            {"algorithms/fedavg.json", "search.json"},
        ),
        ({"algorithms": {"fedprox": {"mu": 0.5}}}, set()),
        ({"compare": {"workers": 2, "allow_failures": True}, "tracking": {"mlflow": False}}, set()),
        ({"report": {"title": "Another"}}, {"report.json"}),
        ({"tune": {"trials": 3}}, {"search.json"}),
        ({"world_seed": 3}, {"algorithms/fedavg.json", "search.json", "worlds.json"}),
    ],
)
def test_a_change_elsewhere_reaches_what_it_concerns(changes, reached, before, tmp_path):
    _, files = made(Params({**BASE, **changes}), tmp_path)
    assert {name for name, content in files.items() if content != before[1][name]} == reached
