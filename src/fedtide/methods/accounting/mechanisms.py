"""Noise that is independent or correlated over rounds, as the inverse of a strategy matrix C [T, T]: ``C x = nu``.

``nu_t`` are independent standard normals. All matrices here are lower triangular and have no negative entry, so a client that
takes part in the rounds pi with updates of at most length 1 moves C's side by at most ``sens = |C 1_pi|``, attained by equal
updates; the noise costs it ``mu = sens / z`` of a Gaussian mechanism (Kairouz et al. 2021; Denisov et al. 2022; Choquette-Choo
et al. 2023). Row t of C acts on rounds up to t only, so ``|C 1_pi|^2`` after t rounds is the sum of the first t squares.

Rounds of a block are coupled, blocks are not: C is block-diagonal. ``starts`` int64 [T] is the first round of each round's
block.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from fedtide.core.array_types import Bools, Floats, Ints

Draw = Callable[..., Floats]
"""Standard normals [d], those of this round or, with keys, of something that several rounds share."""

State = dict[str, Floats]


class Mechanism(ABC):
    """Noise of one unit over the rounds of a run."""

    @abstractmethod
    def encode(self, taken: Floats, starts: Ints) -> Floats:
        """``C taken`` for each row of ``taken`` [N, T], [N, T]."""

    def state(self, size: int) -> State:
        """What must be kept from round to round, at the start of a block; arrays [.., d]."""
        return {}

    @abstractmethod
    def noise(self, draw: Draw, block: int, place: int, state: State) -> Floats:
        """``x_t`` [d] in round ``place`` of block number ``block``; ``state`` is updated."""


class Independent(Mechanism):
    """C is the identity: DP-FedAvg."""

    def encode(self, taken: Floats, starts: Ints) -> Floats:
        return taken

    def noise(self, draw: Draw, block: int, place: int, state: State) -> Floats:
        return draw()


class Tree(Mechanism):
    """Noise of a node for each dyadic span of rounds whose sum is used: DP-FTRL.

    The first j rounds' noise is the sum of the nodes that j's binary digits name; one, of length 2^trailing zeros, ends with j.
    """

    def encode(self, taken: Floats, starts: Ints) -> Floats:
        sums = np.concatenate([np.zeros((len(taken), 1)), np.cumsum(taken, axis=1)], axis=1)
        ends = np.arange(1, taken.shape[1] + 1)
        within = ends - starts
        found: Floats = sums[:, ends] - sums[:, ends - (within & -within)]
        return found

    def noise(self, draw: Draw, block: int, place: int, state: State) -> Floats:
        level = ((place + 1) & -(place + 1)).bit_length() - 1
        x = draw(block, level, ((place + 1) >> level) - 1)
        for below in reversed(range(level)):  # nodes of the last round's sum that the new one replaces
            x = x - draw(block, below, (place >> below) - 1)
        return x


class Banded(Mechanism):
    """C is Toeplitz with the coefficients c_0 ... c_{b-1}; the last b - 1 values of x are kept, the newest first."""

    def __init__(self, coefficients: Sequence[float]) -> None:
        self.coefficients = [float(c) for c in coefficients]

    def encode(self, taken: Floats, starts: Ints) -> Floats:
        found, rounds = np.zeros_like(taken), np.arange(taken.shape[1])
        for back, c in enumerate(self.coefficients[: taken.shape[1]]):
            inside = rounds - back >= starts
            found[:, inside] += c * taken[:, rounds[inside] - back]
        return found

    def state(self, size: int) -> State:
        return {"x": np.zeros((len(self.coefficients) - 1, size))}

    def noise(self, draw: Draw, block: int, place: int, state: State) -> Floats:
        first, *others = self.coefficients
        x: Floats = draw()
        for c, before in zip(others, state["x"], strict=True):
            x = x - c * before
        x = x / first
        state["x"] = np.concatenate([x[None], state["x"]])[: len(others)]
        return x


class Blt(Mechanism):
    """Buffered linear Toeplitz: c_0 = 1 and ``c_i = sum_j scale_j decay_j^(i-1)``, with one buffer [d] for each j."""

    def __init__(self, decay: Sequence[float], scale: Sequence[float]) -> None:
        self.decay, self.scale = np.array(decay, dtype=np.float64), np.array(scale, dtype=np.float64)

    def encode(self, taken: Floats, starts: Ints) -> Floats:
        found, buffers = np.zeros_like(taken), np.zeros((len(taken), len(self.decay)))
        for t, start in enumerate(starts):
            buffers *= t > start
            found[:, t] = taken[:, t] + buffers @ self.scale
            buffers = buffers * self.decay + taken[:, t : t + 1]
        return found

    def state(self, size: int) -> State:
        return {"s": np.zeros((len(self.decay), size))}

    def noise(self, draw: Draw, block: int, place: int, state: State) -> Floats:
        x: Floats = draw() - self.scale @ state["s"]
        state["s"] = self.decay[:, None] * state["s"] + x
        return x


def square_root(bands: int) -> list[float]:
    """The first coefficients of the square root of the lower triangular matrix of ones, ``c_i = c_{i-1} (2i - 1)/(2i)``."""
    found = [1.0]
    for i in range(1, bands):
        found.append(found[-1] * (2 * i - 1) / (2 * i))
    return found


def sensitivities(mechanism: Mechanism, taken: Floats, starts: Ints) -> Floats:
    """sens of clients that take part in the rounds ``taken`` [N, T] (0 or 1), after each round, [N, T]."""
    found: Floats = np.sqrt(np.cumsum(mechanism.encode(taken, starts) ** 2, axis=1))
    return found


def separation(taken: Floats | Bools) -> Ints:
    """Fewest rounds from one participation to the next of each row of ``taken`` [N, T]; T with fewer than two."""
    rounds = taken.shape[1]
    found = np.full(len(taken), rounds, dtype=np.int64)
    rows, places = np.nonzero(taken)
    same = np.diff(rows) == 0
    np.minimum.at(found, rows[1:][same], np.diff(places)[same])
    return found
