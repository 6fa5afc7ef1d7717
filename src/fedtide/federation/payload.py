"""Bytes on the wire, from what an algorithm declares to send."""

from __future__ import annotations

from dataclasses import dataclass

from fedtide.algorithms.base import Algorithm

BYTES = 4
"""Bytes of one number on the wire, independent of the simulation's precision."""


@dataclass(frozen=True)
class Payload:
    """Bytes of one exchange of one client, and their size in exchanges of the model alone."""

    down: int
    up: int
    models: float


def payload(algorithm: Algorithm, size: int, buffers: int) -> Payload:
    """Bytes that one participant receives and sends in one exchange.

    The model (``w``, ``W``) has d parameters and q floating buffers; the size of any other name is :meth:`Algorithm.payload`,
    d unless overridden. The normalised cost kappa of a round (DynamicFL, section 4) is ``models`` times its exchanges over
    n L, the steps of n participants of mean size: 1 if the model is exchanged after every step.
    """

    def numbers(name: str) -> int:
        return size + buffers if name in ("w", "W") else algorithm.payload(name)

    down, up = (sum(map(numbers, names)) for names in (algorithm.down, algorithm.up))
    return Payload(BYTES * down, BYTES * up, (down + up) / (2 * (size + buffers)))
