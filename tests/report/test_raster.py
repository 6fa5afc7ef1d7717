"""Who is present and takes part: the tables, and the figure's file."""

import numpy as np
import pytest

from fedtide.report.sections.world import presence_and_cohorts, raster
from support import deal, federation, run_rounds, settings, timeline, vectors, watch

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
