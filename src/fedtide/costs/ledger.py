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

    The model (``w``, ``W``) counts its parameters d and floating buffers q, a declared vector d, and any other name what
    :meth:`Algorithm.payload` says.
    """

    def numbers(name: str) -> int:
        if name in ("w", "W"):
            return size + buffers
        if name in algorithm.server or name in algorithm.client:
            return size
        return algorithm.payload(name, size, classes)

    return Payload(BYTES * sum(map(numbers, algorithm.down)), BYTES * sum(map(numbers, algorithm.up)))
