"""Start again from the initial model."""

from typing import ClassVar

from fedtide.methods.initializers.base import Boundary, Initializer, Start


class Restart(Initializer):
    """Each session after the pilot starts from the run's initial, random model."""

    fresh: ClassVar[bool] = True
    private: ClassVar[bool] = True

    def construct(self, s: Boundary) -> Start:
        return s.w0, s.b0
