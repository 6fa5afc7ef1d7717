"""The table of the experiment with personal models, on a small world."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import fedtide
from fedtide.settings.params import Params

SETTINGS = "experiments/personal/fmnist/personal_fmnist.yaml"
LABELS = ["fedavg", "fedavg_steps", "ditto", "local", "fedrep"]


@pytest.mark.slow
def test_figures_are_those_of_the_models_that_clients_use(here: Path, script: Callable[..., str]) -> None:
    """Served, after local steps, or global; and costs as recorded, in thousands of gradients and megabytes."""
    chosen = [
        "scenario.num_devices=4",
        "scenario.num_sessions=3",
        "scenario.rounds_per_session=2",
        "scenario.arrivals=2",
    ]
    chosen += [
        "evaluation.every=2",
        "evaluation.clients_every=2",
        "evaluation.client_samples=20",
        "data={name: digits}",
    ]
    chosen += ["model={name: mlp, widths: [8]}", "participation={name: fixed, count: 2}", "compare.seeds=[0, 1]"]
    chosen.append(f"compare.algorithms=[{', '.join(LABELS)}]")
    history = fedtide.compare(Params.read(SETTINGS, chosen), workers=1).history
    printed = script("personal/table.py", SETTINGS, "out", *chosen)
    table = pd.read_csv("out/clients.csv", header=[0, 1], index_col=0)
    later = history[history["session"] > 1].set_index("label")
    kinds = {"fedavg": "client", "fedavg_steps": "finetuned", "ditto": "served", "local": "served", "fedrep": "served"}
    for label, kind in kinds.items():
        for name in ("mean", "worst_decile", "stayers"):
            wanted = later.loc[label].groupby("seed")[f"{kind}_accuracy_{name}"].mean()
            assert table.loc[label, (name, "mean")] == pytest.approx(100 * wanted.mean(), abs=0.01)
            assert table.loc[label, (name, "std")] == pytest.approx(100 * wanted.std(), abs=0.01)
    gain = later.loc["ditto"].groupby("seed")["personalization_gain"].mean().mean()
    assert table.loc["ditto", ("gain", "mean")] == pytest.approx(100 * gain, abs=0.01)
    assert table["gain", "mean"].isna().to_dict() == {label: label in ("fedavg", "local") for label in LABELS}
    # Six rounds of two participants, ten steps; Ditto trains twice, FedRep ten steps on the head; FedAvg takes twenty to adapt.
    gradients = {"fedavg": 0.12, "fedavg_steps": 0.12, "ditto": 0.24, "local": 0.12, "fedrep": 0.24}
    assert table["gradients", "mean"].to_dict() == pytest.approx(gradients)
    assert table["steps", "mean"].to_dict() == {label: 20 * (label == "fedavg_steps") for label in LABELS}
    assert (
        table.loc["fedavg", ("up", "mean")] > table.loc["fedrep", ("up", "mean")] > table.loc["local", ("up", "mean")]
    )
    assert table.loc["local", ("down", "mean")] == 0
    above = pd.read_csv("out/above.csv", index_col=["over", "of", "label"])
    means = table["mean", "mean"]
    difference = above.loc[("fedavg", "mean", "ditto"), "difference"]
    assert difference == pytest.approx(means["ditto"] - means["fedavg"], abs=0.02)
    assert f"| ditto | {means['ditto']:.1f} ± {table.loc['ditto', ('mean', 'std')]:.1f} |" in printed
