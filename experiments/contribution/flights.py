"""The contributions of forty aircraft that leave by the end of June, forty that stay all year, and the attackers.

    python experiments/contribution/flights.py results/contribution_flights [KEY=VALUE ...]

trains `experiments/contribution/settings/flights.yaml`, and again without each of them, and prints what aircraft contribute by
group. Repeated, it continues; ``contribution.csv`` is that of `fedtide contribution`.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from fedtide.federation.features.attack import Attackers
from fedtide.settings.params import Params
from fedtide.studies.contribution import FILE, contributions
from fedtide.world.building.build import timeline_for
from fedtide.world.clients import ClientNames
from fedtide.world.storage.prepared import load_data

PARAMS, EACH, JUNE = Path("experiments/contribution/settings/flights.yaml"), 40, 6


def main(out: Path, overrides: list[str]) -> None:
    """Train what is missing, and print the groups."""
    settings = Params.read(PARAMS, overrides).run()
    data = load_data(settings)
    world = timeline_for(settings, data)
    here = np.zeros((world.num_clients, world.sessions), dtype=bool)
    for session, start in enumerate(world.session_starts):
        here[world.at(int(start)).clients, session] = True
    attack = sorted(Attackers.of(settings, world, data).ids)
    honest = ~np.isin(np.arange(len(here)), attack)
    leave = np.flatnonzero(honest & here[:, :JUNE].any(1) & ~here[:, JUNE:].any(1))[:EACH]
    stay = np.flatnonzero(honest & here.all(1))[:EACH]
    groups = {"leave": leave, "stay": stay, "attack": np.array([each for each in attack if here[each].any()])}
    of = {int(client): name for name, ids in groups.items() for client in ids}
    contributions(settings, out, ClientNames.of(world, data).shown(of))
    found = pd.read_csv(out / FILE)
    found["group"], found["months"] = found["client"].map(of), [int(here[each].sum()) for each in found["client"]]
    by_group = found.groupby("group")[["loss", "own_loss", "others_loss"]]
    print(found["group"].value_counts().to_string())
    print((1e6 * by_group.agg(["mean", "sem"])).round(1).to_string())  # millionths of a nat
    print(f"ranks of attackers among {len(found)}: {(1 + np.flatnonzero(found['group'] == 'attack')).tolist()}")
    print(f"correlation of months present and loss: {found['months'].corr(found['loss'], method='spearman'):.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
