"""Random selection."""

import numpy as np

from fedtide.methods.selection.base import Candidates, Selection


class Random(Selection):
    """As many clients as the budget allows (or ``portion`` asks for), uniformly without replacement."""

    def choose(self, candidates: Candidates) -> list[int]:
        c = candidates
        return np.sort(c.generator("lot").permutation(c.eligible)[: c.size or c.most]).tolist()  # type: ignore[no-any-return]
