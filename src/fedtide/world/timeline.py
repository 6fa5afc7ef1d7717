"""The world as a table: which clients are present in round t, which shard each one holds, which labels are evaluated.

Consecutive rounds usually share one assignment of clients to shards, so the table is a list of *assignments* and one index
per round.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.core.errors import SettingsError
from fedtide.core.storage.arrays import flattened, ragged, read_arrays, write_arrays
from fedtide.world.concepts import NO_DRIFT, Concepts
from fedtide.world.presence.transitions import transition_sessions
from fedtide.world.presence.visits import Visits

_ROUNDS = ("assignment_of_round", "session_of_round", "label_views", "view_of_round", "validation")
_HELD_OUT = ("held_out_of_round", "next_of_round", "origin_of_client")


@dataclass(frozen=True)
class Assignment:
    """Which present client (ascending id) holds which shard: ``clients`` and ``shards``, int64 arrays of one length."""

    clients: Ints
    shards: Ints


@dataclass(frozen=True)
class HeldOut:
    """Ascending int64 positions of samples that a model is evaluated on: in the test set, and in the training set.

    ``train`` are training samples that are tested before they are trained on; they belong to split ``test``.
    """

    test: Ints
    validation: Ints
    train: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True)
class Timeline:
    """The whole run's world, written before training; a run only reads it.

    >>> from fedtide.settings.params import Params
    >>> from fedtide.world.building.build import build_timeline
    >>> from fedtide.world.storage.prepared import load_data
    >>> settings = Params({"scenario": {"name": "static", "num_clients": 4, "rounds": 2}}).run()
    >>> timeline = build_timeline(settings, load_data(settings))
    >>> timeline.rounds, timeline.at(0).clients.tolist()
    (2, [0, 1, 2, 3])

    Attributes:
        num_clients: N, ids are 0..N-1 (including clients that are never present).
        num_classes: L.
        shards: list of int64 arrays of positions in the training set (unique within a shard), virtual ones with ``concepts``.
        assignments: distinct client-to-shard tables.
        assignment_of_round: int64 [rounds], index into ``assignments``.
        session_of_round: int64 [rounds], 0-based session number, non-decreasing.
        label_views: bool [views, L], distinct sets of labels that are evaluated.
        view_of_round: int64 [rounds], index into ``label_views``.
        validation: int64 positions of the training set held out for tuning; never in a shard.
        notes: JSON-able facts about its construction.
        held_out: distinct sets of held-out samples, if not all of them are evaluated in every round.
        held_out_of_round: int64 [rounds], index into ``held_out``, -1 for all samples.
        next_of_round: the same, of the samples that are evaluated ahead of their time, -1 for none.
        origin_of_client: int64 [N], numbers of the clients in the data, empty if they are not clients of the data.
        active: for each round the clients whose samples are made in its time, ascending int64; empty if that is unknown.
        visits: when clients are present in seconds, if that decides and not the rounds: then these list, for every round, all
            clients that are ever present.
        concepts: what samples are seen as; without drift only as they are.
        planned: ``session_of_round`` before the alarms of a detector began sessions; empty if none did.
        drawn_from: the timeline that cohorts are drawn from, if clients are absent from this one that are present there.
    """

    num_clients: int
    num_classes: int
    shards: list[Ints]
    assignments: list[Assignment]
    assignment_of_round: Ints
    session_of_round: Ints
    label_views: Bools
    view_of_round: Ints
    validation: Ints
    notes: dict[str, Any] = field(default_factory=dict)
    held_out: list[HeldOut] = field(default_factory=list)
    held_out_of_round: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    next_of_round: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    origin_of_client: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    active: list[Ints] = field(default_factory=list)
    visits: Visits | None = None
    concepts: Concepts = NO_DRIFT
    planned: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    drawn_from: Timeline | None = None

    @property
    def rounds(self) -> int:
        """Number of rounds T."""
        return len(self.assignment_of_round)

    @property
    def sessions(self) -> int:
        """Number of sessions."""
        return int(self.session_of_round[-1]) + 1 if self.rounds else 0

    def at(self, round_: int) -> Assignment:
        """Clients present in a round (0-based), ascending, and their shards."""
        return self.assignments[int(self.assignment_of_round[round_])]

    def shards_at(self, round_: int) -> list[Ints]:
        """Shards of the clients present in a round (0-based), by ascending id."""
        return self.shards_of(self.at(round_))

    def shards_of(self, present: Assignment) -> list[Ints]:
        """Shards of these clients, in their order."""
        return [self.shards[shard] for shard in present.shards]

    def sizes_at(self, round_: int) -> Ints:
        """Samples of each client present in a round (0-based), by ascending id."""
        return self.sizes_of(self.at(round_))

    def sizes_of(self, present: Assignment) -> Ints:
        """Samples of each of these clients."""
        return self._lengths[present.shards]

    def eligible_of(self, present: Assignment) -> Assignment:
        """Those of these clients that hold samples."""
        holds = self.sizes_of(present) > 0
        return present if holds.all() else Assignment(present.clients[holds], present.shards[holds])

    def mean_size_of(self, present: Assignment) -> float:
        """Mean number of samples of these clients."""
        sizes = self.sizes_of(present)
        return float(sizes.mean()) if len(sizes) else 0.0

    @cached_property
    def _lengths(self) -> Ints:
        return np.array([len(shard) for shard in self.shards], dtype=np.int64)

    def labels_at(self, round_: int) -> Bools:
        """Labels that are evaluated in a round, bool [L]."""
        view: Bools = self.label_views[int(self.view_of_round[round_])]
        return view

    def labels_until(self, round_: int) -> Bools:
        """Labels that were evaluated up to and including a round, bool [L]."""
        views = self.label_views[np.unique(self.view_of_round[: round_ + 1])]
        return np.asarray(views.any(axis=0), dtype=np.bool_)

    def evaluated_at(self, round_: int) -> HeldOut | None:
        """Samples that are evaluated in a round; ``None`` for all."""
        return self._held_out(self.held_out_of_round, round_)

    def evaluated_ahead_at(self, round_: int) -> HeldOut | None:
        """Samples of a later time that are evaluated in a round as well; ``None`` for none."""
        return self._held_out(self.next_of_round, round_)

    @property
    def looks_ahead(self) -> bool:
        """Whether samples of a later time are evaluated in any round."""
        return bool((self.next_of_round >= 0).any())

    def tested_in(self, period: int) -> tuple[HeldOut | None, Bools, Floats | None]:
        """What the model at the end of a period (0-based) is evaluated on: samples, labels and mixture of concepts.

        As :meth:`evaluated_at`, :meth:`labels_at` and :meth:`mixture_at` say of its last round.
        """
        last = self._period_ends[period]
        return self.evaluated_at(last), self.labels_at(last), self.mixture_at(last)

    @cached_property
    def tests_sessions(self) -> bool:
        """Whether sessions are evaluated on samples of their own: not all on the same samples, labels and concepts."""
        indices = [array[self._period_ends] for array in (self.held_out_of_round, self.view_of_round) if len(array)]
        seen = {None if mixture is None else mixture.tobytes() for mixture in map(self.mixture_at, self._period_ends)}
        return len(seen) > 1 or any(len(np.unique(index)) > 1 for index in indices)

    def with_session(self, round_: int) -> Timeline:
        """The timeline with a session that begins in a round, unless one does; pilot sessions are not divided."""
        session = self.session_of_round[round_ : round_ + 1]
        if not len(session) or session[0] < self.pilot or self.session_span(round_)[0] == round_:
            return self
        later = np.arange(self.rounds) >= round_
        planned = self.planned if len(self.planned) else self.session_of_round
        return replace(self, session_of_round=self.session_of_round + later, planned=planned)

    def without(self, clients: Ints, rounds: Bools) -> Timeline:
        """The same world but for some clients, who are absent from the rounds in which ``rounds``, bool [T], is true.

        Cohorts are drawn as in this one, and the places of absent clients stay empty.
        """
        numbers, places = np.unique(self.assignment_of_round[rounds], return_inverse=True)
        fewer: list[Assignment] = []
        for here in (self.assignments[number] for number in numbers):
            stays = ~np.isin(here.clients, clients)
            fewer.append(here if stays.all() else Assignment(here.clients[stays], here.shards[stays]))
        index, assignments = self.assignment_of_round.copy(), [*self.assignments, *fewer]
        index[rounds] = len(self.assignments) + places
        drawn_from = self.drawn_from or self
        return replace(self, assignments=assignments, assignment_of_round=index, drawn_from=drawn_from)

    def cohort(self, drawn: Assignment, round_: int) -> Assignment:
        """Those of the clients drawn for a round who are present."""
        if self.drawn_from is None:
            return drawn
        here = np.isin(drawn.clients, self.at(round_).clients)
        return Assignment(drawn.clients[here], drawn.shards[here])

    @property
    def period_of_round(self) -> Ints:
        """What scores and records number by: periods of the data's time, whatever alarms begin in them, else sessions."""
        return self.planned if self.has_periods and len(self.planned) else self.session_of_round

    @property
    def period_starts(self) -> Ints:
        """First round of each period, int64 [periods]."""
        return np.append(0, self._period_ends[:-1] + 1)

    def ends_period(self, round_: int) -> bool:
        """Whether a round (0-based) is the last of its period."""
        return bool(self._period_ends[self.period_of_round[round_]] == round_)

    @cached_property
    def _period_ends(self) -> Ints:
        """Last round of each period."""
        return np.append(np.flatnonzero(np.diff(self.period_of_round)), self.rounds - 1)

    def ends_session(self, round_: int) -> bool:
        """Whether a round (0-based) is the last of its session."""
        first, rounds = self.session_span(round_)
        return round_ == first + rounds - 1

    def _held_out(self, indices: Ints, round_: int) -> HeldOut | None:
        return self.held_out[indices[round_]] if len(indices) and indices[round_] >= 0 else None

    def concept_shares(self, round_: int) -> Floats:
        """Share of the samples of each client present in a round that it sees under each concept, [present, C]."""
        return self.shares_of(self.at(round_).shards)

    def shares_of(self, shards: Ints | list[int]) -> Floats:
        """Share of the samples of some shards (by number) under each concept, [shards, C]; 0 for empty shards."""
        return self._concepts_of_shards[shards]

    def mixture_at(self, round_: int) -> Floats | None:
        """Share of each concept among all samples that clients hold in a round, [C].

        None without drift, and where all samples that are evaluated have owners, under whose concepts they are seen.
        """
        if not self.concepts or self.evaluated_at(round_) is not None:
            return None
        sizes = self.sizes_at(round_)
        return np.asarray(sizes @ self.concept_shares(round_) / sizes.sum(), dtype=np.float64)

    def changed_at(self, round_: int) -> Ints:
        """Clients present both in a round and in the one before whose concepts differ, ascending."""
        if round_ == 0 or not self.concepts or self.at(round_) is self.at(round_ - 1):
            return np.zeros(0, dtype=np.int64)
        now, before = self.at(round_).clients, self.at(round_ - 1).clients
        both, here, there = np.intersect1d(now, before, return_indices=True)
        differ = self.concept_shares(round_)[here] != self.concept_shares(round_ - 1)[there]
        return np.asarray(both[differ.any(1)], dtype=np.int64)

    @cached_property
    def _concepts_of_shards(self) -> Floats:
        if not self.concepts:
            return (self._lengths > 0).astype(np.float64)[:, None]
        return np.stack([self.concepts.shares(shard) for shard in self.shards])

    def session_span(self, round_: int) -> tuple[int, int]:
        """First round and number of rounds of the session that ``round_`` belongs to."""
        session = self.session_of_round[round_]
        first, end = np.searchsorted(self.session_of_round, [session, session + 1])
        return int(first), int(end - first)

    @property
    def session_starts(self) -> Ints:
        """First round of each session, int64 [sessions]."""
        return np.searchsorted(self.session_of_round, np.arange(self.sessions))

    @property
    def pilot(self) -> int:
        """Number of pilot sessions P; 0 in a scenario without a pilot."""
        return int(self.notes.get("pilot_sessions", 0))

    def returning(self, period: int) -> bool:
        """Whether a period (0-based) begins with exactly the clients of an earlier one after the pilot.

        Of periods that recur: whether an earlier one is of the same kind.
        """
        if kinds := self.kinds:
            return kinds[period] in kinds[:period]
        starts = self.period_starts
        own = self.at(starts[period]).clients
        return any(np.array_equal(self.at(round_).clients, own) for round_ in starts[self.pilot : period])

    def looks_ahead_at(self, round_: int) -> bool:
        """Whether a round is the last one before a period that its model is evaluated on."""
        return self.evaluated_ahead_at(round_) is not None and self.ends_period(round_)

    @property
    def has_periods(self) -> bool:
        """Whether sessions are periods of the data's own time."""
        return "periods" in self.notes

    @property
    def kinds(self) -> list[str]:
        """The kind of each session where sessions are periods that recur, such as weekends; else empty."""
        return [str(kind) for kind in self.notes.get("kinds", ())]

    @property
    def transition_sessions(self) -> list[int]:
        """Numbers (from 1) of the sessions that reports count as transitions, see :func:`transition_sessions`.

        Periods are new data, so all of them count; of periods that recur, those of an earlier kind.
        """
        counts = self.kinds or not self.has_periods
        returning = {session + 1 for session in range(self.sessions) if counts and self.returning(session)}
        return transition_sessions(self.pilot, self.sessions, returning)

    @property
    def digest(self) -> str:
        """Hash of who holds what when."""
        indices = [self.assignment_of_round, self.session_of_round, self.view_of_round, self.validation]
        indices += [self.held_out_of_round, self.next_of_round, self.origin_of_client]
        held = [array for item in self.assignments for array in (item.clients, item.shards)]
        held += [array for item in self.held_out for array in (item.test, item.validation)]
        held += [item.train for item in self.held_out if len(item.train)]
        arrays: list[NDArray[Any]] = [*indices, self.label_views, *self.shards, *held, *self.active]
        arrays += [] if self.visits is None else self.visits.arrays().values()
        facts = f"{self.num_clients} {[array.shape for array in arrays]}"
        value = hashlib.sha256((f"{facts} {self.concepts}" if self.concepts else facts).encode())
        for array in arrays:
            value.update(np.ascontiguousarray(array).tobytes())
        return value.hexdigest()[:12]

    def save(self, path: Path, identity: str) -> None:
        """Write the timeline, and the ``identity`` of what it was made from, to one ``.npz``; equal ones are equal files."""
        path.parent.mkdir(parents=True, exist_ok=True)
        empty = np.zeros(0, dtype=np.int64)
        facts = {"identity": identity} | {key: getattr(self, key) for key in ("num_clients", "num_classes", "notes")}
        facts |= {"concepts": self.concepts.to_json()} if self.concepts else {}
        arrays = {
            **flattened("shard", self.shards),
            "assignment_clients": np.concatenate([*(item.clients for item in self.assignments), empty]),
            "assignment_shards": np.concatenate([*(item.shards for item in self.assignments), empty]),
            "assignment_sizes": np.array([len(item.clients) for item in self.assignments], dtype=np.int64),
            **{name: getattr(self, name) for name in _ROUNDS},
            **flattened("test", [held.test for held in self.held_out]),
            **flattened("validation", [held.validation for held in self.held_out]),
            **{name: getattr(self, name) for name in _HELD_OUT},
            **flattened("active", self.active),
            "meta": np.array(json.dumps(facts, sort_keys=True)),
        }
        if any(len(held.train) for held in self.held_out):
            arrays |= flattened("tested_train", [held.train for held in self.held_out])
        arrays |= {} if self.visits is None else {f"visit_{name}": a for name, a in self.visits.arrays().items()}
        write_arrays(path, arrays)

    @staticmethod
    def load(path: Path, identity: str | None = None) -> Timeline:
        """Read what :meth:`save` wrote; it must have ``identity``, if one is given.

        Raises:
            SettingsError: the file is missing, damaged, of an earlier version, not a timeline, or of another identity.
        """
        try:
            arrays = read_arrays(path)
        except OSError as error:
            raise SettingsError(f"{path} cannot be read ({error.strerror})") from None
        if "shard_values" not in arrays:
            raise SettingsError(f"{path} does not hold a timeline")
        meta = json.loads(str(arrays["meta"]))
        if identity not in (None, meta["identity"]):
            raise SettingsError(f"{path} holds another timeline ({meta['identity']} instead of {identity})")
        pieces = np.cumsum(arrays["assignment_sizes"])[:-1]
        clients = np.split(arrays["assignment_clients"], pieces)
        shards = np.split(arrays["assignment_shards"], pieces)
        held = ["test", "validation", *(["tested_train"] if "tested_train_values" in arrays else [])]
        visits = {name.removeprefix("visit_"): arrays[name] for name in arrays if name.startswith("visit_")}
        return Timeline(
            num_clients=meta["num_clients"],
            num_classes=meta["num_classes"],
            shards=ragged(arrays, "shard"),
            assignments=[Assignment(c, s) for c, s in zip(clients, shards, strict=True)],
            notes=meta["notes"],
            held_out=[HeldOut(*parts) for parts in zip(*map(partial(ragged, arrays), held), strict=True)],
            active=ragged(arrays, "active"),
            visits=Visits(**visits) if visits else None,
            concepts=Concepts.from_json(meta["concepts"]) if "concepts" in meta else NO_DRIFT,
            **{name: arrays[name] for name in (*_ROUNDS, *_HELD_OUT)},  # type: ignore[arg-type]
        )
