"""What is fixed before the first round: the learning problem, and the vectors that a server keeps."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from fedtide.core.randomness import Randomness
from fedtide.training.engine.flat import Layout
from fedtide.world.concepts import Concept


@dataclass(frozen=True)
class ServerVector:
    """A vector [d] that the server keeps: ``r.server.<name>``, ``start`` in all entries at first.

    ``mean_of``: the client memory whose mean over the clients present it is, weighted by their relative sizes omega if
    ``by_size``, also when the population changes; without one it stays as it is.
    """

    name: str
    start: float = 0.0
    mean_of: str | None = None
    by_size: bool = False


@dataclass(frozen=True)
class Problem:
    """What an algorithm knows before the first round.

    Attributes:
        layout: names and slices of the parameters. clients: N. classes: L. input_shape: of a sample.
        rounds: T, fixed in advance. randomness: source of every draw of an algorithm, under a purpose and keys of its own.
        drawn: an initialization [d] of the network for a number, independent of the run's own.
        concepts: what samples are seen as in the world, by number.
    """

    layout: Layout
    clients: int
    classes: int
    input_shape: tuple[int, ...]
    randomness: Randomness
    drawn: Callable[[int], Tensor]
    rounds: int
    concepts: tuple[Concept, ...] = (Concept(),)
