"""Distance to the solution of full participation, over the rounds, where clients are away at different rates.

    python experiments/away/fixed_points.py results/away_fixed_points [KEY=VALUE ...]

Softmax regression on digits with five clients, full batches, a constant rate and weight decay, in double precision, so that
a method has one solution under full participation. Writes ``distances.csv``, ``ends.csv`` and ``fixed_points.png``.
"""

import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from fedtide.core.errors import Diverged
from fedtide.core.storage.files import write_bytes, write_text
from fedtide.federation.assembly.choose import choose
from fedtide.federation.assembly.hardware import Hardware
from fedtide.federation.assembly.parts import assemble
from fedtide.federation.federation import Federation
from fedtide.federation.state import initial_state
from fedtide.report.charts.style import WIDTH, line_style, paper, png
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.world.building.build import build_timeline
from fedtide.world.storage.prepared import load_data

SETTINGS = Path(__file__).parent / "fixed_points/digits.yaml"
EVERY = 5
LAST = 500
"""Rounds over which ``ends.csv`` averages: some methods never settle."""


def trajectory(run: RunSettings) -> Tensor:
    """The model after every round, float64 [T, d]; NaN from the round on in which training diverges."""
    data = load_data(run)
    world = build_timeline(run, data)
    parts = assemble(choose(run, world, data), world, data, Hardware(dtype=torch.float64))
    federation, state = Federation(parts), initial_state(parts)
    models = torch.full((parts.timeline.rounds, len(state.w)), torch.nan, dtype=torch.float64)
    with torch.no_grad(), suppress(Diverged):
        for model in models:
            federation.run_round(state)
            model.copy_(state.w)
    return models


def measured(overrides: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Distances by method and round, and those at the end.

    A distance is the largest absolute difference of a parameter. ``own``: from the last model of the same method with
    everybody in every round; ``optimum``: from the minimizer of the mean of the clients' losses, which is FedAvg's solution
    with one local step.
    """
    params, complete, single = (
        Params.read(SETTINGS, [*overrides, *more])
        for more in ([], ["participation=all"], ["participation=all", "local.epochs=1", "local.lr=0.2"])
    )
    optimum = trajectory(single.run(algorithm="fedavg"))[-1]
    curves, ends = [], []
    for label in params.experiment.compare.algorithms:
        full, away = trajectory(complete.run(algorithm=label)), trajectory(params.run(algorithm=label))
        own = (away - full[-1]).abs().amax(1)
        rounds = torch.arange(EVERY, len(own) + 1, EVERY)
        curves.append(pd.DataFrame({"method": label, "round": rounds, "distance": own[rounds - 1]}))
        ends.append(
            {
                "method": label,
                "own": float(own[-LAST:].mean()),
                "own_most": float(own[-LAST:].max()),
                "optimum": float((away[-LAST:] - optimum).abs().amax(1).mean()),
                "full_participation_from_optimum": float((full[-1] - optimum).abs().max()),
                "full_participation_settled": float((full[-LAST:] - full[-1]).abs().max()),
            }
        )
    return pd.concat(curves), pd.DataFrame(ends)


def picture(curves: pd.DataFrame) -> bytes:
    """Distances over the rounds, a line per method."""
    with paper():
        figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
        axes = figure.subplots()
        ends = dict[str, float]()
        for number, (label, mine) in enumerate(curves.groupby("method", sort=False)):
            axes.plot(mine["round"], mine["distance"], **line_style(number))
            ends[str(label)] = float(mine["distance"].dropna().iloc[-1])
        axes.set_yscale("log")
        axes.set_ylim(bottom=1e-16)
        axes.set_xlabel("round")
        axes.set_ylabel("largest difference of a parameter")
        axes.set_title("Distance to the solution of full participation")
        lowest = np.inf
        for label, end in sorted(ends.items(), key=lambda item: -item[1]):  # beside its line, below the label above it
            lowest = min(np.clip(end, 1e-16, 10), lowest / 7)
            look = line_style(list(ends).index(label))
            axes.annotate(label, (1.01, lowest), xycoords=axes.get_yaxis_transform(), color=look["color"], va="center")
        return png(figure)


def main(folder: Path, overrides: list[str]) -> None:
    """Write the results into a folder."""
    curves, ends = measured(overrides)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("distances", curves), ("ends", ends)):
        write_text(folder / f"{name}.csv", table.to_csv(index=False, lineterminator="\n", float_format="%.3g"))
    write_bytes(folder / "fixed_points.png", picture(curves))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
