"""Accuracies of a session's labels, of all labels seen, and of the arg-max restricted to the session's labels."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedtide.federation.federation import Federation
from fedtide.world.timeline import Timeline
from support import federation, run_rounds, settings, steady, stepped, vectors

VIEWS = np.array([[True, True, False], [False, False, True], [False, True, True]])


def world(rounds: int = 3) -> Timeline:
    each = np.arange(rounds, dtype=np.int64)
    return replace(steady((30, 30), rounds), label_views=VIEWS, view_of_round=each, session_of_round=each)


def finished(fed: Federation) -> tuple[list[dict[str, float]], list[torch.Tensor]]:
    """Rows and the arg-max inputs (logits of the test set) after each round."""
    rows, logits = [], []
    for state, record in stepped(fed):
        rows.append(record.row)
        weight, bias = fed.parts.layout.named(state.w, state.b).values()
        logits.append(fed.parts.data.test_inputs @ weight.T + bias)
    return rows, logits


@pytest.mark.parametrize("workers", [1, 2])
def test_all_views_are_those_of_the_logits(workers: int) -> None:
    evaluation = {"batch_size": 7}
    fed = federation(settings(evaluation=evaluation, engine={"workers": workers}), world(), vectors())
    rows, logits = finished(fed)
    y = fed.parts.data.test_labels
    for t, (row, scores) in enumerate(zip(rows, logits, strict=True)):
        view, seen = torch.from_numpy(VIEWS[t]), torch.from_numpy(VIEWS[: t + 1].any(0))
        right = (scores.argmax(1) == y).double()
        kept = torch.where(view, scores, -torch.inf).argmax(1) == y
        assert row["test_accuracy"] == pytest.approx(right[view[y]].mean().item(), abs=1e-12)
        assert row["test_accuracy_seen"] == pytest.approx(right[seen[y]].mean().item(), abs=1e-12)
        assert row["test_accuracy_masked"] == pytest.approx(kept[view[y]].double().mean().item(), abs=1e-12)
        assert row["test_accuracy_masked"] >= row["test_accuracy"]
    assert rows[1]["test_accuracy_masked"] == 1.0, "one label is left to choose from"


def test_metrics_are_over_the_samples_of_the_session_s_labels() -> None:
    fed = federation(settings(evaluation={"metrics": ["balanced_accuracy", "auroc"]}), world(), vectors())
    rows, logits = finished(fed)
    y = fed.parts.data.test_labels
    for row, scores, view in zip(rows, logits, VIEWS, strict=True):
        right = scores.argmax(1) == y
        recalls = [right[y == label].double().mean().item() for label in np.flatnonzero(view)]
        assert row["test_balanced_accuracy"] == pytest.approx(np.mean(recalls), abs=1e-7)
    assert rows[1]["test_auroc"] is None, "samples of one label"


def test_a_model_of_the_other_labels_knows_nothing_unless_it_is_asked_within_them() -> None:
    """Right after a change to labels that were never seen: accuracy 0, because nothing there is ever predicted."""
    fed = federation(settings(), world(1), vectors())
    w = fed.parts.w0.clone()
    bias = w[-3:]
    bias[:] = torch.tensor([0.0, 0.0, -1e3])
    scores = fed.parts.evaluator.scores((w, fed.parts.b0), view=VIEWS[1])
    fed.parts.workers.close()
    assert scores.accuracy(VIEWS[1]) == 0.0
    assert scores.accuracy(VIEWS[1], scores.masked) == 1.0


def test_where_every_label_counts_there_is_one_accuracy() -> None:
    _, records = run_rounds(federation(settings(), steady((4, 5), 1), vectors()))
    assert not [name for name in records[0].row if name.endswith(("_seen", "_masked"))]


def test_a_session_s_model_is_scored_on_the_labels_of_every_session_so_far() -> None:
    fed = federation(settings(evaluation={"batch_size": 7, "every": 2}), world(), vectors())
    y = fed.parts.data.test_labels
    for t, (state, record) in enumerate(stepped(fed)):
        rows = record.session_scores
        weight, bias = fed.parts.layout.named(state.w, state.b).values()
        right = ((fed.parts.data.test_inputs @ weight.T + bias).argmax(1) == y).double()
        expected = [right[torch.from_numpy(VIEWS[tested])[y]].mean().item() for tested in range(t + 1)]
        assert [row["test_accuracy"] for row in rows] == pytest.approx(expected, abs=1e-12)
        assert [(row["session"], row["tested"]) for row in rows] == [(t + 1, tested + 1) for tested in range(t + 1)]
