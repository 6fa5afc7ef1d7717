"""Runs with requests to erase clients, round by round, and the worlds in which these clients never were."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedtide.federation.features.erasure import Erasure
from fedtide.federation.federation import Federation
from fedtide.federation.state import initial_state
from fedtide.federation.types import RunState
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline
from support import dataset, deal, federation, one, run_rounds, settings, timeline, vectors

SIZES = (6, 4, 5, 3)
EVERYBODY = (0, 1, 2, 3)

PRESENT = [(0, 1, 2), (0, 1, 2), (1, 2, 3), (1, 2, 3), (0, 1, 2), (0, 1, 2), (1, 2, 3), (1, 2, 3)]
SESSIONS = [0, 0, 1, 1, 2, 2, 3, 3]
"""Two groups of clients take turns, in sessions of two rounds."""

LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.2}
WHOLE = {"epochs": 2, "batch_size": 100, "lr": 0.2, "order": "stored"}
"""Steps on all samples of a client, in their order, so that nothing is drawn."""

THREADS = {"executor": "threads", "workers": 1}
BARE = {"erased": False}
"""No measures, so that no other runs are trained beside the run."""

ERASERS: dict[str, dict[str, Any]] = {
    "retrain": {},
    "continue_training": {},
    "rollback": {"every": 2},
    "fed_eraser": {"interval": 2},
    "pga": {"radius": 0.5, "epochs": 1},
    "puf": {"eta": 2.0},
    "weight_negation": {},
    "conda": {},
}


def request(name: str, clients: Sequence[int | str] = (1,), at: int = 4, **values: Any) -> dict[str, Any]:
    """Settings of a request, those of :data:`ERASERS` included."""
    return {"name": name, "clients": list(clients), "at": at, **ERASERS[name], **values}


def world(
    present: Sequence[Sequence[int]] | int = 6, sessions: Sequence[int] | None = None, without: Sequence[int] = ()
) -> Timeline:
    """Devices of each round (a number of rounds: everybody), each with its own shard, but for some who never are there.

    ``sessions``: the number of each round's session; the first one is the pilot.
    """
    rounds = [EVERYBODY] * present if isinstance(present, int) else present
    tables = [{client: client for client in ids if client not in without} for ids in rounds]
    notes = {} if sessions is None else {"pilot_sessions": 1}
    return timeline(deal(SIZES), tables, clients=4, session_of_round=sessions, notes=notes)


@dataclass
class Seen:
    """A run: models after every round, rows of its history, the state at the end, and the counterfactual's models."""

    fed: Federation
    state: RunState
    models: list[Tensor] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    servers: list[dict[str, Tensor]] = field(default_factory=list)
    without: dict[int, Tensor] = field(default_factory=dict)


def made(
    erase: Any = (),
    there: Timeline | None = None,
    cohorts: Any = None,
    data: Dataset | None = None,
    start: Tensor | None = None,
    **values: Any,
) -> Federation:
    """A federation; ``values`` are further settings."""
    chosen = settings(**{"erase": list(erase), "local": LOCAL, "engine": THREADS, **values})
    return federation(chosen, there or world(), vectors() if data is None else data, cohorts=cohorts, start=start)


def seen(fed: Federation, rounds: int | None = None) -> Seen:
    """Run some rounds (all by default)."""
    found, parts = Seen(fed, initial_state(fed.parts)), fed.parts
    feature = parts.feature(Erasure)
    with torch.no_grad():
        for t in range(parts.timeline.rounds if rounds is None else rounds):
            found.rows.append(fed.run_round(found.state).row)
            found.models.append(found.state.w.clone())
            found.servers.append({name: vector.clone() for name, vector in found.state.server.items()})
            if feature is not None:
                twins = found.state.features["erasure"]["twins"]
                if (twin := feature._twins.at(parts, twins, "without.0", t + 1)) is not None:
                    found.without[t] = twin.w.clone()
    parts.workers.close()
    return found


def run(erase: Any = (), there: Timeline | None = None, cohorts: Any = None, **values: Any) -> Seen:
    """All rounds of :func:`made`."""
    return seen(made(erase, there, cohorts, **values))


def asked(
    erase: Any, there: Timeline | None = None, cohorts: Any = None, **values: Any
) -> tuple[Tensor, RunState, Any]:
    """The model before a request, the state right after it, and the feature."""
    fed = made([erase], there, cohorts, **values)
    feature = one(fed.parts, Erasure)
    state, _ = run_rounds(fed, erase["at"])
    before = state.w.clone()
    with torch.no_grad():
        feature.open(fed.parts, state, erase["at"])
    fed.parts.workers.close()
    return before, state, feature


def linear(weighting: str) -> tuple[dict[str, Any], Tensor]:
    """Clients with constant gradients: settings of FedAvg, and where each of them moves in a round, D [4, 3]."""
    inputs = torch.randn(18, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    objective, algorithm = {"name": "quadratic", "curvatures": [0.0] * 3}, {"name": "fedavg", "weighting": weighting}
    data = dataset(inputs, torch.arange(18) % 3, 3)
    settings = {"data": data, "model": "point", "objective": objective, "local": WHOLE, "algorithm": algorithm}
    return settings, torch.stack([part.mean(0) for part in inputs.split(SIZES)]) * 2 * 0.2


def same(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Whether models are equal, bit by bit."""
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
