"""Accuracy against communication cost."""

import json

from hypothesis import given
from hypothesis import strategies as st
from synthetic_runs import finish_again, write_run

from fedtide.records import frames as records
from fedtide.report.charts.pictures import Drawing, picture
from fedtide.report.sections import pareto
from fedtide.report.tables.front import pareto_front
from fedtide.report.tables.table import tabulate

points = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12)


@given(points)
def test_the_front_is_what_nobody_beats(pairs):
    costs, values = zip(*pairs, strict=True)

    def beaten(place):
        return any(
            cost <= costs[place] and value >= values[place] and (cost, value) != pairs[place] for cost, value in pairs
        )

    found = pareto_front(costs, values)
    assert sorted(found) == [place for place in range(len(pairs)) if not beaten(place)]
    assert [costs[place] for place in found] == sorted(costs[place] for place in found)


def drawing(root, exchange, kappa=True):
    for label, cost in (("fedavg", 0.004), ("scaffold", 0.3)):
        path = write_run(root, label)
        settings = json.loads((path / "settings.json").read_text())
        (path / "settings.json").write_text(json.dumps({**settings, "communication": {"name": exchange}}))
        if kappa:
            head, *rows = (path / "history.csv").read_text().splitlines()
            lines = [f"{head},kappa", *(f"{row},{cost}" for row in rows)]
            (path / "history.csv").write_text("\n".join(lines) + "\n")
        finish_again(path)
    read = records.load(sorted(root.iterdir()))
    return pareto.score_over_cost(read, tabulate(read, 10))


def test_it_is_drawn_where_clients_average_inside_a_round(tmp_path):
    drawn = drawing(tmp_path / "inside", "intervals")
    assert drawn is not None
    assert picture(Drawing("cost", "", "", drawn), ()).files["png"].startswith(b"\x89PNG")
    assert list(drawn.legend) == ["Pareto front", "fedavg", "scaffold"]
    assert drawing(tmp_path / "end", "per_round") is None
    assert drawing(tmp_path / "unknown", "intervals", kappa=False) is None
