"""What jobs cost, computed for those next in line together: of many at once, each takes a third of the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedtide.methods.costs.wireless import JobCosts, Wireless

AHEAD = 32
"""Most jobs computed before they start."""

Behind = Callable[[], Sequence[tuple[int, int, int]]]
"""Clients that wait behind those that start, at most :data:`AHEAD`, in order, and the samples that each would process and the
bytes that it would receive."""


class Durations:
    """Slots and energy of jobs; see :meth:`Wireless.job_costs`, whose numbers depend on a job's own number and client alone."""

    def __init__(self, wireless: Wireless) -> None:
        self._wireless = wireless
        self._known: dict[tuple[int, int, int, int], tuple[int, float]] = {}

    def __call__(
        self,
        numbers: Sequence[int],
        clients: Sequence[int],
        samples: Sequence[int],
        down: Sequence[int],
        up: int,
        places: int,
        behind: Behind,
    ) -> JobCosts:
        """The costs of jobs with consecutive ``numbers``; of those ``behind``, unless they are known already, too."""
        jobs = list(zip(numbers, clients, samples, down, strict=True))
        if not self._known.keys() >= set(jobs):
            wanted = [*jobs, *((number, *job) for number, job in enumerate(behind(), numbers[-1] + 1))]
            all_numbers, everybody, all_samples, all_down = zip(*wanted, strict=True)
            found = self._wireless.job_costs(all_numbers, everybody, all_samples, np.array(all_down), up, places)
            self._known = dict(
                zip(wanted, zip(found.slots.tolist(), found.device_J.tolist(), strict=True), strict=True)
            )
        slots, joules = zip(*(self._known.pop(job) for job in jobs), strict=True)
        return JobCosts(np.array(slots), np.array(joules))
