"""Bytes on the wire, from what an algorithm declares to send and the links that its updates pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedtide.algorithms.base import Algorithm, shared_size
from fedtide.uplink.base import Compression, Link

BYTES = 4  # bytes of one number on the wire, independent of the simulation's precision


@dataclass(frozen=True)
class Payload:
    """Bytes of one exchange of one client, and their size in exchanges of the model alone.

    Of the bytes ``down``, ``model`` are those of the parameters, and ``update`` those of a compressed update of them.
    """

    down: int
    up: int
    models: float
    model: int = 0
    update: int = 0

    def received(self, missed: int | None) -> int:
        """Bytes for a client that lacks so many updates, each of which is sent, or the whole model; None: it lacks all."""
        return self.down - (0 if missed is None else max(0, self.model - missed * self.update))

    def worth(self, exchanges: int, spared: int) -> float:
        """Size of some exchanges in which so many bytes were not sent, in exchanges of the model alone."""
        return exchanges * self.models - (spared * self.models / (self.down + self.up) if spared else 0.0)


def payload(
    algorithm: Algorithm, links: Sequence[Link], size: int, buffers: int, downlink: Compression | None = None
) -> Payload:
    """Bytes that one participant receives and sends in one exchange.

    The model (``w``, ``W``) has d parameters, or those that are :meth:`Algorithm.shared`, and q floating buffers, unless
    clients keep these; the size of any other name is :meth:`Algorithm.payload`, d unless overridden. What a link makes of an
    update's size holds for the parameters of ``W`` and for the declared vectors that the server derives from them, all that are
    sent but :attr:`Algorithm.apart`. The normalised cost kappa of a round (DynamicFL, section 4) is ``models`` times its
    exchanges over n L, the steps of n participants of mean size: 1 if the model is exchanged after every step.
    """
    vectors = {*algorithm.client, *(vector.name for vector in algorithm.server_vectors())}
    with_model = 0 if algorithm.keeps_buffers else BYTES * buffers

    def update(numbers: int, links: Sequence[Link]) -> int:
        found = BYTES * numbers
        for link in links:
            bits = link.bits(numbers)
            found = found if bits is None else -(-bits // 8)
        return found

    def bytes_of(name: str, sent: bool) -> int:
        if name in ("w", "W"):
            numbers = shared_size(algorithm, algorithm.problem.layout)
            return (update(numbers, links) if sent else BYTES * numbers) + with_model
        numbers = algorithm.payload(name)
        derived = sent and name in vectors and name not in algorithm.apart
        return update(size, links) if links and derived else BYTES * numbers

    down = sum(bytes_of(name, False) for name in algorithm.down)
    up = sum(bytes_of(name, True) for name in algorithm.up)
    models = (down + up) / (2 * BYTES * (size + buffers))
    return Payload(down, up, models, *((BYTES * size, update(size, [downlink])) if downlink else ()))
