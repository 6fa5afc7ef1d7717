import torch
from torch import Tensor
from torch.func import functional_call

import support
from fedtide.engine.local import Term, TermBatch
from fedtide.federation.state import initial_state


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
    state = initial_state(fed.parts)
    fed.run_round(state)
    seen: list[Tensor] = []

    def watch(batch: TermBatch) -> Tensor:
        seen.append(batch.references["global"].logits)
        return torch.zeros(len(batch.labels), dtype=batch.outputs.logits.dtype)

    fed.parts.algorithm.terms = lambda r: [Term(watch, {"global": r.w})]  # type: ignore[method-assign]
    assert not torch.equal(state.b, fed.parts.b0), "the statistics must have moved, or the test shows nothing"
    named = fed.parts.layout.named(state.w, state.b)
    fed.run_round(state)
    expected = functional_call(fed.parts.task.network.eval(), named, (fed.parts.data.train_inputs,))
    torch.testing.assert_close(seen[0], expected)


def test_reference_models_of_one_name_in_two_terms_are_two() -> None:
    fed = support.federation(
        support.settings(model={"name": "cnn_svhn"}, local={"amount": 1, "unit": "steps", "batch_size": 6}),
        support.steady([6], rounds=1),
        support.images(count=6, channels=3),
    )
    seen: list[Tensor] = []

    def watch(batch: TermBatch) -> Tensor:
        seen.append(batch.references["teacher"].logits)
        return torch.zeros(len(batch.labels), dtype=batch.outputs.logits.dtype)

    fed.parts.algorithm.terms = lambda r: [Term(watch, {"teacher": w}) for w in (r.w, 0 * r.w)]  # type: ignore[method-assign]
    fed.run_round(initial_state(fed.parts))
    assert seen[0].abs().max() > 0
    assert seen[1].abs().max() == 0
