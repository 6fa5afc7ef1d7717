"""FedGen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from fedtide.core.randomness import hashed_uniform
from fedtide.methods.algorithms._averaging import Averaging, AveragingSettings
from fedtide.methods.algorithms.base import Extra, Layout, Problem, Round, Term, TermBatch, Tunable
from fedtide.training.engine.flat import flatten
from fedtide.training.programs.traces import Traced


class FedGen(Averaging):
    """Data-free distillation by a generator of features (Zhu, Hong and Zhou 2021), averaged as in FedAvg.

    The generator ``G(eps, y)`` maps uniform noise eps and a label y to inputs of the last layer (head). In round t each
    participant k adds to its loss, with y the labels of the batch and y' sampled uniformly from the labels present in the
    federation::

        a_t CE(head(G(eps, y')), y')                                 a_t = max(1e-4, alpha decay^t)                 (1)
        b_t KL(sg[softmax head(G(eps, y))] || softmax f(x))          b_t = max(1e-4, beta decay^t)                  (2)

    It sends its model theta_k and N_k(y), the number of samples of class y in its local training. The server then takes
    ``generator_steps`` Adam steps on ``L_T + L_div``, y sampled uniformly from the labels with ``max_k N_k(y) > 1``, and
    averages the models::

        w_k(y) = N_k(y) / sum_j N_j(y)                                                                              (3)
        L_T   = sum_k mean_b w_k(y_b) CE(head_k(G(eps_b, y_b)), y_b)                                                (4)
        L_div = exp( - mean_{a,b} ( mean |G_a - G_b| * mean (eps_a - eps_b)^2 ) )                                   (5)
        G+    = G after Adam with the gradient of L_T + L_div                                                       (6)
        w+    = w + eta_g sum_k p_k (theta_k - w)                                                                   (7)

    As in the released code the first round has no extra terms and N_k(y) starts at 1 every round; the expected number of
    samples seen replaces the counted one. The generator is sent down only, unless ``charged_up``.

    References:
        Zhu, Hong and Zhou 2021. Data-Free Knowledge Distillation for Heterogeneous Federated Learning.
    """

    class Settings(AveragingSettings):
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
    needs_classes = True
    admits = ("exchanges",)
    needs = ("linear_head",)

    down = ("w", "generator")
    up: Sequence[str] = ("W", "counts")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if settings.charged_up:
            self.up = (*self.up, "generator")

    def bind(self, problem: Problem) -> None:
        super().bind(problem)
        self._head = {
            slot.name: slot for slot in problem.layout.parameters if slot.name in ("head.weight", "head.bias")
        }
        classes, width = self._head["head.weight"].shape
        self._generator = Generator(self.settings.noise, self.settings.hidden, classes, width)

    def extra(self) -> dict[str, Tensor]:
        """The generator and Adam's state."""
        g, statistics = self._generator.start(self.problem.randomness.torch_generator("fedgen.start"))
        zero = torch.zeros_like(g)
        state = {"generator": g, "statistics": statistics, "first": zero, "second": zero.clone()}
        return {**state, "taken": torch.zeros(())}

    # Clients.

    def terms(self, r: Round) -> list[Term]:
        """(1) and (2), once the generator has been trained."""
        if not r.extra["taken"]:
            return []
        maps = self._generator.folded(r.extra["generator"], r.extra["statistics"])
        present = (r.services.population_counts().sum(0) > 0).double().cumsum(0)
        tensors = {name: value.to(r.w) for name, value in {**maps, "labels": present / present[-1]}.items()}
        pairs = ((self._teach, self.settings.alpha), (self._align, self.settings.beta))  # (1), (2)
        fade = self.settings.decay**r.t  # of a_t and b_t
        return [Term(loss, weight=max(1e-4, start * fade), tensors=tensors) for loss, start in pairs if start]

    def _teach(self, batch: TermBatch) -> Tensor:
        """(1): CE(head(G(eps, y')), y') [B]."""
        draw = hashed_uniform(batch.key + 1, len(batch.labels)).to(batch.outputs.logits.dtype)
        labels = (draw.unsqueeze(-1) >= batch.constants["labels"][:-1]).sum(-1)  # y'
        return functional.cross_entropy(self._imagined(batch, labels, 2), labels, reduction="none")  # (1)

    def _align(self, batch: TermBatch) -> Tensor:
        """(2): KL(sg[softmax head(G(eps, y))] || softmax f(x)) [B]."""
        target = torch.log_softmax(self._imagined(batch, batch.labels, 3).detach(), -1)  # sg
        return (target.exp() * (target - torch.log_softmax(batch.outputs.logits, -1))).sum(-1)  # (2)

    def _imagined(self, batch: TermBatch, labels: Tensor, number: int) -> Tensor:
        """head(G(eps, labels)) [B, L]."""
        size, noise = len(labels), self.settings.noise
        eps = hashed_uniform(batch.key + number, size * noise).view(size, noise).to(batch.outputs.logits.dtype)
        return batch.head(imagine(batch.constants, eps, labels))

    # Server.

    def finish(self, r: Round) -> Tensor:
        if self.settings.alpha or self.settings.beta:
            self._train_generator(r)  # (3) to (6)
        return super().finish(r)  # (7)

    def _train_generator(self, r: Round) -> None:
        """``generator_steps`` Adam steps on L_T + L_div: (3) to (6)."""
        s, x, w = self.settings, r.extra, r.w
        N = 1 + r.label_counts * (r.steps * r.local.step_samples / r.n)  # N_k(y) [C, L]
        known = (N.max(0).values > 1).nonzero()[:, 0]  # labels that y is sampled from
        draws = self.problem.randomness.torch_generator("fedgen.server", r.t)
        eps = torch.rand(s.generator_steps, s.generator_batch, s.noise, generator=draws, dtype=torch.float64).to(w)
        picks = torch.randint(len(known), (s.generator_steps, s.generator_batch), generator=draws)
        statistics = x["statistics"].to(w, copy=True)
        g = torch.nn.Parameter(x["generator"].to(w, copy=True))
        adam = torch.optim.Adam([g], lr=s.generator_lr * s.decay**r.t, weight_decay=s.generator_decay, fused=True)
        moments = {"exp_avg": x["first"].to(w, copy=True), "exp_avg_sq": x["second"].to(w, copy=True)}
        adam.state[g] = {"step": x["taken"].to(w.device, torch.float32, copy=True), **moments}
        slope = Traced(partial(_slope, self._generator))
        heads = [slot.view(r.W) for slot in self._head.values()]
        for noise, labels in zip(eps, known[picks.to(w.device)], strict=True):
            g.grad, statistics = slope(g.detach(), statistics, noise, labels, N / N.sum(0), *heads)  # (3)
            adam.step()  # (6)
        x["generator"], x["statistics"], x["taken"] = g.detach(), statistics, adam.state[g]["step"].cpu()
        x["first"], x["second"] = moments["exp_avg"], moments["exp_avg_sq"]

    def width(self, name: str, layout: Layout, extra: Extra) -> int:
        """The generator's parameters; a number per class."""
        return {"generator": self._generator.size, "counts": self.problem.classes}.get(
            name, super().width(name, layout, extra)
        )


def _slope(
    generator: Generator, g: Tensor, statistics: Tensor, eps: Tensor, labels: Tensor, w: Tensor, *heads: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradient [G] of L_T + L_div, and the generator's statistics after the batch."""
    g, statistics = g.detach().requires_grad_(), statistics.clone()
    with torch.enable_grad():
        G = generator.train(g, statistics, eps, labels)
        return torch.autograd.grad(_L_T(G, labels, w, *heads) + _L_div(G, eps), g)[0], statistics  # (4) + (5)


def _L_T(G: Tensor, labels: Tensor, w: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: N802
    """(4), for features [B, q] with labels [B], w_k(y) [C, L] and heads [C, L, q] with biases [C, L]."""
    logits = G @ weight.mT
    if bias is not None:
        logits = logits + bias.unsqueeze(1)
    losses = -torch.log_softmax(logits, -1)[:, torch.arange(len(labels)), labels]
    return (w[:, labels] * losses).mean(1).sum()  # (4)


def _L_div(G: Tensor, eps: Tensor) -> Tensor:  # noqa: N802
    """(5), for features [B, q] from noise [B, r]: different noise should give different features."""
    apart = (G.unsqueeze(1) - G).abs().mean(-1) * (eps.unsqueeze(1) - eps).square().mean(-1)
    return torch.exp(-apart.mean())  # (5)


class Generator:
    """G(eps, y): Linear(r + L -> H), BatchNorm, ReLU, Linear(H -> q); (r + L) H + 3 H + (H + 1) q parameters.

    Args:
        noise: r, entries of eps. hidden: H. classes: L. width: q, width of the features.
    """

    def __init__(self, noise: int, hidden: int, classes: int, width: int) -> None:
        self.noise, self.classes = noise, classes
        with torch.random.fork_rng(devices=[]):  # values are never used: :meth:`start` draws them
            self._network = nn.Sequential(
                nn.Linear(noise + classes, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, width)
            ).float()
        self._layout = Layout(self._network)
        self.size = self._layout.size

    def start(self, draws: torch.Generator) -> tuple[Tensor, Tensor]:
        """Parameters [G] and statistics [2 H] of a generator with the library's default weights, float64."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(draws.initial_seed())
            for layer in self._network:
                if isinstance(layer, nn.Linear):
                    layer.reset_parameters()
        return flatten(self._network, torch.float64, torch.device("cpu"))

    def train(self, g: Tensor, statistics: Tensor, eps: Tensor, labels: Tensor) -> Tensor:
        """Features [B, q] for eps [B, r] and labels [B] by the statistics of the batch; ``statistics`` are updated."""
        named = self._layout.named(g, statistics)
        first = functional.linear(_inputs(eps, labels, self.classes), named["0.weight"], named["0.bias"])
        running, affine = (named["1.running_mean"], named["1.running_var"]), (named["1.weight"], named["1.bias"])
        normal = functional.batch_norm(first, *running, *affine, training=True)
        return functional.linear(torch.relu(normal), named["3.weight"], named["3.bias"])

    def folded(self, g: Tensor, statistics: Tensor) -> dict[str, Tensor]:
        """The same in evaluation mode as two affine maps, the normalization folded into the first."""
        named = self._layout.named(g, statistics)
        scale = named["1.weight"] / (named["1.running_var"] + self._network[1].eps).sqrt()  # type: ignore[operator]
        return {
            "in": named["0.weight"] * scale.unsqueeze(1),
            "shift": (named["0.bias"] - named["1.running_mean"]) * scale + named["1.bias"],
            "out": named["3.weight"].clone(),
            "bias": named["3.bias"].clone(),
        }


def imagine(maps: dict[str, Tensor], eps: Tensor, labels: Tensor) -> Tensor:
    """Features [B, q] of a folded generator for eps [B, r] and labels [B]."""
    inputs = _inputs(eps, labels, maps["in"].shape[-1] - eps.shape[-1])
    return torch.relu(inputs @ maps["in"].mT + maps["shift"]) @ maps["out"].mT + maps["bias"]


def _inputs(eps: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Noise [B, r] and labels [B], one-hot, side by side."""
    known = labels.unsqueeze(-1) == torch.arange(classes, device=labels.device)  # functional.one_hot cannot be traced
    return torch.cat([eps, known.to(eps.dtype)], -1)
