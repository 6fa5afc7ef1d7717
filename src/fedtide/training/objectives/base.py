"""What an objective plug-in provides: its task and the loss of each sample."""

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from fedtide.core.plugins import Plugin
from fedtide.settings.scores import TaskName
from fedtide.training.models.base import Outputs


class Objective(Plugin):
    """The loss a client minimizes, sample by sample; the engine takes the mean over the real samples of a batch.

    Attributes:
        task: what is learned, which decides about labels and scores.
        pooled: whether ``counts`` are those of all clients present together instead of the client's own.
    """

    kind: ClassVar[str] = "objectives"

    task: ClassVar[TaskName] = "classification"
    pooled: bool = False

    @abstractmethod
    def loss(self, outputs: Outputs, labels: Tensor, counts: Tensor | None) -> Tensor:
        """Losses [B], differentiable in the outputs.

        Must be a pure function without data-dependent control flow: it runs under ``torch.func.grad`` and ``vmap``.

        Args:
            outputs: logits [B, L] and features [B, q]; of a regression with T targets or a multilabel task with T labels
                ``logits`` are its outputs [B, T].
            labels: int64 [B], 0..L-1; floating point [B, T] of other tasks than classification.
            counts: number of samples per class [L], floating point, see ``pooled``; None where there is no client, e.g. on
                test data; of no use where the task has no classes.
        """
