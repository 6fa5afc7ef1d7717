"""Mean of earlier sessions."""

from collections.abc import Sequence
from typing import ClassVar

from fedtide.methods.initializers.base import Boundary, Initializer, Start, Store, average


class Average(Initializer):
    """Each session starts from the plain mean of the final models of all sessions after the pilot."""

    private: ClassVar[bool] = True

    def construct(self, s: Boundary) -> Start:
        return average(s) or (s.w, s.b)

    def mixture(self, store: Store, sessions: Sequence[int]) -> dict[int, float]:
        return dict.fromkeys(sessions, 1 / len(sessions)) if sessions else {}
