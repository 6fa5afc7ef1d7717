"""The only source of randomness: generators keyed by (seed, purpose, keys), never a global state.

So a resumed run equals an uninterrupted one, chunks and workers change no draw, and two algorithms at one seed see the same
cohorts.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer (Steele et al. 2014, SplitMix64)
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


def _digest(seed: int, purpose: str, keys: tuple[int, ...], size: int) -> bytes:
    packed = struct.pack(f"<{len(keys) + 1}q", seed, *keys) + purpose.encode()
    return hashlib.blake2b(packed, digest_size=size).digest()


class _Key(ISeedSequence):
    """A key in the place of a seed: with ``Philox(key=...)`` each generator would first ask the system for a seed it drops."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> NDArray[Any]:
        return self._words


def generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """A NumPy generator for one purpose, e.g. ``generator(seed, "batches", round, client)``."""
    words = np.frombuffer(_digest(seed, purpose, keys, 16), dtype=np.uint64)
    return np.random.Generator(np.random.Philox(_Key(words)))  # type: ignore[arg-type]  # numpy takes any ISeedSequence


def key64(seed: int, purpose: str, *keys: int) -> int:
    """The same key as one signed 64-bit integer, for :func:`hashed_uniform` and torch generators."""
    return int.from_bytes(_digest(seed, purpose, keys, 8), "little", signed=True)


def _digests(seed: int, purpose: str, keys: tuple[int, ...], last: Iterable[int], size: int) -> Iterator[bytes]:
    """``_digest`` with each of some ``last`` keys."""
    first, end = struct.pack(f"<{len(keys) + 1}q", seed, *keys), purpose.encode()
    pack = struct.Struct("<q").pack
    return (hashlib.blake2b(first + pack(key) + end, digest_size=size).digest() for key in last)


def generators(seed: int, purpose: str, keys: tuple[int, ...], last: Iterable[int]) -> Iterator[np.random.Generator]:
    """``generator(seed, purpose, *keys, key)`` for each of some ``last`` keys; each is valid until the next one is taken."""
    philox = np.random.Philox(_Key(np.zeros(2, dtype=np.uint64)))  # type: ignore[arg-type]
    rng, fresh = np.random.Generator(philox), philox.state
    for digest in _digests(seed, purpose, keys, last, 16):
        fresh["state"]["key"] = np.frombuffer(digest, dtype=np.uint64)
        philox.state = fresh  # a fifth of the time that another generator takes
        yield rng


def keys64(seed: int, purpose: str, keys: tuple[int, ...], last: Iterable[int]) -> NDArray[np.int64]:
    """``key64(seed, purpose, *keys, key)`` for each of some ``last`` keys."""
    return np.frombuffer(b"".join(_digests(seed, purpose, keys, last, 8)), dtype="<i8")


def torch_generator(seed: int, purpose: str, *keys: int) -> torch.Generator:
    """A torch CPU generator for one purpose."""
    return torch.Generator().manual_seed(key64(seed, purpose, *keys) & (2**63 - 1))


@dataclass(frozen=True)
class Randomness:
    """The draws of one run: generators keyed by its seed, a purpose and further keys."""

    seed: int

    def generator(self, purpose: str, *keys: int) -> np.random.Generator:
        return generator(self.seed, purpose, *keys)

    def torch_generator(self, purpose: str, *keys: int) -> torch.Generator:
        return torch_generator(self.seed, purpose, *keys)


def _shift(value: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 (torch's is arithmetic)."""
    return (value >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def hashed_uniform(key: Tensor, count: int) -> Tensor:
    """Uniform float32 numbers [..., count] in [0, 1) by int64 keys [...], the same on every device and under ``vmap``.

    SplitMix64 output of ``key + i`` (Steele et al. 2014), top 24 bits.
    """
    index = torch.arange(1, count + 1, device=key.device, dtype=torch.int64)
    value = key.unsqueeze(-1) + index.mul_(_GOLDEN)
    value.bitwise_xor_(_shift(value, 30)).mul_(_MIX_1)
    value.bitwise_xor_(_shift(value, 27)).mul_(_MIX_2)  # SplitMix64's last step only changes lower bits
    return _shift(value, 40).to(torch.float32).mul_(1.0 / (1 << 24))
