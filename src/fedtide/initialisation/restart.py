"""Start again from the initial model."""

from fedtide.initialisation.base import Boundary, Initialiser, Start


class Restart(Initialiser):
    """Each session after the pilot starts from the run's initial, random model."""

    def construct(self, s: Boundary) -> Start:
        return s.w0, s.b0
