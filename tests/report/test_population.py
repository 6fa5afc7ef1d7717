"""How a population moves, who is present and who takes part: the numbers, and the figures."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from synthetic_runs import write_run

from fedtide.records.frames import load
from fedtide.report.sections.population import figure_of, movements, per_session
from fedtide.report.sections.world import presence_and_cohorts, raster
from fedtide.settings.scores import Score
from support import deal, federation, run_rounds, settings, timeline, vectors, watch

PRESENT = [[0, 1], [0, 2], [0, 1, 3], [0, 1, 3]]


def world():
    made = timeline(deal((5, 2, 7, 4)), [{client: client for client in here} for here in PRESENT])
    return replace(made, session_of_round=np.arange(4), origin_of_client=np.arange(4))


def test_movements_are_counted_from_session_to_session() -> None:
    assert movements(world()) == {
        "name": ["S1", "S2", "S3", "S4"],
        "present": [2, 2, 3, 3],
        "newcomers": [0, 1, 1, 0],
        "returners": [0, 0, 1, 0],
        "left": [0, 1, 1, 0],
    }


def test_only_clients_of_the_data_move() -> None:
    assert movements(replace(world(), origin_of_client=np.zeros(0, dtype=np.int64)))["present"] == []


def test_scores_are_those_of_the_last_round_of_a_session_and_scores_ahead_belong_to_the_next(tmp_path) -> None:
    read = load([write_run(tmp_path, "fedavg", sessions=4, rounds=3)])
    found = per_session(read)
    history = read.history.set_index("round")
    assert found["session"].tolist() == [1, 2, 3, 4]
    assert found["score"].tolist() == history.loc[[3, 6, 9, 12], "test_accuracy"].tolist()
    history = read.history.assign(test_accuracy_next=read.history["test_accuracy"].where(read.history["session"] < 4))
    found = per_session(replace(read, history=history, score=Score("accuracy_next")))
    assert found["session"].tolist() == [2, 3, 4]


def test_the_picture_needs_sessions(tmp_path) -> None:
    read = load([write_run(tmp_path, label, sessions=4, rounds=3) for label in ("fedavg", "scaffold")])
    moves = pd.DataFrame(movements(world()))
    assert figure_of(read, moves) is not None
    assert figure_of(read, moves[:1]) is None


WORLD = timeline(deal((5, 2, 7, 4)), [{0: 0, 1: 1, 2: 2}, {0: 0, 2: 2}, {0: 0, 1: 1, 2: 2, 3: 3}] * 3)


@pytest.mark.parametrize(
    "rule", [{"name": "markov", "shares": "labels"}, {"name": "least_recently_selected", "count": 1}]
)
def test_the_tables_are_the_cohorts_of_the_run(rule: dict[str, object]) -> None:
    chosen = settings(participation=rule)
    fed = federation(chosen, WORLD, vectors())
    seen = watch(fed)
    run_rounds(fed)
    present, drawn = presence_and_cohorts(chosen, WORLD, vectors().train_labels.numpy())
    assert [np.flatnonzero(column).tolist() for column in drawn.T] == [r.ids for r, _ in seen]
    assert [np.flatnonzero(column).tolist() for column in present.T] == [WORLD.at(t).clients.tolist() for t in range(9)]


def test_the_picture_is_left_out_for_full_participation() -> None:
    some = presence_and_cohorts(
        settings(participation={"name": "fixed", "count": 2}), WORLD, vectors().train_labels.numpy()
    )
    assert raster(*some) is not None
    everybody = presence_and_cohorts(settings(participation="all"), WORLD, vectors().train_labels.numpy())
    assert raster(*everybody) is None
