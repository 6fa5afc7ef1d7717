"""How long ago the participants of a run arrived."""

from pathlib import Path

import numpy as np
import pandas as pd

from fedtide.world.timeline import Timeline


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
