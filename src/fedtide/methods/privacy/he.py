"""Label histograms under additively homomorphic encryption (BFV, appendix C of the FedWCM paper)."""

from __future__ import annotations

from typing import Any

from fedtide.core import extras
from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.randomness import Randomness
from fedtide.methods.privacy.histograms import NUMBER, Histograms

DEGREE = 4096
PLAIN_MODULUS = 1_032_193
"""A prime, one more than a multiple of 2 * DEGREE; sums must stay below half of it."""

CIPHERTEXT, PUBLIC_KEY = 88_556, 134_269
"""Bytes of a serialized ciphertext, whatever the number of classes, and of the public context. Serialization compresses, so
real sizes vary by some hundred bytes; the ledger's must not."""


class Encrypted(Histograms):
    """One client holds the key, all clients encrypt under it, the server adds ciphertexts, the key holder decrypts the sum.

    Degree 4096 with TenSEAL's coefficient moduli. Encryption uses the system's randomness, not the run's; sums are exact, so
    results do not depend on it.

    Raises:
        SettingsError: TenSEAL is not installed.
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

    def add(self, public: Any, uploads: list[bytes]) -> bytes:
        """The sum of ciphertexts; no secret is needed."""
        first, *rest = (self._tenseal.bfv_vector_from(public, upload) for upload in uploads)
        for each in rest:
            first += each
        found: bytes = first.serialize()
        return found

    def decrypt(self, own: Any, ciphertext: bytes) -> list[int]:
        """The key holder's part."""
        found: list[int] = self._tenseal.bfv_vector_from(own, ciphertext).decrypt()
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
        summed: Ints = counts[0] * 0 + self.decrypt(own, self.add(public, uploads))
        return summed

    def traffic(self, clients: int, classes: int) -> tuple[int, int]:
        """The public key through the server, ciphertexts up, their sum to the key holder and back in the clear, frequencies."""
        up = PUBLIC_KEY + clients * CIPHERTEXT + classes * NUMBER
        down = (clients - 1) * PUBLIC_KEY + CIPHERTEXT + clients * classes * NUMBER
        return up, down
