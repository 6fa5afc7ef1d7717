"""Label histograms under pairwise masks that cancel in the sum (Bonawitz et al. 2017, without its secret sharing)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.randomness import Randomness
from fedtide.methods.privacy.histograms import NUMBER, Histograms

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
