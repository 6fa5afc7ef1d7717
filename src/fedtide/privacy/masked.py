"""Label histograms under pairwise masks that cancel in the sum (Bonawitz et al. 2017, without its secret sharing)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import SettingsError
from fedtide.core.randomness import generator
from fedtide.privacy.base import NUMBER, Histograms, Ints

Words = NDArray[np.uint32]
KEY = 32
"""Bytes of a public key, and of a seed that is given away."""


class Exchange(Histograms):
    """Every client adds a mask for each other one, the negative of which that one adds; all modulo 2^32.

    The two clients of a pair agree on a seed by exchanging public keys through the server. A client that leaves before its
    upload arrives spoils the sum of the others until these give away the seeds they had agreed on with it. In a simulated
    run everybody present answers, and the seeds come from the run's generators.
    """

    def mask(self, client: int, clients: int, classes: int, seed: int, session: int) -> Words:
        """What a client adds to its counts: uint32 [L]."""
        total = np.zeros(classes, dtype=np.uint32)
        for other in range(clients):
            if other != client:
                shared = _shared(client, other, classes, seed, session)
                total = total + shared if client < other else total - shared
        return total

    def unmask(self, uploads: Mapping[int, Words], gone: Collection[int], seed: int, session: int) -> Ints:
        """The sum [L] of the clients that answered, after they gave away their seeds with those that are ``gone``."""
        total: Words = np.sum(list(uploads.values()), axis=0, dtype=np.uint32)
        for client in uploads:
            for other in gone:
                shared = _shared(client, other, len(total), seed, session)
                total = total - shared if client < other else total + shared
        return total.astype(np.int64)

    def total(self, counts: Ints, seed: int, session: int) -> Ints:
        """See :meth:`Histograms.total`."""
        if counts.sum() >= 2**32:
            raise SettingsError(f"algorithm.label_histogram = masked: {counts.sum()} samples do not fit into 32 bits")
        clients, classes = counts.shape
        uploads = {
            client: counts[client].astype(np.uint32) + self.mask(client, clients, classes, seed, session)
            for client in range(clients)
        }
        return self.unmask(uploads, (), seed, session)

    def traffic(self, clients: int, classes: int) -> tuple[int, int]:
        """A public key and masked counts up; everybody else's keys and the frequencies down."""
        up = KEY + classes * NUMBER
        down = (clients - 1) * KEY + classes * NUMBER
        return clients * up, clients * down


def _shared(first: int, second: int, classes: int, seed: int, session: int) -> Words:
    """What the seed of two clients gives: uint32 [L], uniform."""
    rng = generator(seed, "histogram.mask", session, *sorted((first, second)))
    return rng.integers(0, 2**32, classes, dtype=np.uint32)
