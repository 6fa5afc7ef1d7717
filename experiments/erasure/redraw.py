"""Does it matter that the place of an erased client stays empty? Contributions with empty places, and with others drawn.

    python experiments/erasure/redraw.py results/erasure_redraw [KEY=VALUE ...]

trains Fashion-MNIST (20 clients, 5 drawn, 40 rounds; labels by Dirichlet(0.3)) with everybody and without each client, twice:
its place in a cohort stays empty, as in the counterfactual of `erase`, or all cohorts are drawn anew from the others. The world
is the same with every seed; initial model, cohorts and batches differ. ``redraw.csv`` has a row per seed and client: the loss
on all test samples without the client minus that with it. Finished seeds are kept.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from fedtide.core.storage.files import write_text
from fedtide.federation.features.twins import beside
from fedtide.federation.module import FederatedModule
from fedtide.federation.state import initial_state
from fedtide.runs.lightning.trainer import device_of, quiet_lightning
from fedtide.settings.params import Params
from fedtide.studies.leave_one_out import everybody, final, scores
from fedtide.world.building.build import timeline_for
from fedtide.world.storage.prepared import load_data

SEEDS = range(10)
SETTINGS = {
    "data": {"name": "fashion_mnist"},
    "scenario": {"name": "static", "num_clients": 20, "rounds": 40},
    "partition": {"name": "dirichlet_client", "alpha": 0.3},
    "participation": {"name": "fixed", "count": 5},
    "model": {"name": "mlp", "widths": [50]},
    "local": {"steps": 10, "batch_size": 32, "lr": 0.05},
    "costs": {"wireless": False},
    "world_seed": 0,
}


def of_seed(seed: int, overrides: list[str]) -> pd.DataFrame:
    """Contributions of all clients, by whether their places stay empty."""
    settings = Params.read(SETTINGS, overrides).run(seed=seed)
    data = load_data(settings)
    world = timeline_for(settings, data)
    with quiet_lightning():
        module = FederatedModule(settings, world, data).to(device_of(settings))
        module.build()
    parts, clients, always = module.parts, everybody(world), np.ones(world.rounds, dtype=np.bool_)
    losses = dict[str, list[float]]()
    for name in ("whole", "hole", "redraw"):
        for client in clients[: 1 if name == "whole" else None]:
            less = world if name == "whole" else world.without(np.array([client]), always)
            less = replace(less, drawn_from=None) if name == "redraw" else less
            model = final(beside(parts, less), initial_state(parts))
            losses.setdefault(name, []).append(-scores(parts.evaluator, model, np.zeros(1, np.int64))[0, 0, 1])
    parts.workers.close()
    values = {name: np.array(losses["whole"]) - np.array(losses[name]) for name in ("hole", "redraw")}
    return pd.DataFrame({"seed": seed, "client": clients, **values})


def main(out: Path, overrides: list[str]) -> None:
    """Train the missing seeds, and print what the two counterfactuals say."""
    file = out / "redraw.csv"
    found = pd.read_csv(file) if file.is_file() else pd.DataFrame({"seed": pd.Series(dtype=int)})
    out.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        if seed not in set(found["seed"]):
            found = pd.concat([found, of_seed(seed, overrides)])
            write_text(file, found.to_csv(index=False, float_format="%.6g"))
    by_client = found.groupby("client")[["hole", "redraw"]]
    print(f"standard deviation over seeds, mean over clients:\n{by_client.std().mean().round(4).to_string()}")
    print(f"means over seeds, standard deviation over clients:\n{by_client.mean().std().round(4).to_string()}")
    means = by_client.mean()
    print(f"correlation of the means over clients: {means['hole'].corr(means['redraw']):.3f}")
    gap = (found["hole"] - found["redraw"]).groupby(found["client"]).agg(["mean", "sem"])
    print(f"clients whose means differ by two standard errors: {int((gap['mean'].abs() > 2 * gap['sem']).sum())}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
