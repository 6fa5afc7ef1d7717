"""Start again from the initial model."""

from typing import ClassVar

from fedtide.methods.initialisation.base import Boundary, Initialiser, Start


class Restart(Initialiser):
    """Each session after the pilot starts from the run's initial, random model."""

    fresh: ClassVar[bool] = True
    private: ClassVar[bool] = True

    def construct(self, s: Boundary) -> Start:
        return s.w0, s.b0
