"""FedGen."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.algorithms._generator import Generator, imagine
from fedtide.algorithms.base import Algorithm, AlgorithmSettings, Problem, Round, Term, Tunable
from fedtide.core.errors import SettingsError
from fedtide.core.randomness import hashed_uniform
from fedtide.engine.local import TermBatch


class FedGen(Algorithm):
    """Data-free distillation by a generator of features (Zhu, Hong and Zhou 2021), averaged as FedAvg.

    After a round the server trains ``G(eps, y)`` by Adam on ``sum_k w_k(y) CE(head_k(G), y) + exp(-mean(|G_a - G_b|
    |eps_a - eps_b|^2))`` with the share ``w_k`` of client k in the samples of class y seen. In later rounds clients add
    ``a_t CE(head(G(eps, y')), y') + b_t KL(sg[softmax head(G(eps, y))] || softmax f(x))``, y from the batch, y' from the labels
    present in the federation; eps is uniform, a_t and b_t decay from ``alpha`` and ``beta``. ``alpha = beta = 0`` is FedAvg.

    As in the authors' program the first round has no extra terms and N_k(y) starts at 1 every round; the expected number of
    samples seen stands for the counted one. The generator travels down only; DynamicFL's tables charge it both ways.
    """

    class Settings(AlgorithmSettings):
        """Settings of FedGen."""

        name: str = "fedgen"
        alpha: float = Tunable(
            10.0, low=0.1, high=10.0, log=True, ge=0, description="weight of generated samples, round 0"
        )
        beta: float = Tunable(
            10.0, low=0.1, high=10.0, log=True, ge=0, description="weight of the distillation, round 0"
        )
        decay: float = Field(0.98, gt=0, le=1, description="factor per round of both weights and the generator's rate")
        noise: int = Field(64, ge=1, description="entries of eps")
        hidden: int = Field(512, ge=1, description="hidden units of the generator")
        generator_lr: float = Field(1e-4, gt=0, description="Adam's learning rate in round 0")
        generator_decay: float = Field(1e-2, ge=0, description="Adam's weight decay")
        generator_steps: int = Field(50, ge=1, description="steps of the server per round")
        generator_batch: int = Field(10, ge=2, description="samples per step of the server")
        charged_up: bool = Field(False, description="charge the generator on the way up too, as DynamicFL's tables do")

    settings: Settings

    down = ("w", "generator")
    up: tuple[str, ...] = ("W", "counts")
    averages_inside_round: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if settings.charged_up:
            self.up = (*self.up, "generator")

    def bind(self, problem: Problem) -> None:
        """A generator that fits the model's head."""
        super().bind(problem)
        self._head = {
            slot.name: slot for slot in problem.layout.parameters if slot.name in ("head.weight", "head.bias")
        }
        if "head.weight" not in self._head:
            raise SettingsError("algorithm.name = 'fedgen': the model's head should be one linear layer")
        classes, width = self._head["head.weight"].shape
        self._generator = Generator(self.settings.noise, self.settings.hidden, classes, width)

    def extra(self) -> dict[str, Tensor]:
        """The generator and Adam's state."""
        g, statistics = self._generator.start(self.problem.randomness.torch_generator("fedgen.start"))
        zero = torch.zeros_like(g)
        state = {"generator": g, "statistics": statistics, "first": zero, "second": zero.clone()}
        return {**state, "taken": torch.zeros(())}

    def terms(self, r: Round) -> list[Term]:
        """Both extra losses, once there is a trained generator."""
        if not r.extra["taken"]:
            return []
        maps = self._generator.folded(r.extra["generator"], r.extra["statistics"])
        there = (r.services.population_counts().sum(0) > 0).double().cumsum(0)
        tensors = {name: value.to(r.w) for name, value in {**maps, "labels": there / there[-1]}.items()}
        pairs = ((self._teach, self.settings.alpha), (self._align, self.settings.beta))
        fade = self.settings.decay**r.t
        return [Term(loss, weight=max(1e-4, start * fade), tensors=tensors) for loss, start in pairs if start]

    def _teach(self, batch: TermBatch) -> Tensor:
        """CE(head(G(eps, y')), y') [B]."""
        draw = hashed_uniform(batch.key + 1, len(batch.labels)).to(batch.outputs.logits.dtype)
        labels = (draw.unsqueeze(-1) >= batch.constants["labels"][:-1]).sum(-1)
        return functional.cross_entropy(self._imagined(batch, labels, 2), labels, reduction="none")

    def _align(self, batch: TermBatch) -> Tensor:
        """KL(sg[softmax head(G(eps, y))] || softmax f(x)) [B]."""
        target = torch.log_softmax(self._imagined(batch, batch.labels, 3).detach(), -1)
        return (target.exp() * (target - torch.log_softmax(batch.outputs.logits, -1))).sum(-1)

    def _imagined(self, batch: TermBatch, labels: Tensor, number: int) -> Tensor:
        """Logits [B, L] of the head on generated features."""
        size, noise = len(labels), self.settings.noise
        eps = hashed_uniform(batch.key + number, size * noise).view(size, noise).to(batch.outputs.logits.dtype)
        return batch.head(imagine(batch.constants, eps, labels))

    def finish(self, r: Round) -> Tensor:
        """FedAvg's model; the server trains the generator."""
        if self.settings.alpha or self.settings.beta:
            self._train_generator(r)
        return r.mean(r.W)

    def _train_generator(self, r: Round) -> None:
        s, x, w = self.settings, r.extra, r.w
        seen = 1 + r.label_counts * (r.steps * r.local.batch_size / r.n)
        known = (seen.max(0).values > 1).nonzero()[:, 0]
        draws = r.randomness.torch_generator("fedgen.server", r.t)
        eps = torch.rand(s.generator_steps, s.generator_batch, s.noise, generator=draws, dtype=torch.float64).to(w)
        picks = torch.randint(len(known), (s.generator_steps, s.generator_batch), generator=draws)
        statistics = x["statistics"].to(w, copy=True)
        g = torch.nn.Parameter(x["generator"].to(w, copy=True))
        adam = torch.optim.Adam([g], lr=s.generator_lr * s.decay**r.t, weight_decay=s.generator_decay)
        moments = {"exp_avg": x["first"].to(w, copy=True), "exp_avg_sq": x["second"].to(w, copy=True)}
        adam.state[g] = {"step": x["taken"].cpu().clone(), **moments}
        for noise, labels in zip(eps, known[picks.to(w.device)], strict=True):
            with torch.enable_grad():
                loss = self._objective(self._generator.train(g, statistics, noise, labels), noise, labels, seen, r)
                (g.grad,) = torch.autograd.grad(loss, g)
            adam.step()
        x["generator"], x["statistics"], x["taken"] = g.detach(), statistics, adam.state[g]["step"]
        x["first"], x["second"] = moments["exp_avg"], moments["exp_avg_sq"]

    def _objective(self, features: Tensor, eps: Tensor, labels: Tensor, seen: Tensor, r: Round) -> Tensor:
        """What the generator minimises on one batch: all heads should know its features, and noise should matter."""
        heads = {name: slot.view(r.W) for name, slot in self._head.items()}
        logits = features @ heads["head.weight"].mT
        if "head.bias" in heads:
            logits = logits + heads["head.bias"].unsqueeze(1)
        losses = -torch.log_softmax(logits, -1)[:, torch.arange(len(labels)), labels]
        shares = (seen / seen.sum(0))[:, labels]
        apart = (features.unsqueeze(1) - features).abs().mean(-1) * (eps.unsqueeze(1) - eps).square().mean(-1)
        return (shares * losses).mean(1).sum() + torch.exp(-apart.mean())

    def payload(self, name: str) -> int:
        """The generator's parameters; a number per class."""
        return {"generator": self._generator.size, "counts": self.problem.classes}.get(name, super().payload(name))
