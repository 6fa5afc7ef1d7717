"""Overrides that choose another plug-in, in a file, on the command line and in Python."""

import pytest

from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params

FILE = {
    "data": {"name": "digits", "mirror": "m", "root": "r"},
    "scenario": {"name": "sessions", "num_devices": 3},
    "partition": {"name": "dirichlet_session", "alpha": 0.3},
    "communication": {
        "name": "intervals",
        "selection": {"name": "dynacomm", "orders": 3},
        "budget": {"name": "fix", "beta": 0.4},
    },
    "mode": {"name": "async", "concurrency": 2},
    "local": {"optimizer": {"name": "adam", "beta1": 0.5}},
    "algorithm": {"name": "fedprox", "mu": 0.2, "weighting": "uniform"},
    "tune": {"sampler": {"name": "tpe", "n_startup_trials": 3}},
}
OTHERS = {
    "scenario": ("static", "num_devices = 3"),
    "communication": ("per_round", "selection = {name: dynacomm, orders: 3}, budget = {beta: 0.4, name: fix}"),
    "communication.budget": ("dynamic", "beta = 0.4"),
    "local.optimizer": ("sgd", "beta1 = 0.5"),
    "algorithm": ("scaffold", "mu = 0.2"),
    "tune.sampler": ("random", "n_startup_trials = 3"),
}


def group(settings, path):
    for key in path.split("."):
        settings = getattr(settings, key)
    return settings


@pytest.mark.parametrize("path", OTHERS)
def test_another_name_starts_with_its_defaults(path):
    name, dropped = OTHERS[path]
    params = Params.read(FILE, [f"{path}.name={name}"])
    chosen = group(params.experiment, path)
    assert chosen.name == name
    assert chosen.model_fields_set - {"weighting"} <= {"name"}
    before = group(Params.read(FILE).experiment, path).name
    assert params.remarks == [f"{path}.name = {name} drops the settings of {before} from settings: {dropped}"]


def test_what_all_plugins_of_a_kind_have_is_kept():
    params = Params.read(FILE, ["algorithm.name=fedavg", "data.name=cifar10"])
    assert params.run().algorithm.weighting.name == "uniform"
    assert (params.run().data.root, params.run().data.mirror) == ("r", "m")
    assert len(params.remarks) == 1


@pytest.mark.parametrize(
    "items", [["partition.name=dirichlet_session"], ["partition.name=natural", "partition.name=dirichlet_session"]]
)
def test_the_name_in_the_file_keeps_its_settings(items):
    params = Params.read(FILE, items)
    assert params.run().partition.alpha == 0.3
    assert params.remarks == []


def test_a_default_name_is_a_name():
    params = Params.read({"scenario": {"rounds": 7}}, ["scenario.name=static"])
    assert params.run().scenario.rounds == 7
    assert Params.read({"scenario": {"rounds": 7}}, ["scenario.name=sessions"]).remarks


@pytest.mark.parametrize("order", [1, -1])
def test_what_the_same_command_sets_is_kept_and_stays_strict(order):
    items = ["partition.name=dirichlet_client", "partition.alpha=0.7"][::order]
    assert Params.read(FILE, items).run().partition.alpha == 0.7
    with pytest.raises(SettingsError, match=r"^--set partition.alpha=0.7: unknown key 'partition.alpha'"):
        Params.read(FILE, ["partition.name=natural", "partition.alpha=0.7"][::order])


def test_the_mapping_given_is_not_changed():
    given = {"partition": {"name": "dirichlet_session", "alpha": 0.3}}
    Params.read(given, ["partition.name=natural", "local.lr=0.5"])
    assert given == {"partition": {"name": "dirichlet_session", "alpha": 0.3}}


def test_labels_and_their_with_can_choose_others_too():
    file = {**FILE, "algorithms": {"mine": {"name": "fedprox", "mu": 0.2, "with": {"partition": {"name": "natural"}}}}}
    params = Params.read(file, ["algorithms.mine.name=fedavg", "mode=sync"])
    assert params.remarks == ["algorithms.mine.name = fedavg drops the settings of fedprox from settings: mu = 0.2"]
    run = params.run("mine")
    assert (run.algorithm.name, run.partition.name, run.partition.model_fields_set) == ("fedavg", "natural", {"name"})
    again = Params.read(file, ["algorithms.mine.with.partition.name=iid", "mode=sync"]).run("mine")
    assert again.partition.name == "iid"


def test_a_plugin_given_by_its_name_alone_takes_settings():
    run = Params.read({"local": {"optimizer": "adam"}}, ["local.optimizer.beta1=0.5"]).run()
    assert (run.local.optimizer.name, run.local.optimizer.beta1) == ("adam", 0.5)
