"""FedBABU."""

from collections.abc import Generator

import torch
from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, Phase, Problem, Round, RunPreview
from fedtide.training.engine.flat import Layout


class FedBabu(Algorithm):
    """FedBABU: the body alone is trained, on a head that stays the random one of the start; clients adapt the model later.

    Oh et al. 2022, arXiv 2106.06042::

        y = E epochs from w, of the body alone;  body of w = sum_k p_k y_k;  the head never changes

    The head has no gradient, no weight decay and no share in the norm that is clipped. What a client uses is w after some local
    steps on its own samples, ``evaluation.finetune_steps`` (5 to 50), of the whole model or a part,
    ``evaluation.finetune_part``; before them, the scores of w mean little.

    Released code: fine-tunes for 5 epochs with momentum 0.9, once, from the model that was best on the test samples; rate / 10
    after a half and three quarters of the rounds; uniform weights.
    """

    admits = ("sums", "rules")
    needs = ("body",)

    def bind(self, problem: Problem) -> None:
        super().bind(problem)
        self.head = problem.layout.mask("head")

    def phases(self, r: Round) -> Generator[Phase, Tensor, None]:
        yield Phase(r.base, trains=~self.head)

    def finish(self, r: Round) -> Tensor:
        return torch.where(self.head, r.w, r.average())  # a mean of equal heads would round

    def shared(self, layout: Layout) -> Tensor:
        return layout.mask("body")

    def advice(self, run: RunPreview) -> list[str]:
        return [
            "algorithm fedbabu: the head is random until clients adapt the model, so set evaluation.finetune_steps (and "
            "evaluation.clients_every)"
        ] * (run.personalize == 0)

    def session_traffic(self, clients: int) -> tuple[int, int]:
        return 0, 4 * clients * int(self.head.sum())
