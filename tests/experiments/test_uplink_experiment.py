"""The experiments with updates on their way, on digits."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

Script = Callable[..., str]
SMALL = [
    *("data={name: digits}", "model={name: softmax_regression}", "local.steps=5", "compare.seeds=[0]"),
    *("scenario.num_sessions=3", "scenario.rounds_per_session=4", "scenario.rounds_pilot=4"),
    *("evaluation.every=2", "evaluation.clients_every=2"),
]


@pytest.mark.slow
def test_what_is_kept_of_newcomers_and_attackers(here: Path, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTIDE_PLUGINS", "experiments/uplink/plugins")
    settings, chosen = "experiments/uplink/settings/newcomers_fmnist.yaml", "[newcomer_aware_clip, clip]"
    script("uplink/newcomers.py", settings, "out", *SMALL, f"compare.algorithms={chosen}")
    kept = pd.read_csv("out/kept.csv").set_index(["attack", "label", "group"])["mean"]
    assert 0 < kept["sign_flip", "clip", "Attackers"] != 1
    assert kept["none", "newcomer_aware_clip", "Newcomers"] > kept["none", "clip", "Newcomers"]  # by the upper bound
    accuracy = pd.read_csv("out/accuracy.csv").set_index(["attack", "label"])
    assert len(accuracy) == 4 * 2
    assert accuracy["newcomers"].notna().all()
    histories = [pd.read_csv(path) for path in Path("runs").glob("clip-*/history.csv")]
    ends = sorted(f"{100 * history['test_accuracy'].iloc[-1]:.1f}" for history in histories)
    assert sorted(f"{end:.1f}" for end in accuracy.xs("clip", level="label")["end"]) == ends
    assert {"Newcomers"} <= set(pd.read_csv("out/ages.csv")["group"]) <= {"Newcomers", "Returners"}


@pytest.mark.slow
def test_what_compression_saves(here: Path, script: Script) -> None:
    settings, chosen = "experiments/uplink/settings/compressors_fmnist.yaml", "[none, qsgd, top_k]"
    script("uplink/compressors.py", settings, "out", *SMALL, f"compare.algorithms={chosen}")
    table = pd.read_csv("out/table.csv", index_col="label")
    ratio = table["megabytes"] / table.loc["none", "megabytes"]
    assert ratio["qsgd"] == pytest.approx((32 + 650 * 4) / (32 * 650), rel=0.01)
    assert table.loc["none", "lost"] == 0 < table.loc["top_k", "lost"]
    curves = pd.read_csv("out/curves.csv")
    assert curves.groupby("label").size().to_dict() == {"none": 6, "qsgd": 6, "top_k": 6}


@pytest.mark.slow
def test_cyclic_participation_spends_alike_and_needs_less_noise(here: Path, script: Script) -> None:
    chosen = [
        "data={name: digits}",
        "scenario.num_clients=200",
        "scenario.rounds=4",
        "local.steps=1",
        "compare.seeds=[0]",
        "compare.algorithms=[uniform_eps8, tree_eps8, cyclic_eps8, cyclic_banded_eps8]",
    ]
    script("uplink/privacy.py", "experiments/uplink/settings/privacy_fmnist.yaml", "out", *chosen)
    table = pd.read_csv("out/accuracy.csv", index_col="label")
    recorded = Path(__file__).parents[2] / "results/privacy_fmnist/accuracy.csv"
    assert list(table.index) == pd.read_csv(recorded)["label"].tolist()
    assert table.loc["uniform_eps8", "median_epsilon"] < 7.9 < table.loc["cyclic_eps8", "median_epsilon"] <= 8
    runs = {
        label: next(Path("runs").glob(f"{label}-*")) for label in ("uniform_eps8", "cyclic_eps8", "cyclic_banded_eps8")
    }
    apart = {label: pd.read_csv(run / "privacy.csv")["separation"].min() for label, run in runs.items()}
    assert apart == {"uniform_eps8": 1, "cyclic_eps8": 2, "cyclic_banded_eps8": 2}
    noise = {label: pd.read_csv(run / "history.csv")["noise_norm"].mean() for label, run in runs.items()}
    assert noise["cyclic_eps8"] < noise["uniform_eps8"]
