"""Who participates in the rounds of a run, without training."""

from fedtide.core import plugins
from fedtide.core.array_types import Bools, Ints
from fedtide.methods.accounting.cohorts import cohorts
from fedtide.settings.run import RunSettings
from fedtide.world.participation.base import Participation
from fedtide.world.presence.membership import membership
from fedtide.world.timeline import Timeline


def presence_and_cohorts(settings: RunSettings, timeline: Timeline, labels: Ints) -> tuple[Bools, Bools]:
    """Whether each client is present, and participates, in each round: bool [N, rounds]. ``labels``: of the training set."""
    rule = plugins.create(Participation, settings.participation)
    rule.bind(timeline, labels, settings.seed)
    found = cohorts(rule, timeline, settings.seed)
    return found.present, found.drawn


def movements(timeline: Timeline) -> dict[str, list[str] | list[int]]:
    """Movements of a dataset's population: columns with a row per session, for :mod:`fedtide.report.sections.population`.

    Clients are counted in the first round of a session. No rows if the clients are not those of the data.
    """
    found: dict[str, list[int]] = {name: [] for name in ("present", "newcomers", "returners", "left")}
    if not len(timeline.origin_of_client):
        return {"name": [], **found}
    for t in timeline.session_starts.tolist():
        groups, present = membership(timeline, t), len(timeline.at(t).clients)
        before = found["present"][-1] if t else 0
        found["present"].append(present)
        found["newcomers"].append(len(groups["newcomers"]))
        found["returners"].append(len(groups["returners"]))
        found["left"].append(before - len(groups["stayers"]))
    names = timeline.notes.get("periods") or [f"S{number + 1}" for number in range(timeline.sessions)]
    return {"name": [str(name) for name in names], **found}
