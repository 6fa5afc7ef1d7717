"""The table of the experiment with personal models, on a small world."""

import runpy
from pathlib import Path

import pandas as pd
import pytest
import yaml

import fedtide
from fedtide.settings.params import Params

FOLDER = Path(__file__).parents[2] / "experiments/personal"
LABELS = ["fedavg", "fedavg_steps", "ditto", "local", "fedrep"]


@pytest.mark.slow
def test_figures_are_those_of_the_models_that_clients_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Served, after local steps, or global; and costs as recorded, in thousands of gradients and megabytes."""
    settings = yaml.safe_load((FOLDER / "fmnist/personal_fmnist.yaml").read_text())
    settings["scenario"] |= {"num_devices": 4, "num_sessions": 3, "rounds_per_session": 2, "arrivals": 2}
    settings["evaluation"] |= {"every": 2, "clients_every": 2, "client_samples": 20}
    settings |= {"data": {"name": "digits"}, "model": {"name": "mlp", "widths": [8]}}
    settings["participation"] = {"name": "fixed", "count": 2}
    settings["compare"] |= {"algorithms": LABELS, "seeds": [0, 1]}
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(settings))
    monkeypatch.chdir(tmp_path)
    history = fedtide.compare(Params.read(file), workers=1).history
    runpy.run_path(str(FOLDER / "table.py"))["main"](file, tmp_path / "out", ["compare.seeds=[0, 1]"])
    table = pd.read_csv(tmp_path / "out/clients.csv", header=[0, 1], index_col=0)
    later = history[history["session"] > 1].set_index("label")
    kinds = {"fedavg": "client", "fedavg_steps": "personal", "ditto": "served", "local": "served", "fedrep": "served"}
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
    above = pd.read_csv(tmp_path / "out/above.csv", index_col=["over", "of", "label"])
    means = table["mean", "mean"]
    difference = above.loc[("fedavg", "mean", "ditto"), "difference"]
    assert difference == pytest.approx(means["ditto"] - means["fedavg"], abs=0.02)
