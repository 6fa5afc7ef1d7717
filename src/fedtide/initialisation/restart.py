"""Forget everything."""

from fedtide.initialisation.base import Boundary, Initialiser, Start


class Restart(Initialiser):
    """Each session after the pilot starts from the run's first, random model."""

    def construct(self, s: Boundary) -> Start:
        """The first model."""
        return s.w0, s.b0
