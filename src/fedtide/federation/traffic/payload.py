"""Bytes on the wire, from what an algorithm declares to send and the links that its updates pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fedtide.methods.algorithms.base import Algorithm, Extra, Layout, server_vectors, shared_size, shares_buffers

BYTES = 4  # bytes of one number on the wire, independent of the simulation's precision


class Shortening(Protocol):
    """What may change the size of an update on the wire; see :meth:`fedtide.federation.types.Feature.bits`."""

    def bits(self, numbers: int) -> int | None: ...


@dataclass(frozen=True)
class Payload:
    """Bytes of one exchange of one client, and their size in exchanges of the model alone."""

    down: int
    up: int
    models: float

    def worth(self, exchanges: int, spared: int) -> float:
        """Size of some exchanges in which so many bytes were not sent, in exchanges of the model alone."""
        return exchanges * self.models - (spared * self.models / (self.down + self.up) if spared else 0.0)


def payload(algorithm: Algorithm, features: Sequence[Shortening], layout: Layout, extra: Extra) -> Payload:
    """Bytes that one participant receives and sends in one exchange.

    The model (``w``, ``W``) has d parameters, or those that are :meth:`Algorithm.shared`, and q floating buffers, unless
    clients keep these; the size of any other name is :meth:`Algorithm.width`, d unless overridden. What features make of an
    update's size holds for the parameters of ``W`` and for the declared vectors that the server derives from them, all that are
    sent but :attr:`Algorithm.apart`. The normalized cost kappa of a round (DynamicFL, section 4) is ``models`` times its
    exchanges over n L, the steps of n participants of mean size: 1 if the model is exchanged after every step.
    """
    size, buffers = layout.size, layout.buffer_size
    vectors = {*algorithm.client, *(vector.name for vector in server_vectors(algorithm))}
    with_model = BYTES * buffers if shares_buffers(algorithm, layout) else 0

    def update(numbers: int) -> int | None:
        """Bytes of an update; None if no feature changes them."""
        found = [bits for feature in features if (bits := feature.bits(numbers)) is not None]
        return -(-found[-1] // 8) if found else None

    def bytes_of(name: str, sent: bool) -> int:
        if name in ("w", "W"):
            numbers = shared_size(algorithm, layout)
            return _either(update(numbers) if sent else None, BYTES * numbers) + with_model
        derived = sent and name in vectors and name not in algorithm.apart
        return _either(update(size) if derived else None, BYTES * algorithm.width(name, layout, extra))

    down = sum(bytes_of(name, False) for name in algorithm.down)
    up = sum(bytes_of(name, True) for name in algorithm.up)
    return Payload(down, up, (down + up) / (2 * BYTES * (size + buffers)))


def _either(changed: int | None, plain: int) -> int:
    return plain if changed is None else changed
