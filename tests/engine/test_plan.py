"""Who sees which sample in which local step."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from fedtide.core.randomness import generator, key64
from fedtide.settings.groups.local import LocalSettings
from fedtide.training.engine.plan import BatchPlan, plan_batches, sample_count, step_count
from support import deal, federation, run_rounds, settings, steady, vectors

BATCH = st.integers(1, 6)


def plan(sizes: list[int], ids: list[int] | None = None, seed: int = 0, round_: int = 0, **local: Any) -> BatchPlan:
    """A plan for clients with consecutive shards."""
    shards = deal(sizes)
    ids = list(range(len(sizes))) if ids is None else ids
    mean = float(np.mean(sizes))
    return plan_batches(
        shards, ids, LocalSettings(**local), mean, seed, "batches", (round_,), torch.device("cpu"), np.zeros_like
    )


def batches(made: BatchPlan, row: int) -> list[list[int]]:
    """A client's batches."""
    return [batch.tolist() for batch in torch.split(*made.of(row))]


def flat(parts: list[list[int]]) -> list[int]:
    """Batches as one stream."""
    return [index for part in parts for index in part]


def one_by_one(
    shard: np.ndarray, client: int, local: LocalSettings, steps: int, labels: np.ndarray
) -> tuple[list[list[int]], int]:
    """A client's batches, appended one after the other, and the key of its first step."""
    rng, size = generator(3, "fine_tune", 7, client), local.step_samples
    made, rest = list[list[int]](), list[int]()
    while len(made) < steps:
        order = shard
        if local.order == "shuffled":
            order = shard[rng.permutation(len(shard))]
        elif local.order == "class_balanced":
            count = {label: (labels[shard] == label).sum() for label in labels[shard]}
            order = rng.choice(shard, len(shard), p=[1 / (len(count) * count[label]) for label in labels[shard]])
        rest += order.tolist()
        while len(rest) >= size or (rest and not local.batches_span_epochs):
            made.append(rest[:size])
            rest = rest[size:]
    return made[:steps], key64(3, "fine_tune.samples", 7, client)


@examples(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 13), max_size=5),
    work=st.tuples(st.sampled_from(["epochs", "steps", "capped_steps", "mean_epochs"]), st.integers(1, 7)),
    batch=BATCH,
    accumulate=st.integers(1, 2),
    order=st.sampled_from(["shuffled", "stored", "class_balanced"]),
    spans=st.booleans(),
)
def test_the_draws_of_a_cohort_are_those_of_its_clients_one_by_one(
    sizes: list[int], work: tuple[str, int], batch: int, accumulate: int, order: Any, spans: bool
) -> None:
    if work[0] == "capped_steps":
        spans = False  # which excludes it
    local = LocalSettings(
        **{work[0]: work[1]}, batch_size=batch, accumulate=accumulate, order=order, batches_span_epochs=spans
    )
    mean, clients = float(np.mean(sizes or [1])), [3 * number + 2**33 for number in range(len(sizes))]
    labels = np.random.default_rng(0).integers(0, 3, sum(sizes) + 5)
    shards = [np.random.default_rng(len(shard)).permutation(shard) for shard in deal(sizes, 5)]
    made = plan_batches(shards, clients, local, mean, 3, "fine_tune", (7,), torch.device("cpu"), labels.__getitem__)
    assert made.samples.dtype == made.keys.dtype == torch.int64
    assert len(made.samples) == sum(sample_count(size, mean, local) for size in sizes)
    assert len(made.keys) == sum(made.steps)
    for row, (shard, client) in enumerate(zip(shards, clients, strict=True)):
        assert made.steps[row] == step_count(len(shard), mean, local)
        expected, key = one_by_one(shard, client, local, made.steps[row], labels)
        assert batches(made, row) == expected
        keys = made.keys[made.first[row] :][: made.steps[row]]
        assert keys[:1].tolist() == [key][: len(keys)]
        alone = plan_batches(
            [shard], [client], local, mean, 3, "fine_tune", (7,), torch.device("cpu"), labels.__getitem__
        )
        assert torch.equal(alone.keys, keys)
        if made.longest > 2:
            window = made.window(slice(row, row + 1), range(1, 3))
            seen = [expected[step] if step < len(expected) else [] for step in (1, 2)]
            assert window.indices.tolist() == [[batch + [0] * (made.width - len(batch)) for batch in seen]]
            assert window.sizes.tolist() == [list(map(len, seen))]
            assert window.full == [len(batch) == made.width for batch in seen]
            assert torch.equal(window.keys[0, : len(keys[1:3])], keys[1:3])


def test_a_large_client_makes_no_other_larger() -> None:
    made = plan([30_000, *[1] * 2000], batch_size=30, epochs=2)
    assert len(made.samples) == 2 * 32_000
    assert len(made.keys) == 2 * (1000 + 2000)


def test_batches_differ_by_seed_round_and_client() -> None:
    made = [plan([40, 40]), plan([40, 40], seed=1), plan([40, 40], round_=1), plan([40, 40], ids=[5, 9])]
    orders = [tuple(flat(batches(one, 0))) for one in made]
    assert len(set(orders)) == len(orders)
    assert [index + 40 for index in flat(batches(made[0], 0))] != flat(batches(made[0], 1))
    assert torch.cat([one.keys.reshape(-1) for one in made]).unique().numel() == sum(one.keys.numel() for one in made)


@pytest.mark.parametrize(
    ("local", "size", "mean", "steps"),
    [
        ({"epochs": 5, "batch_size": 8}, 20, 10.0, 15),
        ({"epochs": 5, "batch_size": 8}, 0, 10.0, 0),
        ({"steps": 5, "batch_size": 8}, 20, 10.0, 5),
        ({"steps": 5, "batch_size": 8}, 0, 10.0, 0),
        # Published cases: one pass over the loader, stopped after five batches of 128.
        ({"capped_steps": 5, "batch_size": 128}, 300, 300.0, 3),
        ({"capped_steps": 5, "batch_size": 128}, 900, 300.0, 5),
        # E ceil(mean n / B), the same for a small and a large client; MNIST with 100 clients gives 60.
        ({"mean_epochs": 5, "batch_size": 50}, 30, 600.0, 60),
        ({"mean_epochs": 3, "batch_size": 10}, 35, 27.5, 9),
        # floor(E n / min(B, n)).
        ({"epochs": 5, "batch_size": 10, "batches_span_epochs": True}, 33, 33.0, 16),
        ({"epochs": 5, "batch_size": 10, "batches_span_epochs": True}, 4, 33.0, 5),
    ],
)
def test_step_counts(local: dict[str, Any], size: int, mean: float, steps: int) -> None:
    assert step_count(size, mean, LocalSettings(**local)) == steps


def test_classes_that_a_client_has_are_drawn_equally_often() -> None:
    """10,000 draws among 90, 9 and 1 samples of three classes; a fourth one is elsewhere. Five standard deviations."""
    labels = np.repeat([0, 1, 2, 3], [90, 9, 1, 50])
    local = LocalSettings(epochs=100, batch_size=10, order="class_balanced")
    made = plan_batches([np.arange(100)], [0], local, 1.0, 0, "batches", (0,), torch.device("cpu"), labels.__getitem__)
    drawn = np.array(flat(batches(made, 0)))
    classes = np.bincount(labels[drawn], minlength=4)
    assert classes[3] == 0
    assert np.abs(classes[:3] - 10_000 / 3).max() < 5 * np.sqrt(10_000 * 2 / 9)
    samples = np.bincount(drawn, minlength=100)
    assert np.abs(samples[:90] - 10_000 / 270).max() < 5 * np.sqrt(10_000 / 270)


def test_a_run_draws_by_the_labels_of_its_data() -> None:
    data = vectors(40)
    data.train_labels.copy_((torch.arange(40) >= 38).long())
    chosen = settings(local={"epochs": 50, "batch_size": 40, "order": "class_balanced"})
    fed, share = federation(chosen, steady((40,), 1), data), []
    begin = fed.parts.executor.begin
    fed.parts.executor.begin = lambda cohort: (  # type: ignore[method-assign]
        share.append(float((cohort.plan.samples >= 38).double().mean())) or begin(cohort)  # type: ignore[func-returns-value]
    )
    run_rounds(fed)
    assert abs(share[0] - 0.5) < 5 * 0.5 / np.sqrt(2000)
