"""Workers, chunks and executors: other ways to compute the same rounds."""

from dataclasses import replace
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedtide.core import plugins
from fedtide.core.discovery.faults import PluginError
from fedtide.core.errors import SettingsError
from fedtide.federation.federation import Federation
from fedtide.federation.types import RunState
from fedtide.settings.run import EngineSettings
from fedtide.training.engine import contract
from fedtide.training.engine.executors import stacked as stacked_executor
from fedtide.training.engine.executors import threads
from fedtide.training.engine.executors.factory import executor_name
from fedtide.training.engine.executors.rows import Rows
from fedtide.training.engine.executors.stacked import Stacked
from fedtide.training.engine.executors.threads import Threads
from fedtide.training.engine.local import Cohort, GradientAt, Local
from fedtide.training.engine.plan import BatchPlan
from fedtide.training.engine.task import TINY, Task
from fedtide.world.dataset import Dataset
from matrix import matrix
from support import (
    assert_close,
    assert_same,
    closest,
    federation,
    images,
    network,
    run_rounds,
    settings,
    smallest,
    steady,
    vectors,
)

pytestmark = pytest.mark.usefixtures("drop_in")

SIZES = (5, 1, 8, 3, 4)
LOCAL = {
    "epochs": 2,
    "batch_size": 3,
    "lr": 0.2,
    "momentum": 0.5,
    "momentum_scope": "client",
    "weight_decay": 0.01,
    "clip": 0.5,
}
ALGORITHMS = ("fedprox", "scaffold", "columns", "elementwise", "sharp", "contrast")
DEEPER = {"resnet18", "resnet34"}
"""More blocks of the kind that ``preact_resnet18`` has."""
MODELS = [name for name in plugins.names("models") if name not in DEEPER]


def choose(task: Task, engine: EngineSettings, family: str) -> str:
    return executor_name(task.network, task.device, engine, family)


def final(
    algorithm: Any,
    data: Dataset | None = None,
    *,
    rounds: int = 3,
    sizes: tuple[int, ...] = SIZES,
    dtype: torch.dtype = torch.float64,
    model: Any = "softmax_regression",
    local: dict[str, Any] = LOCAL,
    **engine: Any,
) -> RunState:
    """State after some rounds."""
    chosen = settings(
        algorithm=algorithm, model=model, local=local, engine={"workers": 1, **engine}, evaluation={"every": rounds}
    )
    return run_rounds(federation(chosen, steady(sizes, rounds), data or vectors(), dtype=dtype))[0]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_executors_workers_and_chunks_agree(algorithm: str) -> None:
    threads, stacked = (final(algorithm, executor=name) for name in ("threads", "stacked"))
    assert_close(threads, stacked, 1e-10)
    assert_same(threads, final(algorithm, executor="threads", workers=4))
    assert_same(stacked, final(algorithm, executor="stacked", workers=4))
    for chunk in (1, 2):  # batched products of other sizes round differently
        assert_close(stacked, final(algorithm, executor="stacked", chunk=chunk), 1e-13)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS[:-1], pytest.param("contrast", marks=pytest.mark.slow)])
def test_executors_agree_in_single_precision(algorithm: str) -> None:
    threads, stacked = (final(algorithm, dtype=torch.float32, executor=name) for name in ("threads", "stacked"))
    assert_close(threads, stacked, 1e-5)


@pytest.mark.parametrize("together", [1, 400, 10**9])
def test_how_many_batches_are_prepared_together_changes_no_bit(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flipped and cropped images of 64 numbers, in batches of one to three: one at a time, two or more, all of a client."""
    data, augmented = images(sum(SIZES)), LOCAL | {"flip": 0.5, "crop": 2}
    usual = final("scaffold", data, executor="threads", local=augmented)
    monkeypatch.setattr(threads, "_TOGETHER", together)
    assert_same(usual, final("scaffold", data, executor="threads", local=augmented))


@pytest.mark.parametrize(
    ("algorithm", "model"),
    [
        *(pytest.param("fedavg", name, marks=[pytest.mark.slow] * ("resnet" in name)) for name in MODELS),
        *(("contrast", name) for name in ("cnn_svhn", "mlp", "torchvision")),
    ],
)
def test_executors_agree_on_every_model(model: str, algorithm: str) -> None:
    data, built = smallest(model)
    if any(value.is_floating_point() for value in built.buffers()):
        with pytest.raises(SettingsError):
            final(algorithm, data, model=network(model), executor="stacked")
        return
    local = {"steps": 1, "batch_size": 2, "lr": 0.05}
    threads, stacked = (
        final(algorithm, data, sizes=(3, 1), rounds=2, model=network(model), local=local, executor=name)
        for name in ("threads", "stacked")
    )
    assert_close(threads, stacked, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["noisy", "lenet"])
def test_executors_agree_on_dropout_and_augmentation(model: str) -> None:
    data = images(side=16)
    local = {"epochs": 2, "batch_size": 3, "lr": 0.1, "flip": 0.5, "crop": 2}
    threads, stacked, plain = (
        final("fedavg", data, rounds=2, model=model, local=chosen, executor=name)
        for name, chosen in (("threads", local), ("stacked", local), ("threads", {**local, "flip": 0.0, "crop": 0}))
    )
    assert_close(threads, stacked, 1e-10)
    assert closest(threads.w, plain.w) > 1e-6  # the augmentation was not lost on the way


@pytest.mark.slow
def test_dropout_is_there_in_training_and_depends_on_the_seed_alone() -> None:
    local = {"epochs": 1, "batch_size": 8, "order": "stored"}

    def trained(seed: int, executor: str) -> Tensor:
        chosen = settings(seed=seed, model="noisy", local=local, engine={"executor": executor, "workers": 1})
        fed = federation(chosen, steady((8,), 1), vectors())
        fed.parts.w0 = torch.linspace(-1, 1, fed.parts.layout.size, dtype=torch.float64)
        return run_rounds(fed)[0].w

    assert torch.equal(trained(0, "threads"), trained(0, "threads"))
    assert closest(trained(0, "threads"), trained(1, "threads")) > 1e-3
    assert closest(trained(0, "threads"), trained(0, "stacked")) < 1e-12


def executors(fed: Federation) -> tuple[Threads, Stacked]:
    """Both executors on one learning problem."""
    return Threads(fed.parts.task, fed.parts.workers), Stacked(fed.parts.task, fed.parts.workers, 2)


def cohort(fed: Federation, steps: list[int], batch: int) -> Cohort:
    """Clients with any number of steps each, of batches of changing size, in the midst of training."""
    rng = np.random.default_rng(3)
    planned = np.array(steps, dtype=np.int64)
    bounds = np.append(0, rng.integers(1, batch + 1, planned.sum()).cumsum())
    samples, keys = (torch.from_numpy(rng.integers(0, most, n)) for most, n in ((60, bounds[-1]), (99, planned.sum())))
    rows, size = len(steps), fed.parts.layout.size
    W, momentum, trail, toward = torch.from_numpy(rng.normal(size=(4, rows, size))).unbind(0)
    return Cohort(
        W=W.clone(),
        buffers=torch.zeros(rows, 0, dtype=torch.float64),
        moments={"momentum": momentum.clone()},
        b=torch.zeros(0, dtype=torch.float64),
        plan=BatchPlan(samples, keys, bounds, np.append(0, planned.cumsum()), steps),
        label_counts=torch.ones(rows, 3, dtype=torch.float64),
        lr=0.1,
        added=Local(linear=trail.clone(), pull=torch.from_numpy(rng.random((rows, 1))), toward=toward),
        losses=torch.zeros(rows, dtype=torch.float64),
    )


@pytest.mark.slow
@hypothesis.settings(max_examples=12, deadline=None)
@given(steps=st.lists(st.integers(0, 4), min_size=1, max_size=5), cut=st.integers(0, 4))
def test_any_step_counts_and_any_cut(steps: list[int], cut: int) -> None:
    fed = federation(settings(local=LOCAL), steady([1], 1), vectors())
    made = []
    for executor in executors(fed):
        for cuts in ([4], [cut, 4]):
            clients = cohort(fed, steps, 3)
            before = clients.W.clone()
            advance = executor.begin(clients)
            for last in cuts:
                advance(last)
            made.append(clients)
            resting = [row for row, count in enumerate(steps) if count == 0]
            assert torch.equal(clients.W[resting], before[resting])
            assert not clients.losses[resting].any()
    fed.parts.workers.close()
    whole, *others = made
    assert torch.equal(whole.W, others[0].W)
    assert torch.equal(whole.moments["momentum"], others[0].moments["momentum"])
    assert torch.equal(whole.losses, others[0].losses)
    for other in others:
        assert closest(whole.W, other.W) < 1e-12
        assert closest(whole.moments["momentum"], other.moments["momentum"]) < 1e-12
        assert closest(whole.losses, other.losses) < 1e-12


UNEQUAL = (*[1] * 9, 40, *[1] * 8, 0, 12, *[2] * 9)
"""Of these 29 clients one goes on alone after 12 steps; where four are as fast as all, four do after two."""


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [[99], [1, 7, 99]])
@pytest.mark.parametrize("chunk", [0, 11])
def test_very_unequal_clients_are_as_with_all_others_until_the_end(
    cuts: list[int], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed, made = federation(settings(local=LOCAL), steady([1], 1), vectors()), list[Cohort]()
    threads, _ = executors(fed)
    stacked = Stacked(fed.parts.task, fed.parts.workers, chunk)
    for executor, unequal in ((threads, 4), (stacked, 99), (stacked, 4), (stacked, 1)):
        made.append(cohort(fed, list(UNEQUAL), 3))
        monkeypatch.setattr(stacked_executor, "_UNEQUAL", unequal)
        monkeypatch.setattr(stacked_executor, "_CALL", 32 if unequal == 4 else 5)
        advance = executor.begin(made[-1])
        for last in cuts:
            advance(last)
            made[-1].W[3:].mul_(0.9)  # as if clients averaged
    fed.parts.workers.close()
    by_one, together, *apart = map(written, made)
    for values in apart:
        assert all(map(torch.equal, values, together))
    for own, one in zip(together, by_one, strict=True):
        assert closest(own, one) < 1e-12


def written(cohort: Cohort) -> list[Tensor]:
    return [cohort.W, cohort.losses, *cohort.moments.values()]


@pytest.mark.parametrize("algorithm", ["fedsmoo", "contrast", "per_fedavg", {"name": "flash", "early_stop": 0.01}])
def test_all_that_an_algorithm_adds_is_that_of_the_client_however_unequal(algorithm: Any) -> None:
    local = {"epochs": 3, "batch_size": 2, "lr": 0.1}
    threads, stacked = (
        final(algorithm, sizes=UNEQUAL, rounds=2, data=vectors(sum(UNEQUAL)), local=local, executor=name)
        for name in ("threads", "stacked")
    )
    assert_close(threads, stacked, 1e-10)


def test_who_has_ended_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most four steps of rows for one of a client."""
    taken, step = list[int](), Rows.step

    def counted(self: Rows, inputs: Tensor, *rest: Any) -> Tensor:
        taken.append(len(inputs))
        return step(self, inputs, *rest)

    monkeypatch.setattr(Rows, "step", counted)
    sizes = (*[1] * 150, 300, *[1] * 150)
    final("fedavg", sizes=sizes, rounds=1, data=vectors(600), local={"epochs": 1, "batch_size": 2}, executor="stacked")
    assert sum(taken) <= 4 * (300 + 150)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedsam", "moon", "scaffold"])
def test_a_batch_of_one_sample_is_trained_on_with_batchnorm(algorithm: str) -> None:
    """In default settings: the last batch of a pass, or the only one of a client."""
    states = [final(algorithm, model="normed", **engine) for engine in ({}, {"executor": "threads", "workers": 2})]
    assert_same(*states)
    assert bool(torch.isfinite(states[0].w).all())


def test_the_rule_is_fixed_by_family_size_and_device() -> None:
    def task(model: Any, data: Dataset) -> tuple[Task, EngineSettings]:
        parts = federation(settings(model=model), steady([4], 1), data).parts
        return parts.task, parts.settings.engine

    tiny, engine = task("softmax_regression", vectors())
    large, _ = task({"name": "mlp", "widths": [TINY]}, vectors())
    normed, _ = task("cnn_svhn", images())
    elsewhere = {
        name: replace(one, device=torch.device("meta")) for name, one in (("large", large), ("normed", normed))
    }
    assert choose(tiny, engine, "linear") == choose(tiny, engine, "mlp") == "stacked"
    assert choose(tiny, engine, "convolutional") == choose(large, engine, "mlp") == "threads"
    assert choose(elsewhere["large"], engine, "mlp") == "stacked"
    assert choose(elsewhere["normed"], engine, "convolutional") == "resident"
    for asked in ("stacked", "threads"):
        chosen = engine.model_copy(update={"executor": asked})
        assert choose(large, chosen, "mlp") == choose(tiny, chosen, "linear") == asked
    with pytest.raises(SettingsError):
        choose(normed, engine.model_copy(update={"executor": "stacked"}), "convolutional")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("local", "executor"),
    matrix([{}, {"clip": 0.3}, {"accumulate": 2}, {"momentum": 0.5}], ["resident", "threads", "stacked"]),
)
def test_a_gradient_left_to_the_step_is_the_one_an_algorithm_takes(executor: str, local: dict[str, Any]) -> None:
    """Up to rounding."""
    chosen: dict[str, Any] = {"local": {"epochs": 2, "batch_size": 3, "lr": 0.02, **local}}
    if executor == "resident":
        chosen |= {"model": {"name": "cnn_svhn"}, "data": images(21, 8, 3), "rounds": 1}
    else:
        chosen |= {"executor": executor}
    ours, taken = (final({"name": "ahead", "left_to_step": left}, **chosen) for left in (True, False))
    assert closest(ours.w, taken.w) < 1e-12


def test_a_gradient_at_something_else_than_a_point_is_refused() -> None:
    W = torch.zeros(2, 5)
    chosen = plugins.load("algorithms", "fedsam")
    algorithm = chosen(chosen.Settings())
    for found in (GradientAt(W[:, :1]), GradientAt(W, minus=W[:1]), GradientAt(W[0])):
        with pytest.raises(PluginError, match="direction of fedsam should return a tensor of shape"):
            contract.direction(algorithm, found, W)
    for right in (GradientAt(W), GradientAt(W, minus=W[0])):
        assert contract.direction(algorithm, right, W) is right
