"""What an extra loss sees beside the batch: a client its own row of the constants, everybody the same tensors."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedtide.federation.state import initial_state
from fedtide.training.engine.local import Term, TermBatch
from support import closest, federation, images, settings, steady, vectors


def _leaning(batch: TermBatch) -> Tensor:
    """Linear in the logits: the client's constant times the logits weighted by what all share."""
    return batch.constants["own"] * batch.outputs.logits @ batch.constants["shared"].mean(0)


@pytest.mark.parametrize("executor", ["threads", "stacked", "resident"])
def test_own_rows_and_shared_tensors_reach_the_loss_and_may_change_their_shape(executor: str) -> None:
    """With the term in the objective's place one step of the last bias is -lr own mean(shared)."""
    local = {"steps": 1, "lr": 0.5}
    if executor == "resident":  # the one for batch norm
        chosen, data = settings(local=local, model={"name": "cnn_svhn"}), images(count=18, channels=3)
    else:
        chosen, data = settings(local=local, engine={"executor": executor, "workers": 1}), vectors()
    fed = federation(chosen, steady((6, 6, 6), 2), data)
    own, classes = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), data.num_classes
    algorithm: Any = fed.parts.algorithm
    shared: list[Tensor] = []
    moved: list[Tensor] = []

    def terms(r: Any) -> list[Term]:
        shared.append(torch.arange(float(classes) * (r.t + 1), dtype=r.w.dtype).view(-1, classes))
        return [Term(_leaning, constants={"own": own}, tensors={"shared": shared[-1]}, replaces=True)]

    def finish(r: Any) -> Tensor:
        slot = next(slot for slot in fed.parts.layout.parameters if slot.name == "head.bias")
        moved.append((r.W - r.w)[:, slot.start : slot.stop].clone())
        return r.average()  # type: ignore[no-any-return]

    algorithm.terms, algorithm.finish = terms, finish
    state = initial_state(fed.parts)
    for _ in range(2):
        fed.run_round(state)
    fed.parts.workers.close()
    for rows, step in zip(shared, moved, strict=True):
        assert closest(step, -0.5 * own.unsqueeze(1) * rows.mean(0)) < 1e-14
