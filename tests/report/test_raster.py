"""Who is present and takes part: the tables, and the figure's file."""

import io

import numpy as np
import pytest
from matplotlib import image

from fedtide.report.charts import style
from fedtide.report.charts.pictures import Drawing
from fedtide.report.sections.world import presence_and_cohorts, raster
from support import deal, federation, run_rounds, settings, timeline, vectors, watch

WORLD = timeline(deal((5, 2, 7, 4)), [{0: 0, 1: 1, 2: 2}, {0: 0, 2: 2}, {0: 0, 1: 1, 2: 2, 3: 3}] * 3)


@pytest.mark.parametrize(
    "rule",
    [
        {"name": "fixed", "count": 2},
        {"name": "markov", "shares": "labels"},
        {"name": "least_recently_selected", "count": 1},
    ],
)
def test_the_tables_are_the_cohorts_of_the_run(rule: dict[str, object]) -> None:
    chosen = settings(participation=rule)
    fed = federation(chosen, WORLD, vectors())
    seen = watch(fed)
    run_rounds(fed)
    present, drawn = presence_and_cohorts(chosen, WORLD, vectors().train_labels.numpy())
    assert [np.flatnonzero(column).tolist() for column in drawn.T] == [r.ids for r, _ in seen]
    assert [np.flatnonzero(column).tolist() for column in present.T] == [WORLD.at(t).clients.tolist() for t in range(9)]


def test_the_picture_is_reproducible_and_left_out_for_full_participation() -> None:
    chosen = settings(participation={"name": "fixed", "count": 2})
    tables = presence_and_cohorts(chosen, WORLD, vectors().train_labels.numpy())
    figures = [raster(*tables) for _ in range(2)]
    first, second = (Drawing("cohorts", "", "", figure).files(["png"])["png"] for figure in figures if figure)
    assert first == second
    assert image.imread(io.BytesIO(first)).shape[1] == 9 * style.DPI
    everybody = presence_and_cohorts(settings(participation="all"), WORLD, vectors().train_labels.numpy())
    assert raster(*everybody) is None
