"""Scores of every client of a regression on its own data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fedtide.core.array_types import Floats, Ints
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.scoring.client_samples import own_samples, owners
from fedtide.federation.scoring.client_scores import cells, due, named_columns, summary
from fedtide.federation.scoring.evaluator import Evaluator, ModelValues, part_of
from fedtide.federation.scoring.served import ServedModels
from fedtide.federation.types import RoundContext
from fedtide.training.engine.passes.fit import Fit, fit
from fedtide.world.presence.membership import GROUPS, PRESENT, membership

_RECORDED = ("r2", "mae")
_SPREAD = ("mean", "std", "worst_decile")


class ClientFits:
    """R², mean absolute error and loss of the reported model, and of the one that each is served, on clients' own samples.

    These are those of the last round in which the client was present. R² compares with the mean of the client's own samples.
    Where the data does not know whose the samples are, there are no scores: unlike a class, a number says nothing about the
    error that is to be expected of a client.

    Args:
        evaluator: of the run. served: the clients' own models, None where all are served the reported one.
    """

    def __init__(self, evaluator: Evaluator, served: ServedModels | None) -> None:
        self._evaluator, self._served = evaluator, served

    @property
    def columns(self) -> list[str]:
        """Columns of the history; none if clients are not evaluated."""
        if not self._evaluator.settings.clients_every or owners(self._evaluator) is None:
            return []
        names = [f"client_{score}_{name}" for score in _RECORDED for name in (*_SPREAD, *GROUPS)]
        if self._served is not None:
            own = (*_SPREAD, *PRESENT, "known", "unknown")
            names += [*(f"served_{score}_{name}" for score in _RECORDED for name in own), "served_known"]
        return names

    def score(self, record: RoundRecord, r: RoundContext, model: ModelValues) -> None:
        """Write ``client_*`` and ``served_*`` into the row of the round, if it is due, and a line per client."""
        evaluator, t = self._evaluator, r.plan.t
        groups = membership(evaluator.timeline, t)
        clients = np.concatenate([evaluator.timeline.at(t).clients, groups["departed"]])
        if not due(evaluator, t) or (own := own_samples(evaluator, t, clients)) is None:
            return
        table: dict[str, Sequence[Any]] = {"client": clients.tolist(), **named_columns(evaluator, clients, groups)}
        table["samples"] = [len(positions) for positions in own]

        def write(fits: list[Fit], members: dict[str, Ints], prefix: str, column: str) -> None:
            rows = [each.row() for each in fits]
            for score in (*_RECORDED, "loss"):
                values = np.full(len(clients), np.nan)
                values[: len(rows)] = np.array([row[score] for row in rows], dtype=np.float64)  # NaN for None
                table[f"{column}{score}"] = cells(values)
                if score in _RECORDED:
                    found = _spread(values, clients, members, lower=score == "mae")
                    record.row |= {f"{prefix}_{score}_{name}": value for name, value in found.items()}

        write(self._each(model, own), groups, "client", "")
        if self._served is not None:
            present = evaluator.timeline.at(t).clients
            known = r.state.seen.cpu().numpy()[present]
            members = {name: groups[name] for name in PRESENT} | {"known": present[known], "unknown": present[~known]}
            fits = self._served.fits(r.state, t, len(r.plan.ids), own[: len(present)])
            write(fits, members, "served", "served_")
            record.row["served_known"] = float(known.mean())
            table["known"] = [*known.tolist(), *([None] * len(groups["departed"]))]
        record.client_scores = {"round": [t + 1] * len(clients), **table}

    def _each(self, model: ModelValues, own: list[Ints]) -> list[Fit]:
        """The fit of every client's samples, from one pass over all."""
        evaluator = self._evaluator
        positions = evaluator.on_device(np.concatenate(own))
        samples = evaluator.data.read(part_of(evaluator.settings.splits[0]), positions)
        together, lengths = fit(evaluator.workers, *model, *samples, evaluator.batch), [len(part) for part in own]
        parts = zip(torch.split(together.outputs, lengths), torch.split(together.labels, lengths), strict=True)
        return [Fit(together.task, *part) for part in parts]


def _spread(values: Floats, clients: Ints, groups: dict[str, Ints], lower: bool) -> dict[str, float | None]:
    """Mean, standard deviation and mean of the worst tenth over the clients present, and each group's mean."""
    sign = -1.0 if lower else 1.0
    found = summary(sign * values, clients, groups, 0.0)
    del found["below"]
    return {name: value if name == "std" or value is None else sign * value for name, value in found.items()}
