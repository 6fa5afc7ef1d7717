"""What is recorded of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass
class RoundRecord:
    """What is recorded of a round.

    Attributes:
        row: of ``history.csv``. per_class: accuracies of the reported model by split; ``held``: samples of each class
            that the participants held.
        clients: columns of ``clients.csv``, one value per participant.
        client_scores: columns of the table of client scores, one value per client that is evaluated.
        session_scores: rows of ``session_scores.csv``, after the last round of a session.
        session: facts about the session that begins with this round; ``None`` inside a session and for the first one.
        initial: initial model [d] of the session that begins with this round, else ``None``.
    """

    row: dict[str, float | int | None]
    per_class: dict[str, Sequence[float | None]] = field(default_factory=dict)
    clients: dict[str, Sequence[float]] = field(default_factory=dict)
    client_scores: dict[str, Sequence[Any]] = field(default_factory=dict)
    session_scores: list[dict[str, Any]] = field(default_factory=list)
    session: dict[str, Any] | None = None
    initial: Tensor | None = None
