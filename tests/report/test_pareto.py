"""Accuracy against communication cost."""

import json

import numpy as np
import pandas as pd
import pytest
from synthetic_runs import finish_again, write_run

from fedtide.records import frames as records
from fedtide.report.sections import pareto
from fedtide.report.tables.table import tabulate
from fedtide.settings.scores import Score


def chart(root, exchange="intervals", score="accuracy", **costs):
    """Of methods with one run each, from their costs; the later the method, the better its runs."""
    for place, (label, cost) in enumerate(costs.items()):
        path = write_run(root, label, sessions=1)
        settings = json.loads((path / "settings.json").read_text())
        (path / "settings.json").write_text(json.dumps({**settings, "communication": {"name": exchange}}))
        history = pd.read_csv(path / "history.csv").assign(test_accuracy=place / 10, test_loss=1 - place / 10)
        (history if cost is None else history.assign(kappa=cost)).to_csv(path / "history.csv", index=False)
        finish_again(path)
    read = records.load(sorted(root.iterdir()), Score(score))
    return pareto.score_over_cost(read, tabulate(read, 10))


@pytest.mark.parametrize(("score", "values"), [("accuracy", [0.1, 0.1, 0.3]), ("loss", [0.9, 0.9, 0.7])])
def test_the_front_is_what_nobody_beats(tmp_path, score, values):
    """a costs more than b, which is better; c is better than both, and d costs as much as c and is better."""
    found = chart(tmp_path, score=score, a=0.2, b=0.1, c=0.3, d=0.3)
    assert found.legend == ["Pareto front", "a", "b", "c", "d"]
    front = found.panels[0].series[0]
    assert front.x == pytest.approx([0.1, 0.3, 0.3])
    assert front.y == pytest.approx(values)


def test_it_is_drawn_where_clients_average_inside_a_round_and_its_cost_is_known(tmp_path):
    assert chart(tmp_path / "end", "per_round", a=0.1, b=0.2) is None
    assert chart(tmp_path / "unknown", a=None, b=None) is None
    dots = chart(tmp_path / "known", a=0.1, b=0.2).panels[0].series[1:]
    assert np.concatenate([dot.x for dot in dots]) == pytest.approx([0.1, 0.2])
