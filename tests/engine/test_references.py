from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from fedtide.federation.federation import Federation
from fedtide.federation.state import initial_state
from fedtide.training.engine.gradient import References
from fedtide.training.engine.local import Term, TermBatch
from support import closest, federation, images, run_rounds, settings, steady


def made(terms: Any, rounds: int) -> tuple[Federation, list[Tensor]]:
    """A client whose network has BatchNorm, with these terms of ``(r, watch)``, and logits that ``watch`` sees."""
    local = {"steps": 1, "batch_size": 6, "order": "stored", "lr": 0.1}
    fed = federation(settings(model={"name": "cnn_svhn"}, local=local), steady([6], rounds), images(6, channels=3))
    seen: list[Tensor] = []

    def watch(batch: TermBatch) -> Tensor:
        seen.append(batch.references["teacher"].logits)
        return torch.zeros(len(batch.labels), dtype=batch.outputs.logits.dtype)

    fed.parts.algorithm.terms = lambda r: terms(r, watch)  # type: ignore[method-assign]
    return fed, seen


def test_reference_models_are_evaluated_with_the_broadcast_batch_statistics() -> None:
    fed, seen = made(lambda r, watch: [Term(watch, {"teacher": r.w})], rounds=3)
    state = initial_state(fed.parts)
    fed.run_round(state)
    assert not torch.equal(state.b, fed.parts.b0), "the statistics must have moved, or the test shows nothing"
    named = fed.parts.layout.named(state.w, state.b)
    fed.run_round(state)
    expected = functional_call(fed.parts.task.network.eval(), named, (fed.parts.data.train_inputs,))
    torch.testing.assert_close(seen[1], expected)


def test_reference_models_of_one_name_in_two_terms_are_two() -> None:
    fed, seen = made(lambda r, watch: [Term(watch, {"teacher": w}) for w in (r.w, 0 * r.w)], rounds=1)
    fed.run_round(initial_state(fed.parts))
    assert seen[0].abs().max() > 0
    assert seen[1].abs().max() == 0


def moon(monkeypatch: pytest.MonkeyPatch, amount: int, executor: str = "threads", **more: Any) -> tuple[int, Tensor]:
    """Samples that passed through reference models apart from the batches, and the model after two rounds of MOON."""
    counted, usual = [0], References.outputs

    def count(self: References, models: Any, positions: Tensor) -> Any:
        counted[0] += len(models) * len(positions)
        return usual(self, models, positions)

    monkeypatch.setattr(References, "outputs", count)
    local = {"epochs": amount, "batch_size": 4, "lr": 0.2, **more}
    chosen = settings(algorithm="moon", local=local, engine={"executor": executor, "workers": 1})
    w = run_rounds(federation(chosen, steady((9, 4), 2), images(13)))[0].w
    return counted[0], w


@pytest.mark.slow
def test_reference_models_see_a_sample_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, ours = moon(monkeypatch, 3)
    none, every_batch = moon(monkeypatch, 3, executor="stacked")
    assert (seen, none) == (2 * 13, 0), "two models in the second round: no client has a previous model before"
    assert closest(ours, every_batch) < 1e-12


@pytest.mark.parametrize(("amount", "local"), [(1, {}), (3, {"flip": 0.5})])
def test_they_see_batches_of_samples_that_come_once_or_in_other_forms(
    monkeypatch: pytest.MonkeyPatch, amount: int, local: dict[str, Any]
) -> None:
    assert moon(monkeypatch, amount, **local)[0] == 0


@pytest.mark.slow
def test_steps_of_several_batches_find_their_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, ours = moon(monkeypatch, 3, batch_size=2, accumulate=2)
    assert seen == 2 * 13
    assert closest(ours, moon(monkeypatch, 3)[1]) < 1e-12
