"""Continuous learning by distillation."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.core.plugins import Tunable
from fedtide.methods.initializers.base import Boundary, Initializer, InitializerSettings, Start, Store
from fedtide.training.engine.local import Term, TermBatch

TEACHER = "session_teacher"


class Continuous(Initializer):
    """Each session starts from the final model of the previous one, which becomes the teacher of a distillation term.

    With the teacher's softmax q (or sigmoids) and that of the model in training p, the term is one of::

        kappa sum_c q_c (ln q_c - ln p_c)                                                          distillation     (1)
        kappa mean_c BCE(z_c, Y'_c),   Y'_c = sigmoid of the teacher's logit c for old classes     glfc             (2)

    (1), of temperature 1 and over all classes, is Continuous in the released code (Chang et al. 2025), there on top of FedAvg,
    here on top of the run's own algorithm. (2) is relation distillation as in the code released by Dong et al. 2022: Y' is
    the one-hot label but for the classes of all earlier sessions. Their code halves this term and the classification loss,
    which is kappa = 1 at half the learning rate, and weights classes by gradient magnitude, which is left out.

    The first teacher is the model at the end of the pilot, in the first session after it; with ``post_pilot_start: reset``
    that session has none (in the released code an all-zero network, ``reset_teacher: uniform``). The teacher is the
    session's first broadcast, so its bytes are not counted again.

    References:
        Chang et al. 2025. Communication-Efficient Federated Learning under Dynamic Device Arrival and Departure: Convergence
            Analysis and Algorithm Design.
    """

    class Settings(InitializerSettings):
        name: str = "continuous"
        strength: float = Tunable(1.0, low=0.1, high=10.0, log=True, ge=0, description="factor kappa of the term")
        loss: Literal["distillation", "glfc"] = Field("distillation", description="form of the term")
        reset_teacher: Literal["none", "uniform"] = Field(
            "none",
            description="teacher in the first session after the pilot with post_pilot_start: reset; uniform: equal "
            "probabilities",
        )

    settings: Settings
    needs_classes = True

    def prepare(self, s: Boundary) -> None:
        """Make the model at the end of the previous session the teacher."""
        for name in ("teacher_w", "teacher_b", "teacher_labels"):
            s.store.pop(name, None)
        first_again = s.session == s.pilot and self.settings.post_pilot_start == "reset"
        if not s.session or (first_again and self.settings.reset_teacher == "none"):
            return
        w, b = (s.w.clone(), s.b.clone()) if not first_again else (torch.zeros_like(s.w), torch.zeros_like(s.b))
        s.store.update(teacher_w=w, teacher_b=b, teacher_labels=s.old_labels)

    def construct(self, s: Boundary) -> Start:
        return s.w, s.b

    def terms(self, store: Store) -> list[Term]:
        """kappa times the distance from the teacher, if there is one."""
        if self.settings.strength == 0 or "teacher_w" not in store:
            return []
        loss = distillation if self.settings.loss == "distillation" else relation
        teacher, b = {TEACHER: store["teacher_w"]}, {TEACHER: store["teacher_b"]}
        return [Term(loss, teacher, self.settings.strength, b, tensors={"old_labels": store["teacher_labels"]})]


def distillation(batch: TermBatch) -> Tensor:
    """(1): KL(q || p) [B]."""
    q = functional.log_softmax(batch.references[TEACHER].logits, dim=-1)
    p = functional.log_softmax(batch.outputs.logits, dim=-1)
    return (q.exp() * (q - p)).sum(-1)


def relation(batch: TermBatch) -> Tensor:
    """(2) [B]; ``old_labels``, bool [L], are the classes of earlier sessions."""
    logits = batch.outputs.logits
    classes = torch.arange(logits.shape[-1], device=logits.device)
    labels = (batch.labels.unsqueeze(-1) == classes).to(logits.dtype)
    target = torch.where(batch.constants["old_labels"], batch.references[TEACHER].logits.sigmoid(), labels)
    return (functional.softplus(logits) - target * logits).mean(-1)
