"""Labels that every settings file knows: bounds beside a comparison's methods, and methods that are settings of another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedtide.core import plugins

Raw = Mapping[str, Any]
_EVERY_STEP = {"communication": {"name": "intervals", "intervals": "a"}, "mode": "sync"}
_FOREVER = 1_000_000  # periods


@dataclass(frozen=True)
class Reference:
    """A label with its settings.

    Attributes:
        documentation: a first line and more, as a plug-in's docstring.
        entry: what a settings file would have under ``algorithms``.
        fitted: what ``entry``'s ``with`` has in addition, from the settings of a run.
    """

    documentation: str
    entry: Raw
    fitted: Callable[[Raw], Raw] = field(default=lambda run: {})

    @property
    def summary(self) -> str:
        return self.documentation.split("\n")[0]

    @property
    def settings(self) -> dict[str, Any]:
        """The entry in an experiment with the default settings."""
        return self.entry_for({})

    def entry_for(self, run: Raw) -> dict[str, Any]:
        """The entry of a file with these settings of a run."""
        return {**self.entry, "with": {**self.entry.get("with", {}), **self.fitted(run)}}


def _all_so_far(run: Raw) -> Raw:
    """The scenario of a run, whose clients hold all data so far."""
    scenario = run.get("scenario", "static")
    scenario = {"name": scenario} if isinstance(scenario, str) else scenario
    name = scenario.get("name", "static") if isinstance(scenario, Mapping) else None
    if name == "cumulative" or name not in plugins.names("scenarios"):
        return {}
    if "memory" in plugins.load("scenarios", name).Settings.model_fields:
        return {"scenario": {"memory": _FOREVER}}
    return {"scenario": {"name": "cumulative", "of": dict(scenario)}}


def _clients_evaluated(run: Raw) -> Raw:
    evaluation = run.get("evaluation")
    given = evaluation if isinstance(evaluation, Mapping) else {}
    every = given.get("every", 1)
    if given.get("clients_every") or not isinstance(every, int):
        return {}
    return {"evaluation": {"clients_every": 10 * every}}


REFERENCES: Mapping[str, Reference] = {
    "pooled": Reference(
        """One model trained on all data so far, including data of departed clients.

        The participants of a round average after every local step, so that they are one model trained on their pooled samples,
        with the steps of the run's own settings and batches as large as all theirs together; this is exact for SGD without
        clipping and BatchNorm. Clients hold the data of all sessions so far: with scenario `calendar` their own (its `memory`),
        otherwise equal parts of everybody's (scenario `cumulative`). `participation: all` trains on all of it every round.""",
        {"name": "fedavg", "with": _EVERY_STEP},
        _all_so_far,
    ),
    "pooled_period": Reference(
        """One model trained on the pooled data of the clients present.

        As `pooled`, but clients hold what the scenario gives them: the data of the session, or of the calendar's period.""",
        {"name": "fedavg", "with": _EVERY_STEP},
    ),
    "local": Reference(
        """Every client trains a model of its own on its own data, alone.

        Models are kept over sessions, and clients are evaluated with their own: `served_accuracy_*` in the history. The global
        model stays the initial one, with which newcomers start; so `test_accuracy` is that of an untrained model.""",
        {
            "name": "local",
            "with": {"client_state": {"on_session_start": "keep"}, "communication": "per_round", "mode": "sync"},
        },
        _clients_evaluated,
    ),
    "lg_fedavg": Reference(
        """LG-FedAvg (Liang et al. 2020): clients share the last layer and keep all others, `fedper` with `personal: body`.""",
        {"name": "fedper", "personal": "body"},
    ),
    "fedbn": Reference(
        """FedBN (Li et al. 2021): clients keep their normalization layers, `fedper` with `personal: norms`.""",
        {"name": "fedper", "personal": "norms"},
    ),
}
"""By label. ``frozen`` needs no settings; it is an algorithm."""
