"""One training of the participants within a round."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from fedtide.training.engine.local import Local


@dataclass(frozen=True)
class Phase:
    """A training of the participants; :meth:`Algorithm.phases` yields one or more.

    The first phase has the batches, extra losses and own directions of a round with a single one. Further phases draw batches
    of their own, start their local optimizer at rest, and descend the objective alone, with what ``local`` adds.

    Attributes:
        start: models that it starts from, [d] or [C, d].
        local: what is added to the gradients.
        trains: bool [d], the parameters that are trained (``self.problem.layout.mask``); None for all. The others stay as they
            are and do not count in the norm that a gradient is clipped by.
        amount: of local work, in epochs or steps as ``local``; None for that of ``local``.
        main: whether the round is about these local models; else it is about those of the last phase.
        buffers: floating buffers that it starts from, [q] or [C, q]; None for those of the global model.
        lr: learning rate; None for that of the round.
    """

    start: Tensor
    local: Local = field(default_factory=Local)
    trains: Tensor | None = None
    amount: int | None = None
    lr: float | None = None
    buffers: Tensor | None = None
    main: bool = False
