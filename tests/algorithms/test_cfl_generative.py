"""Langevin sampling by its closed forms, and where made-up samples go."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from fedtide.core import plugins
from fedtide.core.randomness import torch_generator
from fedtide.federation.features.synthetic import SyntheticSamples
from fedtide.federation.federation import Federation
from fedtide.federation.state import initial_state
from fedtide.methods.algorithms.cfl_generative import variation_slope
from fedtide.training.engine.passes.models import recompute_statistics
from support import assert_same, deal, federation, images, run_rounds, settings, timeline

LOCAL = {"steps": 3, "batch_size": 4, "lr": 0.2}
SIZES = (6, 5, 7, 4, 8, 6)
VISITS = [{0: 0, 1: 3}, {0: 1, 1: 4}, {0: 0, 1: 5}, {0: 2, 1: 3}]


def method(**chosen: Any) -> Any:
    plugin: Any = plugins.load("algorithms", "cfl_generative")
    return plugin(plugin.Settings(**chosen))


def gradient(energy: Any) -> Any:
    """Of an energy, by automatic differentiation."""
    return lambda x: torch.func.grad(energy)(x).clone()


def made(data: Any = None, **chosen: Any) -> Federation:
    algorithm = {"name": "cfl_generative", "size": 3, "steps": 5, **chosen}
    return federation(settings(algorithm=algorithm, local=LOCAL), timeline(deal(SIZES), VISITS), data or images())


def uniform(count: int, shape: tuple[int, ...]) -> Tensor:
    return torch.rand((count, *shape), generator=torch_generator(0, "test"))


def test_gradient_descent_on_a_parabola_contracts_by_one_minus_its_step() -> None:
    sampler = method(size=4, steps=7, eta_x=0.2, s=0.0)
    found = sampler.langevin(
        (5,),
        gradient(lambda x: ((x - 0.5) ** 2).sum() / 2),
        torch_generator(0, "test"),
        torch.zeros((), dtype=torch.float64),
    )
    start = uniform(4, (5,)).double()
    torch.testing.assert_close(found, 0.5 + 0.8**7 * (start - 0.5), rtol=1e-12, atol=0)


@pytest.mark.parametrize("eta", [0.1, 0.5])
def test_the_stationary_variance_on_a_parabola(eta: float) -> None:
    """AR(1): s^2 / (1 - (1 - eta)^2)."""
    sampler = method(size=200, steps=200, eta_x=eta, s=0.01)
    found = sampler.langevin(
        (200,), gradient(lambda x: ((x - 0.5) ** 2).sum() / 2), torch_generator(1, "test"), torch.zeros(())
    )
    assert float(found.var()) == pytest.approx(0.01**2 / (1 - (1 - eta) ** 2), rel=0.05)
    assert float(found.mean()) == pytest.approx(0.5, abs=1e-3)


def test_samples_stay_in_the_cube() -> None:
    found = method(size=8, steps=20, eta_x=0.5, s=0.5).langevin(
        (6,), gradient(lambda x: -x.sum()), torch_generator(0, "test"), torch.zeros(())
    )
    assert float(found.min()) >= 0
    assert float(found.max()) == 1


def test_the_energy_falls_and_the_model_then_sees_the_label() -> None:
    logits = torch.nn.Linear(16, 3, dtype=torch.float64, bias=False)
    y = torch.tensor([0, 1, 2, 0])
    sampler = method(size=4, steps=200, s=0.0, smoothness=0.0)

    def energy(x: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits(4 * x.flatten(1)), y, reduction="sum")

    found = sampler.langevin(
        (1, 4, 4),
        lambda x: sampler.slope(lambda at, _: gradient(energy)(at), x, y),
        torch_generator(0, "test"),
        torch.zeros((), dtype=torch.float64),
    )
    assert logits(found.flatten(1)).argmax(1).tolist() == y.tolist()


@pytest.mark.parametrize("factor", [0.01, 0.07, 0.3])
def test_the_slope_of_the_total_variation_is_autograds_to_the_bit(factor: float) -> None:
    x = (uniform(3, (2, 5, 4)) * 3).round().requires_grad_()  # many neighbors are equal
    (factor * (x.diff(dim=-1).abs().sum() + x.diff(dim=-2).abs().sum())).backward()
    assert x.grad is not None
    assert torch.equal(variation_slope(x.detach(), factor), x.grad)


def test_synthetic_samples_lie_behind_the_data_with_labels_of_its_subset() -> None:
    data = images()
    fed = made(data)
    state, _ = run_rounds(fed)
    stored, own = state.extra["stored"], len(data.train_labels)
    assert stored[:, 2].tolist() == list(range(own, own + 18))  # six places, three samples each
    assert len(fed.parts.data.train_labels) == own + SyntheticSamples(3).capacity(fed.parts.timeline) == own + 18
    assert torch.equal(fed.parts.data.train_inputs[:own], data.train_inputs)
    low, high = data.train_inputs.min(), data.train_inputs.max()
    assert ((state.extra["synthetic_inputs"] >= low) & (state.extra["synthetic_inputs"] <= high)).all()
    assert len(state.extra["synthetic_inputs"].unique(dim=0)) == 18
    for _, subset, position in stored.tolist():
        assert int(fed.parts.data.train_labels[position]) in data.train_labels[torch.from_numpy(deal(SIZES)[subset])]
        assert fed.parts.data.classes(slice(None))[position] == int(fed.parts.data.train_labels[position])


def test_two_runs_on_one_federation_do_not_see_each_other() -> None:
    fed = made()
    with torch.no_grad():
        alone, _ = run_rounds(made())
        one, other = initial_state(fed.parts), initial_state(fed.parts)
        for _ in range(fed.parts.timeline.rounds):
            fed.run_round(one)
            fed.run_round(other)
    assert_same(alone, one)
    assert_same(alone, other)
    fed.parts.workers.close()


def test_bytes_are_stored_as_bytes() -> None:
    plain = images()
    pixels = torch.full_like(plain.train_inputs, 7).to(torch.uint8)
    data = replace(plain, train_inputs=pixels, mean=(0.5,), std=(2.0,)).with_capacity(2)
    rows = SyntheticSamples(1)
    rows.bind(cast(Any, SimpleNamespace(data=data, timeline=timeline(deal((20, 20)), [{0: 0, 1: 1}]))))
    extra: dict[str, Tensor] = {}
    points = torch.stack([torch.zeros(1, 8, 8), torch.full((1, 8, 8), 0.5)]).double()
    assert rows.add(extra, points, torch.tensor([1, 2])).tolist() == [40, 41]
    assert data.train_inputs[40:].unique().tolist() == [0, 128]
    assert float(rows.inputs(points)[0].max()) == -0.25
    prepared = data.prepare(data.train_inputs[41:], torch.float64)
    assert torch.allclose(prepared, rows.inputs(points)[1:], atol=1 / 255)


def test_statistics_are_plain_means_over_the_batches_of_real_samples() -> None:
    chosen = settings(model="cnn_svhn")
    fed = federation(chosen, timeline(deal((8, 8)), [{0: 0, 1: 1}]), images(side=32, channels=3))
    points, shards = fed.parts.w0.expand(2, -1), deal((8, 9))
    buffers = torch.full((2, fed.parts.layout.buffer_size), 3.0, dtype=torch.float64)
    found = recompute_statistics(fed.parts.workers, points, buffers, shards, 4)
    slot = next(slot for slot in fed.parts.layout.buffers if slot.name.endswith("running_mean"))
    first = next(part for part in fed.parts.task.network.modules() if isinstance(part, torch.nn.Conv2d)).double()
    for row, shard in enumerate(shards):
        batches = [fed.parts.task.batch(torch.from_numpy(part))[0] for part in (shard[:4], shard[4:8])]
        means = torch.stack([first(batch).mean((0, 2, 3)) for batch in batches]).mean(0)
        torch.testing.assert_close(slot.view(found[row]), means.detach(), rtol=1e-9, atol=1e-12)
    fed.parts.workers.close()
