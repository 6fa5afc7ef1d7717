"""The experiments with drift: the planted table, and their scripts on small worlds."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import fedtide
from fedtide.core import plugins
from fedtide.settings.params import Params

Script = Callable[..., str]
FOLDER = Path(__file__).parents[2] / "experiments/drift"


@pytest.fixture(autouse=True)
def own_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The experiment's data sets are at hand."""
    monkeypatch.setenv("FEDTIDE_PLUGINS", str(FOLDER / "plugins"))


def functions(name: str) -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / f"{name}.py"))


def small(name: str, *labels: str) -> dict[str, Any]:
    """An experiment with four clients and eight rounds, three of them under drift."""
    settings: dict[str, Any] = yaml.safe_load((FOLDER / name / f"{name}.yaml").read_text())
    settings["scenario"] |= {"num_clients": 4, "rounds": 8}
    settings["drift"] |= {"start": 2, "until": 5}
    settings["data"] |= {"samples": 80, "tested": 100}
    settings["compare"] |= {"algorithms": list(labels), "seeds": [0, 1]}
    return settings


@pytest.mark.parametrize("apart", [0.0, 30.0, 90.0, 140.0, 180.0])
def test_accuracy_of_a_turned_rule_is_what_its_points_give(apart: float) -> None:
    found = functions("plugins/data/planted")
    data = found["Planted"](found["Planted"].Settings(angle=apart, tested=200_000)).read(Path())
    known = (data.test_inputs[:, 0] > 0).long()
    assert (known == data.tables[1][0]).double().mean().item() == pytest.approx(found["accuracy"](4.0, 0.0), abs=4e-3)
    assert (known == data.tables[1][1]).double().mean().item() == pytest.approx(found["accuracy"](4.0, apart), abs=4e-3)


@pytest.mark.slow
def test_the_best_single_model_is_between_the_rules() -> None:
    planted = functions("planted")
    bayes, accuracy = planted["planted"]["accuracy"](4.0, 0.0), planted["planted"]["accuracy"]
    lost = {(world.angle, world.share): planted["one_model"](world, 4.0) for world in planted["WORLDS"]}
    assert lost[0, 0.0] == lost[180, 1.0] == pytest.approx(0, abs=1e-9)
    assert lost[180, 0.5] == pytest.approx(100 * (bayes - 0.5))
    assert lost[90, 0.5] == pytest.approx(100 * (bayes - accuracy(4.0, 45.0)))


@pytest.mark.slow
def test_rates_are_searched_and_regrets_written(here: Path, script: Script) -> None:
    file, out = Path("planted.yaml"), Path("out")
    settings = small("planted", "fedavg", "feddrift", "true_concepts")
    settings["compare"]["seeds"] = [0]
    file.write_text(yaml.safe_dump(settings))
    plan = {"default": {"local.lr": [1e-6, 0.2]}, "grids": {"feddrift": {"delta": [0.1, 0.5]}}, "first": 3}
    plan |= {"as": {"true_concepts": "fedavg"}, "seeds": [5], "shorter": {"scenario.rounds": 6}}
    Path("search.yaml").write_text(yaml.safe_dump(plan))
    script("drift/search.py", "planted.yaml", "out")
    best = yaml.safe_load((out / "best.yaml").read_text())
    rates = pd.read_csv(out / "rates.csv").set_index("label")
    assert best["algorithms"]["fedavg"] == {"with": {"local": {"lr": 0.2}}}
    assert best["algorithms"]["true_concepts"] == {"name": "ifca", "assign": "concept", "with": {"local": {"lr": 0.2}}}
    assert best["algorithms"]["feddrift"]["delta"] == rates.loc["feddrift"].set_index("delta")["accuracy"].idxmax()
    assert best["scenario"]["rounds"] == 8
    script("drift/planted.py", "out")
    regret = pd.read_csv(out / "regret.csv").set_index(["angle", "share", "label", "span"])["mean"]
    assert len(regret) == 6 * (3 * 4 + 1)
    assert regret[0, 0.0, "fedavg", "drift"] == regret[0, 0.0, "true_concepts", "drift"]
    assert regret[90, 0.5, "fedavg", "drift"] != regret[0, 0.0, "fedavg", "drift"]


@pytest.mark.slow
def test_spans_and_curves_are_those_of_the_runs(here: Path, script: Script) -> None:
    file = Path("params.yaml")
    file.write_text(yaml.safe_dump(small("planted", "fedavg", "ifca")))
    history = fedtide.compare(Params.read(file), workers=1).history
    script("drift/table.py", "params.yaml", "out", "compare.seeds=[0, 1]")
    table = pd.read_csv("out/accuracy.csv", header=[0, 1], index_col=0)
    one = history[history["label"] == "ifca"]
    under = one[one["round"].between(3, 5)].groupby("seed")["served_accuracy_mean"].mean()
    assert table.loc["ifca", ("under", "mean")] == pytest.approx(100 * under.mean(), abs=0.05)
    assert table.loc["ifca", ("under", "std")] == pytest.approx(100 * under.std(), abs=0.05)
    above = pd.read_csv("out/above.csv", index_col=["span", "label"])
    plain = history[(history["label"] == "fedavg") & history["round"].between(3, 5)].groupby("seed")[
        "client_accuracy_mean"
    ]
    assert above.loc[("under", "ifca"), "difference"] == pytest.approx(100 * (under - plain.mean()).mean(), rel=0.01)
    curves = pd.read_csv("out/curves.csv")
    assert curves.groupby("label").size().to_dict() == {"fedavg": 8, "ifca": 8}


@pytest.mark.slow
def test_the_protocol_ends_with_what_clients_are_served_after_the_last_round(here: Path, script: Script) -> None:
    settings = small("planted", "fedavg", "ifca") | {
        "partition": {"name": "dirichlet_client"},
        "model": {"name": "softmax_regression"},
        "algorithms": {"ifca": {"clusters": 2}, "fedccfa": {}},
    }
    Path("best.yaml").write_text(yaml.safe_dump(settings))
    few = ["data={name: digits}", "scenario.num_clients=10", "scenario.rounds=4", "evaluation.every=2"]
    few += ["evaluation.clients_every=2", "compare.seeds=[0]"]
    script("drift/protocol.py", "best.yaml", "out", *few)
    table = pd.read_csv("out/accuracy.csv", index_col=["population", "alpha", "drift", "label"])
    assert (len(table), set(table["count"])) == (2 * 2 * 4 * 2, {1})
    history = fedtide.load("runs").history
    last = history[history["label"].str.startswith("ifca") & (history["round"] == 4)]["served_accuracy_mean"]
    assert len(last) == 16
    assert 100 * last.mean() == pytest.approx(table["mean"].xs("ifca", level="label").mean(), abs=0.01)
    means = table["mean"].drop(["none", "recurrent"], level="drift").groupby("label").mean()
    above = pd.read_csv("out/above.csv", index_col="label").loc["ifca"].set_index("population")
    assert above.loc["all", "difference"] == pytest.approx(means["ifca"] - means["fedavg"], abs=0.02)
    assert (len(above), set(above["pairs"])) == (9, {1})


def test_accuracy_around_changes_that_nobody_present_has_seen() -> None:
    """Sessions of three rounds; labels change in the fourth and the tenth round."""
    accuracy = [0.1, 0.5, 0.9, 0.3, 0.8, 0.9, 0.4, 0.9, 0.9, 0.2, 0.6, 0.7]
    session = [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    found = functions("sessions")["measures"](pd.DataFrame({"test_accuracy": accuracy, "session": session}), 3, 6)
    means = {"before": 100 * (0.5 + 0.78) / 2, "dip": 25.0, "rounds": 1.0, "recovered": 50.0}
    assert found == pytest.approx(means | {"first": 20.0, "mean": 50.0, "final": 66.0})


@pytest.mark.slow
def test_returning_populations_are_compared_in_every_world(here: Path, script: Script) -> None:
    settings: dict[str, Any] = yaml.safe_load((FOLDER / "sessions/sessions.yaml").read_text())
    settings["scenario"] |= {"num_devices": 3, "num_sessions": 4, "rounds_per_session": 10}
    settings["model"], settings["local"]["mean_epochs"] = {"name": "softmax_regression"}, 1
    settings["compare"] |= {"algorithms": ["fedavg"], "initializers": ["previous", "oracle"], "seeds": [0]}
    Path("sessions.yaml").write_text(yaml.safe_dump(settings))
    script("drift/sessions.py", "sessions.yaml", "out")
    rates = pd.read_csv("out/rates.csv").set_index("lr")["accuracy"]
    assert rates.index.tolist() == [0.1, 0.3, 1.0, 3.0]
    table = pd.read_csv("out/accuracy.csv", header=[0, 1], index_col=[0, 1, 2])
    assert table.index.unique(0).tolist() == ["at starts", "between", "nothing drifts"]
    settings["drift"]["start"], settings["local"]["lr"] = 25, float(rates.idxmax())
    runs = fedtide.compare(Params(settings), workers=1).history.set_index(["initializer", "round"])["test_accuracy"]
    for name in ("previous", "oracle"):
        row, accuracy = table.loc[("between", "fedavg", name)], 100 * runs[name]
        assert row["first", "mean"] == pytest.approx(accuracy[31], abs=0.06)
        assert row["mean", "mean"] == pytest.approx(accuracy.loc[31:].mean(), abs=0.06)
        assert row["final", "mean"] == pytest.approx(accuracy.loc[36:].mean(), abs=0.06)
        assert row["dip", "mean"] == pytest.approx(accuracy.loc[26:].min(), abs=0.06)


@pytest.mark.parametrize("name", ["fmnist", "planted"])
def test_every_method_has_as_many_trials(here: Path, name: str) -> None:
    plan = yaml.safe_load((FOLDER / name / "search.yaml").read_text())
    params = Params.read(FOLDER / name / f"{name}.yaml")
    labels = params.experiment.compare.algorithms
    counts = pd.Series([label for label, _ in functions("search")["trials"](labels, plan)]).value_counts()
    assert set(counts) == {5 if name == "fmnist" else 8}
    assert not set(plan["seeds"]) & set(params.experiment.compare.seeds)
    assert plan["shorter"].keys() & {"data.draw", "data.held_out"}
    assert {run.drift.name for run in params.grid()} == {"window"}
    assert "fashion_part" in plugins.names("data")
