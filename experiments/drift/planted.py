"""Regret on a table with planted drift: what a method loses to a classifier that knows each client's concept.

    python experiments/drift/planted.py results/drift_planted

runs the settings of ``results/drift_planted/best.yaml`` (from search.py) in every world below, with points of its own for
every seed, and writes ``regret.csv`` there: mean and standard deviation over seeds, in points of accuracy, by world, method and
span of rounds, and of the difference to FedAvg's. Repeated, it continues.
"""

import runpy
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

import fedtide
from fedtide.core.storage.files import write_text
from fedtide.settings.params import Params
from fedtide.settings.reading.overrides import apply_overrides

FOLDER = Path(__file__).parent
accuracy = runpy.run_path(str(FOLDER / "search.py"))["accuracy"]
planted = runpy.run_path(str(FOLDER / "plugins/data/planted.py"))


class World(NamedTuple):
    """How far the rule turns, and for which share of the clients; an angle of 0: nothing drifts."""

    angle: float
    share: float

    @property
    def overrides(self) -> list[str]:
        """Settings of the runs."""
        if self.angle == 0:
            return ["drift={name: none}"]
        return [f"data.angle={self.angle}", f"drift.share={self.share}"]


WORLDS = [World(90, 0.5), World(0, 0.0), World(180, 0.5), World(45, 0.5), World(180, 1.0), World(90, 1.0)]


def histories(settings: dict[str, Any], world: World, seed: int, runs: Path) -> pd.DataFrame:
    """Rounds of all methods in a world."""
    raw = yaml.safe_load(yaml.safe_dump(settings))
    apply_overrides(raw, [*world.overrides, f"data.draw={seed}", f"compare.seeds=[{seed}]"])
    return fedtide.compare(Params(raw), runs, workers=1, allow_failures=True).history.assign(**world._asdict())


def spans(settings: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """First and last rounds of the means: under the drift, and when the old concept is back."""
    start, until, end = settings["drift"]["start"], settings["drift"]["until"], settings["scenario"]["rounds"]
    return {
        "first 5": (start + 1, start + 5),
        "drift": (start + 1, until),
        "first 5 back": (until + 1, until + 5),
        "back": (until + 1, end),
    }


def regrets(history: pd.DataFrame, slope: float, rounds: dict[str, tuple[int, int]]) -> pd.DataFrame:
    """A row per world, seed, method and span: points below the Bayes classifier that knows the concepts."""
    known, rows = planted["accuracy"](slope, 0.0), []
    for (angle, share, seed, label), run in history.groupby(["angle", "share", "seed", "label"]):
        by_round = accuracy(run)
        for span, (first, last) in rounds.items():
            lost = 100 * (known - by_round.loc[first:last].mean())
            rows.append((angle, share, seed, label, span, lost))
    return pd.DataFrame(rows, columns=["angle", "share", "seed", "label", "span", "regret"])


def one_model(world: World, slope: float) -> float:
    """Least regret of one linear classifier for all clients under the drift, in points."""
    turned = np.linspace(0, world.angle, 181)
    of = [[planted["accuracy"](slope, apart) for apart in (turn, world.angle - turn)] for turn in turned]
    mixed = np.array(of) @ [1 - world.share, world.share]
    return float(100 * (planted["accuracy"](slope, 0.0) - mixed.max()))


def main(out: Path, runs: Path = Path("runs")) -> None:
    """Run what is missing and write the table."""
    settings = yaml.safe_load((out / "best.yaml").read_text())
    slope = settings["data"].get("slope", 4.0)
    seeds = settings["compare"]["seeds"]
    found = pd.concat([histories(settings, world, seed, runs) for world in WORLDS for seed in seeds])
    each = regrets(found, slope, spans(settings))
    plain = each[each["label"] == "fedavg"].drop(columns="label").rename(columns={"regret": "fedavg"})
    each = each.merge(plain)
    each["over_fedavg"] = each["regret"] - each["fedavg"]
    by = ["angle", "share", "label", "span"]
    table = each.groupby(by)[["regret", "over_fedavg"]].agg(["mean", "std"])
    table.columns = ["mean", "std", "over_fedavg", "over_fedavg_std"]
    bound = [(*world, "best single model", "drift", one_model(world, slope)) for world in WORLDS]
    table = pd.concat([table.reset_index(), pd.DataFrame(bound, columns=[*by, "mean"])])
    write_text(out / "regret.csv", table.to_csv(index=False, float_format="%.2f"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
