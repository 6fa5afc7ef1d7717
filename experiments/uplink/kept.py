"""What aggregation rules and clips keep of newcomers' updates, over what they keep of residents' in the same rounds."""

from pathlib import Path

import numpy as np
import pandas as pd

from fedtide.records.frames import METHOD
from fedtide.world.timeline import Timeline

NEW = 30
"""Rounds after its arrival in which a client counts as new."""

GROUPS = ("Newcomers", "Returners", "Attackers")


def since_arrival(timeline: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """``age`` and ``stay`` at the ``round`` (from 1) and of the ``client`` of rows.

    ``age`` is the number of rounds since the client's stay began. ``stay`` is 0 for clients that have been there since the
    first round, 1 for those that arrived later, and higher for those that have come back.

    Raises:
        SettingsError: there is no such timeline.
    """
    world, (clients, which) = Timeline.load(timeline), np.unique(rows["client"], return_inverse=True)
    here = np.stack([np.isin(clients, world.at(t).clients) for t in range(world.rounds)])
    came = here & ~np.vstack([np.zeros_like(here[:1]), here[:-1]])
    began = np.maximum.accumulate(np.where(came, np.arange(world.rounds)[:, None], 0))
    arrivals, t = came.cumsum(0), rows["round"].to_numpy() - 1
    stay = np.where(arrivals > 1, arrivals, ~here[0])
    return pd.DataFrame({"age": t - began[t, which], "stay": stay[t, which]}, index=rows.index)


def relative(clients: pd.DataFrame, runs: Path) -> pd.DataFrame:
    """Kept shares of groups over those of the residents in the same rounds.

    Args:
        clients: records of participants with ``kept``, ``clip_factor`` and ``attacker``, NaN where nothing is recorded.
        runs: folder of the run directories.

    Returns:
        A row for each run, ``group`` (newcomers, returners, attackers) and ``age`` in rounds, which is 0 for attackers.
    """
    rows = clients.dropna(subset=["kept", "clip_factor", "attacker"], how="all")
    ages = [since_arrival(runs / str(key) / "timeline.npz", own) for key, own in rows.groupby("key", sort=False)]
    rows = rows.join(pd.concat(ages)) if ages else rows.assign(age=0, stay=0)
    rows = rows.assign(share=rows["kept"].fillna(1.0) * rows["clip_factor"].fillna(1.0), attacks=rows["attacker"] == 1)
    rows["new"] = (rows["stay"] > 0) & (rows["age"] < NEW)
    run, place = ["key", *METHOD, "seed"], ["key", "round"]
    residents = rows[~rows["attacks"] & ~rows["new"]].groupby(place)["share"].mean().rename("residents")
    rows = rows.join(residents, on=place).dropna(subset=["residents"])
    rows["group"] = rows["stay"].map(lambda stay: GROUPS[min(int(stay), 2) - 1]).where(~rows["attacks"], GROUPS[2])
    rows["age"] = rows["age"].where(~rows["attacks"], 0)
    sums = rows[rows["new"] | rows["attacks"]].groupby([*run, "group", "age"], sort=False)[["share", "residents"]].sum()
    return (sums["share"] / sums["residents"]).rename("kept").reset_index()
