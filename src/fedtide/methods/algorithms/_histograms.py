"""How the clients' label histograms are summed, with or without showing the server each of them."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedtide.core import extras
from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.randomness import Randomness

NUMBER = 4
"""Bytes of a count or a frequency on the wire."""


class Histograms(ABC):
    """A one-off exchange: all clients upload their counts and receive the sum.

    Attributes:
        hides: whether the server learns nothing but the sum, so that clients compute and send their own scores.
    """

    hides: ClassVar[bool] = True

    @abstractmethod
    def total(self, counts: Ints, randomness: Randomness, session: int) -> Ints:
        """Exact sum [L] of the clients' counts [K, L], keyed by ``session``; a SettingsError if it is too large."""

    @abstractmethod
    def traffic(self, clients: int, classes: int) -> tuple[int, int]:
        """Bytes that all clients together send and receive."""


class Plain(Histograms):
    """The server sees every client's counts."""

    hides = False

    def total(self, counts: Ints, randomness: Randomness, session: int) -> Ints:
        return counts.sum(0)  # type: ignore[no-any-return]

    def traffic(self, clients: int, classes: int) -> tuple[int, int]:
        """Counts up, frequencies down."""
        return clients * classes * NUMBER, clients * classes * NUMBER


Words = NDArray[np.uint32]
KEY = 32
"""Bytes of a public key, and of a revealed seed."""


class Masked(Histograms):
    """Each pair of clients shares a mask, which one adds and the other subtracts; all modulo 2^32.

    The two clients of a pair agree on a seed by exchanging public keys through the server. If a client leaves before its
    upload arrives, the sum stays masked until the others reveal the seeds they share with it. In a simulated run all clients
    present answer, and the seeds come from the run's generators.
    """

    def mask(self, client: int, clients: int, classes: int, randomness: Randomness, session: int) -> Words:
        """What a client adds to its counts: uint32 [L]."""
        total = np.zeros(classes, dtype=np.uint32)
        for other in range(clients):
            if other != client:
                shared = _shared(client, other, classes, randomness, session)
                total = total + shared if client < other else total - shared
        return total

    def unmask(self, uploads: Mapping[int, Words], gone: Collection[int], randomness: Randomness, session: int) -> Ints:
        """The sum [L] of the clients that answered, once they have revealed the seeds they share with those ``gone``."""
        total: Words = np.sum(list(uploads.values()), axis=0, dtype=np.uint32)
        for client in uploads:
            for other in gone:
                shared = _shared(client, other, len(total), randomness, session)
                total = total - shared if client < other else total + shared
        return total.astype(np.int64)

    def total(self, counts: Ints, randomness: Randomness, session: int) -> Ints:
        if counts.sum() >= 2**32:
            raise SettingsError(f"algorithm.label_histogram = masked: {counts.sum()} samples do not fit into 32 bits")
        clients, classes = counts.shape
        uploads = {
            client: counts[client].astype(np.uint32) + self.mask(client, clients, classes, randomness, session)
            for client in range(clients)
        }
        return self.unmask(uploads, (), randomness, session)

    def traffic(self, clients: int, classes: int) -> tuple[int, int]:
        """A public key and masked counts up; the other clients' keys and the frequencies down."""
        up = KEY + classes * NUMBER
        down = (clients - 1) * KEY + classes * NUMBER
        return clients * up, clients * down


def _shared(first: int, second: int, classes: int, randomness: Randomness, session: int) -> Words:
    """The mask of a pair of clients: uint32 [L], uniform."""
    rng = randomness.generator("histogram.mask", session, *sorted((first, second)))
    return rng.integers(0, 2**32, classes, dtype=np.uint32)


DEGREE = 4096
PLAIN_MODULUS = 1_032_193
"""A prime, one more than a multiple of 2 * DEGREE; sums must stay below half of it."""

CIPHERTEXT, PUBLIC_KEY = 88_556, 134_269
"""Bytes of a serialized ciphertext, whatever the number of classes, and of the public context. Serialization compresses, so
real sizes vary by some hundred bytes; the ledger's must not."""


class Encrypted(Histograms):
    """One client holds the key, all clients encrypt under it, the server adds ciphertexts, the key holder decrypts the sum.

    Degree 4096 with TenSEAL's coefficient moduli. Encryption uses the system's randomness, not the run's; sums are exact.
    """

    def __init__(self) -> None:
        extras.require("he", "algorithm.label_histogram = he", otherwise="choose masked")
        import tenseal

        self._tenseal: Any = tenseal

    def contexts(self) -> tuple[Any, Any]:
        """The key holder's context, and the public one that it sends to the other clients."""
        scheme = self._tenseal.SCHEME_TYPE.BFV
        own = self._tenseal.context(scheme, poly_modulus_degree=DEGREE, plain_modulus=PLAIN_MODULUS)
        return own, self._tenseal.context_from(own.serialize(save_galois_keys=False, save_relin_keys=False))

    def encrypt(self, public: Any, counts: Ints) -> bytes:
        """A client's counts [L] as it sends them."""
        found: bytes = self._tenseal.bfv_vector(public, counts.tolist()).serialize()
        return found

    def total(self, counts: Ints, randomness: Randomness, session: int) -> Ints:
        most = int(counts.sum(0).max())
        if most > PLAIN_MODULUS // 2:
            raise SettingsError(
                f"algorithm.label_histogram = he: a class has {most} samples; the plain modulus allows "
                f"{PLAIN_MODULUS // 2}"
            )
        own, public = self.contexts()
        uploads = [self.encrypt(public, each) for each in counts]
        first, *rest = (self._tenseal.bfv_vector_from(public, upload) for upload in uploads)
        for each in rest:
            first += each
        summed: Ints = counts[0] * 0 + self._tenseal.bfv_vector_from(own, first.serialize()).decrypt()
        return summed

    def traffic(self, clients: int, classes: int) -> tuple[int, int]:
        """The public key through the server, ciphertexts up, their sum to the key holder and back in the clear, frequencies."""
        up = PUBLIC_KEY + clients * CIPHERTEXT + classes * NUMBER
        down = (clients - 1) * PUBLIC_KEY + CIPHERTEXT + clients * classes * NUMBER
        return up, down


Protocol = Literal["plain", "masked", "he"]


def histograms(protocol: Protocol) -> Histograms:
    """How label histograms are summed under a protocol; a SettingsError if its package is not installed."""
    known: dict[Protocol, type[Histograms]] = {"plain": Plain, "masked": Masked, "he": Encrypted}
    return known[protocol]()
