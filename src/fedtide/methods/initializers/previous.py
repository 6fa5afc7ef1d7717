"""Continue with the current model."""

from typing import ClassVar

from fedtide.methods.initializers.base import Boundary, Initializer, Start


class Previous(Initializer):
    """Each session starts from the final model of the previous one."""

    private: ClassVar[bool] = True

    def construct(self, s: Boundary) -> Start:
        return s.w, s.b
