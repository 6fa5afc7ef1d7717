"""Bytes on the wire, from what an algorithm declares to send."""

from __future__ import annotations

from dataclasses import dataclass

from fedtide.algorithms.base import Algorithm

BYTES = 4
"""Bytes of one number on the wire, whatever the precision of the simulation."""


@dataclass(frozen=True)
class Payload:
    """Bytes of one exchange of one client."""

    down: int
    up: int


def payload(algorithm: Algorithm, size: int, buffers: int, classes: int) -> Payload:
    """Bytes that one participant receives and sends in one exchange.

    The model (``w``, ``W``) counts its parameters d and floating buffers q, any other name what :meth:`Algorithm.payload`
    says: d unless overridden.
    """

    def numbers(name: str) -> int:
        return size + buffers if name in ("w", "W") else algorithm.payload(name, size, classes)

    return Payload(BYTES * sum(map(numbers, algorithm.down)), BYTES * sum(map(numbers, algorithm.up)))
