"""The models that clients are served, and what their own are worth: test samples, the gain, clients that leave and return."""

from typing import Any

import numpy as np
import pytest
import torch

from fedtide.core.discovery.faults import PluginError
from fedtide.federation.federation import Federation
from fedtide.federation.scoring.client_samples import sample_counts, samples_of
from fedtide.methods.algorithms.base import Served, ServedTo
from fedtide.records.files.client_scores import GAINS
from fedtide.world.timeline import Timeline
from support import assert_same, deal, federation, run_rounds, settings, steady, timeline, vectors

pytestmark = pytest.mark.usefixtures("drop_in")

MODEL = {"name": "mlp", "widths": [6]}
SIZES = (12, 9, 14, 10)
FIVE = steady((5, 1, 8, 3, 4), 3)


def made(world: Timeline, algorithm: Any = "in_parts", cohorts: Any = None, **values: Any) -> Federation:
    local = {"epochs": 2, "batch_size": 3, "lr": 0.2}
    values["evaluation"] = {"clients_every": 1, **values.get("evaluation", {})}
    chosen = settings(**{"algorithm": algorithm, "model": MODEL, "local": local, **values})
    return federation(chosen, world, vectors(), cohorts=cohorts)


def away(sessions: list[int] | None = None) -> Timeline:
    """Client 3 is absent in rounds 3 and 4 of five."""
    present = [{client: client for client in range(3 if t in (2, 3) else 4)} for t in range(5)]
    return timeline(deal(SIZES), present, clients=4, session_of_round=sessions)


def test_samples_stand_for_a_client_by_its_shares_of_labels() -> None:
    assert sample_counts(np.array([50, 30, 19, 1]), np.array([100, 5, 100, 100]), 20).tolist() == [10, 5, 4, 1]
    assert sample_counts(np.zeros(3), np.array([4, 4, 4]), 20).tolist() == [0, 0, 0]


def test_samples_belong_to_the_client_and_are_nested() -> None:
    def positions(clients: list[int], **values: Any) -> list[set[int]]:
        fed = made(steady(SIZES, 2), **values)
        tested = samples_of(fed.parts.evaluator, 1, np.array(clients))
        assert tested.counts is not None
        found = [set(own.tolist()) for own in tested.positions]
        assert [len(own) for own in tested.positions] == [len(own) for own in found]
        return found

    few, many = (positions([0, 1, 2, 3], evaluation={"client_samples": m}) for m in (7, 19))
    assert all(one < other for one, other in zip(few, many, strict=True))
    assert len({tuple(sorted(own)) for own in few}) == 4
    assert positions([2], algorithm="fedavg", evaluation={"client_samples": 7}) == [few[2]]
    assert positions([2], seed=1, evaluation={"client_samples": 7}) != [few[2]]


def test_many_samples_are_all_of_them() -> None:
    """Where every sample of a label is taken, accuracies are those of the whole test set."""
    tables = []
    for number in (None, 10_000):
        _, records = run_rounds(made(steady(SIZES, 2), evaluation={"client_samples": number}))
        tables.append(records[-1].client_scores)
    for name in ("accuracy", "loss", "served_accuracy", "served_loss", "personalization_gain"):
        assert tables[0][name] == pytest.approx(tables[1][name], abs=1e-12)
    assert tables[0]["samples"] == [None] * 4
    assert tables[1]["samples"] != tables[0]["samples"]


@pytest.mark.parametrize("number", [None, 6])
def test_gains_are_differences_on_the_same_samples(number: int | None) -> None:
    evaluation = {"client_samples": number, "finetune_steps": 2}
    fed = made(steady(SIZES, 3), cohorts=[[0, 3]] * 3, evaluation=evaluation)
    _, records = run_rounds(fed)
    table, row = records[-1].client_scores, records[-1].row
    for prefix, (mean, worse) in GAINS.items():
        gain = np.subtract(table[f"{prefix}_accuracy"], table["accuracy"])
        assert table[mean] == pytest.approx(gain)
        assert row[mean] == pytest.approx(gain.mean())
        assert row[worse] == pytest.approx((gain < 0).mean())
    assert [value == 0 for value in table["personalization_gain"]][1:3] == [True, True]
    assert table["known"] == [True, False, False, True]
    assert row["served_known"] == 0.5
    assert row["served_accuracy_known"] == pytest.approx(np.mean([table["served_accuracy"][k] for k in (0, 3)]))
    assert row["served_accuracy_unknown"] == pytest.approx(np.mean([table["served_accuracy"][k] for k in (1, 2)]))
    assert row["served_accuracy_samples"] == pytest.approx(np.average(table["served_accuracy"], weights=SIZES))
    assert set(fed.scoring.columns) <= set(row)


def test_there_are_no_gains_over_a_model_that_is_not_trained() -> None:
    found = []
    for algorithm in ("local", "ditto"):
        fed = made(steady(SIZES, 2), algorithm, evaluation={"finetune_steps": 2})
        _, records = run_rounds(fed)
        names = {*records[-1].row, *records[-1].client_scores, *fed.scoring.columns}
        assert {"served_accuracy_mean", "served_known", "finetuned_accuracy_mean", "finetuned_loss"} <= names
        found.append({name for name in names if name.endswith("_gain") or "worse" in name})
    assert found == [
        set(),
        {"personalization_gain", "fraction_worse_than_global", "finetuning_gain", "finetuning_fraction_worse"},
    ]


def test_one_drawn_sample_set_is_what_a_pass_over_it_gives() -> None:
    fed = made(steady(SIZES, 1), "fedavg", evaluation={"client_samples": 5})
    evaluator = fed.parts.evaluator
    state, records = run_rounds(fed)
    tested = samples_of(evaluator, 0, np.arange(4))
    assert tested.counts is not None
    for client, positions in enumerate(tested.positions):
        inputs, labels = evaluator.data.read("test", torch.from_numpy(positions))
        hits = (evaluator.workers.forward(state.w, state.b, inputs).argmax(1) == labels).double()
        share = tested.counts[client] / tested.counts[client].sum()
        weights = (share / torch.bincount(labels, minlength=3).clamp(min=1))[labels]
        assert records[0].client_scores["accuracy"][client] == pytest.approx(float((weights * hits).sum()))


def test_personal_steps_begin_at_the_served_model() -> None:
    """What is not trained stays as it was served."""
    evaluation = {"finetune_steps": 2, "finetune_part": "head"}
    fed = made(steady(SIZES, 2), evaluation=evaluation)
    each, models = fed.parts.evaluator.each, []

    def noted(rows: Any, of: Any, tested: Any) -> Any:
        models.append(rows[0][list(of)].clone())
        return each(rows, of, tested)

    object.__setattr__(fed.parts.evaluator, "each", noted)
    run_rounds(fed)
    served, personal = models[-2:]
    head = fed.parts.layout.mask("head")
    assert torch.equal(served[:, ~head], personal[:, ~head])
    assert bool((served[:, head] != personal[:, head]).any(1).all())


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_an_algorithm_may_have_a_rate_for_steps_of_evaluation(rate: float) -> None:
    algorithm = {"name": "per_fedavg", "inner_lr": rate, "batches": "same"}
    _, records = run_rounds(made(steady(SIZES, 1), algorithm, evaluation={"finetune_steps": 2}))
    table = records[0].client_scores
    assert (table["finetuned_loss"] == pytest.approx(table["loss"], abs=1e-12)) is (rate == 0)


@pytest.mark.slow
def test_the_last_model_served_is_that_of_the_last_round_present() -> None:
    """Frozen when a client leaves, whatever becomes of its memory, on the samples of its last round."""
    sessions = away([0, 0, 1, 1, 1])
    fed = made(sessions, evaluation={"departed_clients": "last_model", "client_samples": 8})
    _, records = run_rounds(fed)
    then, later = records[1].client_scores, records[3].client_scores
    assert later["client"] == [0, 1, 2, 3]
    assert later["group"][3] == "departed"
    assert later["served_accuracy"][3] == then["served_accuracy"][3]
    assert later["served_loss"][3] == then["served_loss"][3]
    assert later["loss"][3] != then["loss"][3]
    assert records[3].row["served_accuracy_departed"] == then["served_accuracy"][3]
    _, plain = run_rounds(made(sessions))
    assert "served_accuracy_departed" not in plain[3].row
    assert plain[3].client_scores["served_accuracy"][3] is None


@pytest.mark.slow
def test_keeping_last_models_changes_nothing_else() -> None:
    states = [
        run_rounds(made(away(), evaluation={"departed_clients": model}))[0] for model in ("global_model", "last_model")
    ]
    del states[1].memory["last_served"]
    states[1].written = states[0].written
    assert_same(*states)


@pytest.mark.slow
@pytest.mark.parametrize("on_leave", ["discard", "keep"])
def test_a_client_that_returns(on_leave: str) -> None:
    """Kept, its memory is what it was when it left; forgotten, it is served the global model until it is drawn."""
    cohorts = [[0, 1, 2, 3], [3], [0], [1], [2]]
    state, _ = run_rounds(made(away(), "local", cohorts=cohorts), 2)
    own = state.memory["own"][3]
    state, records = run_rounds(made(away(), "local", cohorts=cohorts, client_state={"on_leave": on_leave}))
    table, kept = records[-1].client_scores, on_leave == "keep"
    assert table["known"][3] is kept
    assert torch.equal(state.memory["own"][3], own) is kept
    assert table["loss"] == [None] * 4  # nobody trains the global model
    _, never = run_rounds(made(away(), "local", cohorts=[[0], [1], *cohorts[2:]]))
    assert (table["served_loss"][3] == never[-1].client_scores["served_loss"][3]) is not kept


def test_only_models_of_clients_own_are_kept() -> None:
    """A drift memory is no such model: it leaves with its client, as before."""
    states = [
        run_rounds(made(away(), "scaffold", client_state={"on_leave": on_leave}))[0] for on_leave in ("discard", "keep")
    ]
    assert_same(*states)


def test_every_client_present_is_asked_for_a_cohort_at_a_time() -> None:
    fed = made(FIVE, cohorts=[[0, 3]] * 3)
    served, asked = fed.parts.algorithm.served, []

    def noted(s: ServedTo) -> Served | None:
        asked.append((list(s.ids), s.seen[:, 0].tolist(), s.client.own.abs().sum(1) > 0))
        return served(s)

    fed.parts.algorithm.served = noted  # type: ignore[method-assign]
    run_rounds(fed)
    assert [ids for ids, _, _ in asked] == [[0, 1], [2, 3], [4]] * 3
    assert [seen for _, seen, _ in asked[:3]] == [[1.0, 0.0], [0.0, 1.0], [0.0]]
    assert [own.tolist() for _, _, own in asked[:3]] == [[True, False], [False, True], [False]]


@pytest.mark.parametrize("model", [MODEL, "normed"], ids=["plain", "normed"])
def test_none_is_the_global_model_for_everybody(model: Any) -> None:
    _, records = run_rounds(made(FIVE, {"name": "in_parts", "serve": False}, model=model))
    table = records[-1].client_scores
    assert table["served_accuracy"] == pytest.approx(table["accuracy"], abs=1e-12)
    assert table["served_loss"] == pytest.approx(table["loss"], abs=1e-12)


def test_clusters_share_models() -> None:
    fed, clusters = made(FIVE, cohorts=[[0, 3]] * 3), np.array([1, 1, 0, 0, 1])

    def two(s: ServedTo) -> Served:
        return Served(torch.stack([s.w, torch.zeros_like(s.w)]), clusters[s.ids])

    fed.parts.algorithm.served = two  # type: ignore[method-assign]
    _, records = run_rounds(fed)
    table = records[-1].client_scores
    uniform = float(np.log(3))
    for cluster, served, whole in zip(clusters, table["served_loss"], table["loss"], strict=True):
        assert served == pytest.approx(uniform if cluster else whole, abs=1e-12)


def test_algorithms_without_such_models_have_no_columns_for_them() -> None:
    _, records = run_rounds(made(FIVE, "fedavg"))
    assert not [name for name in records[0].row if name.startswith("served")]
    assert "served_accuracy" not in records[0].client_scores


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda s: s.w, "Served or None, got Tensor"),
        (lambda s: Served(s.w, np.zeros(len(s.ids), dtype=np.int64)), "a tensor of shape"),
        (lambda s: Served(s.w.unsqueeze(0), np.ones(len(s.ids), dtype=np.int64)), "indices from 0 to 0, got 1 to 1"),
        (lambda s: Served(s.w.unsqueeze(0), np.zeros(1, dtype=np.int64)), "a model for each of 5 clients, got 1"),
    ],
)
def test_other_answers_are_refused(answer: Any, message: str) -> None:
    fed = made(FIVE)
    fed.parts.algorithm.served = answer  # type: ignore[method-assign]
    with pytest.raises(PluginError) as caught:
        run_rounds(fed)
    fed.parts.workers.close()
    assert message in str(caught.value)
