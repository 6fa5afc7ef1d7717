import torch
from torch import Tensor
from torch.func import functional_call

import support
from fedtide.engine.local import Term, TermBatch


def test_reference_models_are_evaluated_with_the_broadcast_batch_statistics() -> None:
    data = support.images(count=6, channels=3)
    fed = support.federation(
        support.settings(
            model={"name": "cnn_svhn"},
            local={"amount": 1, "unit": "steps", "batch_size": 6, "order": "stored", "lr": 0.1},
        ),
        support.steady([6], rounds=3),
        data,
    )
    state = fed.start()
    fed.play(state)
    seen: list[Tensor] = []

    def watch(batch: TermBatch) -> Tensor:
        seen.append(batch.references["global"].logits)
        return torch.zeros(len(batch.labels), dtype=batch.outputs.logits.dtype)

    fed.algorithm.terms = lambda r: [Term(watch, {"global": r.w})]  # type: ignore[method-assign]
    assert not torch.equal(state.b, fed.b0), "the statistics must have moved, or the test says nothing"
    named = fed.layout.named(state.w, state.b)
    fed.play(state)
    expected = functional_call(fed.task.network.eval(), named, (fed.data.train_inputs,))
    torch.testing.assert_close(seen[0], expected)
