"""How concentrated a layer's activity is on few neurons (appendix B of the FedWCM paper, which leaves the measure open).

A neuron is a hidden unit, or a channel after its spatial mean; a_j is its mean absolute activation over a probe set and
``pi_j = a_j / sum a``. For M neurons, ``entropy`` is ``1 - H(pi) / log M``, ``hhi`` is ``(M sum pi^2 - 1) / (M - 1)``, ``gini``
is the Gini coefficient of a, and ``top10`` is the share of the largest ceil(M / 10). Layers are the outputs of all ReLUs, in
order of computation, and the softmax of the logits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fedtide.training.resources.workers import Workers, WorkerState

SOFTMAX = "softmax"  # name of the last layer
MEASURES = ("entropy", "hhi", "gini", "top10")  # columns recorded for each layer


def concentration(activity: Tensor) -> dict[str, float]:
    """All measures of mean absolute activations a [M]; a dead layer (all zeros) counts as a single neuron: 1."""
    a = activity.to("cpu", torch.float64)
    size, total = len(a), float(a.sum())
    if total == 0 or size == 1:
        return dict.fromkeys(MEASURES, 1.0)
    pi = a / total
    entropy = float(-torch.special.xlogy(pi, pi).sum())
    rank = torch.arange(1, size + 1, dtype=torch.float64)
    return {
        "entropy": 1 - entropy / math.log(size),
        "hhi": (size * float(pi.square().sum()) - 1) / (size - 1),
        "gini": float((2 * rank - size - 1) @ pi.sort().values) / size,
        "top10": float(pi.topk(math.ceil(0.1 * size)).values.sum()),
    }


def probe(labels: Tensor, each: int) -> Tensor:
    """Positions of the first ``each`` samples of every class (all if it has fewer), class by class."""
    return torch.cat([(labels == label).nonzero().flatten()[:each] for label in torch.unique(labels)])


def activities(workers: Workers, w: Tensor, b: Tensor, inputs: Tensor, batch: int) -> dict[str, Tensor]:
    """Mean absolute activation [M] of the neurons of each layer of a model (w [d], b [q]), in evaluation mode."""
    task = workers.task

    def measure(worker: WorkerState, _: int) -> dict[str, Tensor]:
        module, sums = worker.frozen("probe"), dict[str, Tensor]()
        module.load(w, b)
        outputs: list[Tensor] = []
        hooks = [
            part.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
            for part in module.network.modules()
            if isinstance(part, nn.ReLU)
        ]
        with torch.no_grad(), task.mixed():
            for start in range(0, len(inputs), batch):
                part = task.lay_out(task.data.prepare(inputs[start : start + batch], task.dtype))
                outputs.clear()
                logits = module.network(part)
                layers = {f"relu_{place}": output for place, output in enumerate(outputs)}
                layers[SOFTMAX] = logits.softmax(-1)
                for name, output in layers.items():
                    neurons = output.flatten(2).mean(2) if output.dim() > 2 else output
                    sums[name] = sums.get(name, 0.0) + neurons.abs().sum(0, dtype=torch.float64)
        for hook in hooks:
            hook.remove()
        return {name: total / len(inputs) for name, total in sums.items()}

    return workers.map(measure, [0])[0]
