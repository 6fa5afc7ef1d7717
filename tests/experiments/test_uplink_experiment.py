"""The experiments with updates on their way, on small worlds."""

import runpy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "experiments/uplink"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, with the experiment's link at hand."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDTIDE_PLUGINS", str(FOLDER / "plugins"))
    return tmp_path


def small(here: Path, name: str, *labels: str) -> Path:
    """Settings of an experiment on digits, of some methods, one seed and twelve rounds in three sessions."""
    settings: dict[str, Any] = yaml.safe_load((FOLDER / "settings" / f"{name}.yaml").read_text())
    settings["data"] = {"name": "digits"}
    settings["scenario"] |= {"num_sessions": 3, "rounds_per_session": 4, "rounds_pilot": 4}
    settings["model"], settings["local"]["epochs"] = {"name": "softmax_regression"}, 2
    settings["evaluation"] |= {"every": 2, "clients_every": 2}
    settings["compare"] |= {"algorithms": list(labels), "seeds": [0]}
    (here / f"{name}.yaml").write_text(yaml.safe_dump(settings))
    return here / f"{name}.yaml"


@pytest.mark.slow
def test_what_is_kept_of_newcomers_and_attackers(here: Path) -> None:
    script = runpy.run_path(str(FOLDER / "newcomers.py"))
    every = script["main"].__globals__["ATTACKS"]
    script["main"].__globals__["ATTACKS"] = {name: every[name] for name in ("none", "sign_flip")}
    script["main"](small(here, "newcomers_fmnist", "newcomer_aware_clip", "median"), here / "out", [])
    kept = pd.read_csv(here / "out/kept.csv").set_index(["attack", "label", "group"])["mean"]
    assert 0 < kept["sign_flip", "median", "Attackers"] != 1
    assert kept["none", "newcomer_aware_clip", "Newcomers"] > 1  # whose bound is the upper one
    accuracy = pd.read_csv(here / "out/accuracy.csv").set_index(["attack", "label"])
    assert len(accuracy) == 4
    assert accuracy["newcomers"].notna().all()
    assert {"Newcomers"} <= set(pd.read_csv(here / "out/ages.csv")["group"]) <= {"Newcomers", "Returners"}


@pytest.mark.slow
def test_what_compression_saves(here: Path) -> None:
    script = runpy.run_path(str(FOLDER / "compressors.py"))
    script["main"](small(here, "compressors_fmnist", "none", "qsgd", "top_k"), here / "out", [])
    table = pd.read_csv(here / "out/table.csv", index_col="label")
    ratio = table["megabytes"] / table.loc["none", "megabytes"]
    assert ratio["qsgd"] == pytest.approx((32 + 650 * 4) / (32 * 650), rel=0.01)
    assert table.loc["none", "lost"] == 0 < table.loc["top_k", "lost"]
    curves = pd.read_csv(here / "out/curves.csv")
    assert curves.groupby("label").size().to_dict() == {"none": 6, "qsgd": 6, "top_k": 6}


@pytest.mark.slow
def test_clients_in_turns_spend_alike_and_need_less_noise(here: Path) -> None:
    script = runpy.run_path(str(FOLDER / "privacy.py"))
    known = script["main"].__globals__
    every, turns = known["METHODS"], {"name": "least_recently_selected", "count": 5}
    known["METHODS"] = {
        "known": every["known"],
        **{name: (every[name][0], turns) for name in ("turns", "turns_banded")},
    }
    known["EPSILONS"], known["SHARE"] = (8.0,), {"digits": 0.1}
    settings: dict[str, Any] = yaml.safe_load((FOLDER / "settings/privacy_fmnist.yaml").read_text())
    settings |= {"data": {"name": "digits"}, "participation": {"name": "fixed", "count": 5}}
    settings["scenario"] |= {"num_clients": 30, "rounds": 12}
    settings["compare"] |= {"seeds": [0]}
    (here / "privacy.yaml").write_text(yaml.safe_dump(settings))
    script["main"](here / "privacy.yaml", here / "out", [])
    table = pd.read_csv(here / "out/accuracy.csv", index_col="label")
    assert list(table.index) == ["none", "uniform_eps8", "cyclic_eps8", "turns_banded_8"]
    assert table.loc["uniform_eps8", "median_epsilon"] < 7 < 7.9 < table.loc["cyclic_eps8", "median_epsilon"] <= 8
    runs = {label: next((here / "runs").glob(f"{label}-*")) for label in table.index[1:]}
    apart = {label: pd.read_csv(run / "privacy.csv")["separation"].min() for label, run in runs.items()}
    assert apart == {"uniform_eps8": 1, "cyclic_eps8": 6, "turns_banded_8": 6}
    noise = {label: pd.read_csv(run / "history.csv")["noise_norm"].mean() for label, run in runs.items()}
    assert noise["cyclic_eps8"] < noise["uniform_eps8"]
