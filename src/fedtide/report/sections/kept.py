"""Figures of what is kept of the newcomers' updates, compared with residents and attackers, and of successful attacks."""

import pandas as pd

from fedtide.records.frames import METHOD, Records
from fedtide.report.charts.chart import Axis, Chart
from fedtide.report.charts.methods import lines_of_methods
from fedtide.report.charts.pictures import drawings
from fedtide.report.parts import figures

NEW = 30
"""Rounds after its arrival in which a client counts as new."""

_KEPT = (
    "Share of a participant's update that enters the model (by the aggregation rule and by a clip), over that of the residents "
    f"in the same rounds: honest participants that were there from the start or arrived at least {NEW} rounds ago. Attackers: "
    "the mean over all rounds. Lines: mean of the complete runs of a method; shading: range over its seeds."
)
_SUCCESS = (
    "Share of test samples with the attackers' patch, of other labels than their target, that the model takes for the target. "
    "Lines: mean of the runs of a method; shading: range over its seeds."
)
_GROUPS = ("Newcomers", "Returners", "Attackers")


def kept(records: Records) -> Chart | None:
    """Kept shares of clients that have just arrived, or that attack; None where nothing is recorded, or nobody arrives."""
    found = relative(records.clients).rename(columns={"age": "x", "kept": "y"})
    if not (found["group"] == _GROUPS[0]).any():
        return None
    panels = {group: rows for group in _GROUPS if len(rows := found[found["group"] == group])}
    if (last := panels.get(_GROUPS[2])) is not None:  # one number: a level line
        panels[_GROUPS[2]] = pd.concat([last, last.assign(x=found["x"].max())])
    x = Axis("Rounds since arrival", low=0.0, whole=True)
    y = Axis("Kept, over that of residents", low=0.0, high=max(1.1, float(found["y"].max()) * 1.05))
    return lines_of_methods(records, panels, x, y)


def relative(clients: pd.DataFrame) -> pd.DataFrame:
    """Kept shares of groups over those of the residents in the same rounds.

    Args:
        clients: records of participants with ``kept``, ``clip_factor``, ``attacker``, ``age`` and ``stay``, NaN where nothing
            is recorded.

    Returns:
        A row for each run, ``group`` (newcomers, returners, attackers) and ``age`` in rounds, which is 0 for attackers.
    """
    rows = clients.dropna(subset=["age"])
    rows = rows.assign(share=rows["kept"].fillna(1.0) * rows["clip_factor"].fillna(1.0), attacks=rows["attacker"] == 1)
    rows["new"] = (rows["stay"] > 0) & (rows["age"] < NEW)
    run, place = ["key", *METHOD, "seed"], ["key", "round"]
    residents = rows[~rows["attacks"] & ~rows["new"]].groupby(place)["share"].mean().rename("residents")
    rows = rows.join(residents, on=place).dropna(subset=["residents"])
    rows["group"] = rows["stay"].map(lambda stay: _GROUPS[min(int(stay), 2) - 1]).where(~rows["attacks"], _GROUPS[2])
    rows["age"] = rows["age"].where(~rows["attacks"], 0)
    sums = rows[rows["new"] | rows["attacks"]].groupby([*run, "group", "age"], sort=False)[["share", "residents"]].sum()
    return (sums["share"] / sums["residents"]).rename("kept").reset_index()


def success(records: Records) -> Chart | None:
    """Success of a backdoor by round; None without one."""
    found = records.history.dropna(subset=["attack_success"]).rename(columns={"round": "x", "attack_success": "y"})
    if not len(found):
        return None
    return lines_of_methods(
        records, {"": found}, Axis("Round", whole=True), Axis("Attack success", True, low=0, high=1)
    )


figures.add(100, lambda source: drawings("kept", "What is kept of newcomers' updates", _KEPT, kept(source.records)))
figures.add(120, lambda source: drawings("attack_success", "Success of the attack", _SUCCESS, success(source.records)))
