"""What erased clients have left in a model, by comparison with the run in which they never took part."""

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedtide.core.array_types import Floats, Ints
from fedtide.federation.features.attack import Attackers
from fedtide.federation.scoring.attack_success import attack_success
from fedtide.federation.scoring.client_samples import samples_of
from fedtide.federation.scoring.client_scores import of_each
from fedtide.federation.scoring.evaluator import Evaluator, ModelValues, part_of
from fedtide.training.engine.passes.evaluation import predict
from fedtide.training.engine.passes.metrics import fit

MEASURES = (
    *("gap", "gap_left", "excess", "memory_left", "remembered", "excess_test", "remembered_test", "accuracy"),
    *("accuracy_test", "variation", "agreement", "auc", "auc_low", "auc_high", "auc_counterfactual", "auc_calibrated"),
    *("auc_old_model", "retained_change", "retained_pooled_change", "retained_worst", "retained_hurt"),
    *("newcomers_change", "attack_success", "attack_success_counterfactual", "attack_success_unerased"),
)

_TIE = 1e-9
_SMALLEST = 1e-12, 0.01  # distances and excesses below which a ratio to them says nothing


@dataclass(frozen=True)
class Erased:
    """The clients of a request.

    Attributes:
        evaluator: in the world as planned. ids: of the clients, ascending. at: round of the request.
        members: positions of the training samples that they trained on, and that no other client holds.
        retained: ids of the other clients that took part before the request. seen: of all that were present before it.
        attackers: of the run, where their success can be measured.
    """

    evaluator: Evaluator
    ids: Ints
    at: int
    members: Ints
    retained: Ints
    seen: Ints
    attackers: Attackers | None = None

    @cached_property
    def _samples(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Their training samples, and their held-out samples."""
        evaluator = self.evaluator
        tested = samples_of(evaluator, self.at - 1, self.ids)
        own = np.concatenate(tested.positions) if tested.chosen else np.zeros(0, dtype=np.int64)
        part = part_of(evaluator.settings.splits[0])
        return evaluator.training_samples([self.members]), evaluator.data.read(part, evaluator.on_device(own))

    def measures(
        self, t: int, model: ModelValues, without: ModelValues, unerased: ModelValues, old: ModelValues
    ) -> dict[str, float]:
        """:data:`MEASURES` by name, NaN where samples or clients are missing.

        Args:
            t: round, of the population. model: of the run, parameters [d] and floating buffers [q]. without: of the run in
                which the clients never took part. unerased: of the run that erases nothing. old: before their first part.
        """
        run, exact, kept, before = (self._outputs(each) for each in (model, without, unerased, old))
        classes = self.evaluator.data.task == "classification"
        gap, whole = (float((each[0] - without[0]).norm()) for each in (model, unerased))
        excess, left = ((exact.losses - each.losses).mean() for each in (run, kept))
        found = {
            "gap": gap,
            "gap_left": gap / whole if whole > _SMALLEST[0] else math.nan,
            "excess": float(excess),
            "memory_left": float(excess / left) if abs(left) >= _SMALLEST[1] else math.nan,
            "remembered": _lower(run.losses, exact.losses),
            "excess_test": float((exact.test_losses - run.test_losses).mean()),
            "remembered_test": _lower(run.test_losses, exact.test_losses),
            "accuracy": float(run.hits.mean()),
            "accuracy_test": float(run.test_hits.mean()),
            "variation": float((run.shares - exact.shares).abs().sum(1).mean() / 2),
            "agreement": float((run.shares.argmax(1) == exact.shares.argmax(1)).double().mean())
            if classes
            else math.nan,
        }
        found["auc"], found["auc_low"], found["auc_high"] = auc(-run.losses, -run.test_losses)
        found["auc_counterfactual"] = auc(-exact.losses, -exact.test_losses)[0]
        for name, other in (("calibrated", exact), ("old_model", before)):
            found[f"auc_{name}"] = auc(other.losses - run.losses, other.test_losses - run.test_losses)[0]
        change, sizes = self._change(t, self.retained, model, without)
        here = self.evaluator.timeline.at(t).clients
        newcomers, _ = self._change(t, here[~np.isin(here, self.seen)], model, without)
        if self.attackers is not None:
            of = {"": model, "_counterfactual": without, "_unerased": unerased}
            rates = {name: attack_success(self.evaluator, self.attackers, each, t) for name, each in of.items()}
            found |= {f"attack_success{name}": math.nan if rate is None else rate for name, rate in rates.items()}
        return found | {
            "retained_change": _mean(change),
            "retained_pooled_change": float(change @ sizes / sizes.sum()) if len(change) else math.nan,
            "retained_worst": worst_decile(change),
            "retained_hurt": _mean((change < 0).astype(np.float64)),
            "newcomers_change": _mean(newcomers),
        }

    def loss(self, model: ModelValues) -> float:
        """Mean loss of a model on their training samples."""
        return float(_scored(self.evaluator, model, *self._samples[0])[0].mean())

    def _outputs(self, model: ModelValues) -> "Outputs":
        evaluator = self.evaluator
        found = [_scored(evaluator, model, *samples) for samples in self._samples]
        return Outputs(*found[0], *found[1][:2])

    def _change(self, t: int, clients: Ints, model: ModelValues, without: ModelValues) -> tuple[Floats, Floats]:
        """Accuracy of clients on their own held-out samples, minus that of the counterfactual, and how many samples these are.

        Clients without any are left out.
        """
        if not len(clients) or self.evaluator.data.task != "classification":
            return np.zeros(0), np.zeros(0)
        tested, of = samples_of(self.evaluator, t, clients), [0] * len(clients)
        found: list[Floats] = []
        for w, b in (model, without):
            scores = self.evaluator.each((w.unsqueeze(0), b.unsqueeze(0)), of, tested.positions)
            found.append(of_each(scores, tested.counts)[0])
        change: Floats = found[0] - found[1]
        known = ~np.isnan(change)
        return change[known], tested.sizes[known]


@dataclass(frozen=True)
class Outputs:
    """A model on the samples of erased clients, float64: losses and hits of those they trained on and of those held out.

    ``shares``: softmax outputs on the former [m, L].
    """

    losses: Tensor
    hits: Tensor
    shares: Tensor
    test_losses: Tensor
    test_hits: Tensor


def _scored(evaluator: Evaluator, model: ModelValues, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Loss [m], hits [m] and softmax outputs [m, L] of samples; the latter are NaN where there are no classes."""
    if evaluator.data.task != "classification":
        losses = fit(evaluator.workers, *model, inputs, labels, evaluator.batch).losses
        return losses, torch.full_like(losses, math.nan), torch.full((len(losses), 1), math.nan, dtype=torch.float64)
    logits = predict(evaluator.workers, *model, inputs, evaluator.batch).double()
    labels = labels.cpu()
    losses = functional.cross_entropy(logits, labels, reduction="none")
    return losses, (logits.argmax(1) == labels).double(), logits.softmax(1)


def _lower(losses: Tensor, than: Tensor) -> float:
    """Share of samples with a lower loss; ties count one half."""
    gap = losses - than
    return float((gap < -_TIE).double().add((gap.abs() <= _TIE).double() / 2).mean())


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan


def worst_decile(values: Floats) -> float:
    """Mean of the lowest tenth, rounded up, of values; NaN of none."""
    return _mean(np.sort(values)[: math.ceil(len(values) / 10)])


def auc(members: Tensor, others: Tensor) -> tuple[float, float, float]:
    """Share of pairs in which the member scores higher, with its 95 % interval (DeLong et al. 1988); ties count one half.

    The interval is NaN with one sample on a side, all three are with none.
    """
    m, n = len(members), len(others)
    if not m or not n:
        return math.nan, math.nan, math.nan
    above, below = _placed(members, others), 1 - _placed(others, members)
    found = float(above.mean())
    if min(m, n) < 2:
        return found, math.nan, math.nan
    wide = NormalDist().inv_cdf(0.975) * math.sqrt(float(above.var()) / m + float(below.var()) / n)
    return found, max(0.0, found - wide), min(1.0, found + wide)


def _placed(scores: Tensor, among: Tensor) -> Tensor:
    """For each score the share of others below it, ties counted one half."""
    ordered = among.sort().values
    lower, upper = (
        torch.searchsorted(ordered, scores + shift, right=right) for shift, right in ((-_TIE, False), (_TIE, True))
    )
    return (lower + upper).double() / (2 * len(among))
