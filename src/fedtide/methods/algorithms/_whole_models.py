"""What methods share whose clients keep whole models of their own."""

from __future__ import annotations

from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.methods.algorithms.base import Algorithm, Problem, Round
from fedtide.training.engine.local import clip


class WholeModels(Algorithm):
    """Clients that keep a model [d] of their own; running statistics of networks are those of the global model."""

    models = ("global", "personal")

    def bind(self, problem: Problem) -> None:
        """Refuse networks with running statistics: those of the global model are of another one than a client's."""
        if problem.layout.buffer_size:
            raise SettingsError(
                f"algorithm {self.settings.name} keeps a full model per client, but BatchNorm statistics only for "
                "the global model; use a model without BatchNorm, or model.norm: group"
            )
        super().bind(problem)


def stepped(x: Tensor, v: Tensor, r: Round) -> Tensor:
    """x [c, d] after a local step of plain SGD along the gradients v [c, d], clipped and decayed as the run's; v is changed."""
    local, decay = r.local, r.local.gradient_decay
    if decay and local.clip_scope == "total_with_decay":
        v.add_(x, alpha=decay)
    if local.clip is not None:
        clip(v, local.clip)
    if decay and local.clip_scope != "total_with_decay":
        v.add_(x, alpha=decay)
    return x - r.job.rate * v
