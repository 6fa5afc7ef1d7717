"""The section about erased clients."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
from synthetic_runs import changed, write_run

from fedtide.records import frames as records
from fedtide.records.measures.erasure import COMPARED
from fedtide.report.formats import NOTHING
from fedtide.report.sections.erasure import erased, memory, sheet

NAN = math.nan
COSTS = {"gradients_retained": 1200, "gradients_erased": 0, "down": 500, "up": 500, "stored": 2000}


def erasing(root: Path, label: str, seed: int, left: float, initializer: str = "previous", **more: list[Any]) -> Path:
    """Two sessions of two rounds; the request is before the second round, and every second round is evaluated.

    Memory left is ``left`` after the request and the round, 0.5 where the second session starts, and ``left`` / 2 at the end.
    """
    path = write_run(root, label, initializer, seed, sessions=2, rounds=2)
    measured: dict[str, list[Any]] = {name: [NAN] * 4 for name in COMPARED} | {
        "memory_left_step": [NAN, left, NAN, NAN],
        "memory_left": [NAN, left, NAN, left / 2],
        "memory_left_start": [NAN, NAN, 0.5, NAN],
        "excess": [NAN, 0.1, NAN, 0.2],
        "excess_start": [NAN, NAN, 0.4, NAN],
        "retained_pooled_change": [NAN, -0.5, NAN, 0.0],
        "gap_left": [NAN, 3.0, NAN, 2.0],
        "retained_change": [NAN, -0.1, NAN, -0.015],
        "retained_worst": [NAN, -0.1, NAN, -0.05],
        **{name: [NAN] * 3 + [value] for name, value in zip(_AUC, (0.6, 0.5, 0.7, 0.55), strict=True)},
        **more,
    }
    columns = {f"erased_{name}": values for name, values in measured.items()}
    columns |= {"erased": [0, 1, 1, 1]} | {f"erase_{name}": [0, cost, cost, cost] for name, cost in COSTS.items()}
    return changed(path, **columns)


_AUC = ("auc", "auc_low", "auc_high", "auc_counterfactual")


def test_cells(tmp_path: Path) -> None:
    runs = [erasing(tmp_path, "puf", seed, left) for seed, left in ((0, -1.0), (1, 1.0))]
    runs.append(erasing(tmp_path, "not", 0, 1.0, retained_pooled_change=[NAN, -0.5, NAN, -0.5], excess_start=[NAN] * 4))
    runs.append(write_run(tmp_path, "fedavg", sessions=2, rounds=2))
    table = erased(records.load(runs))
    assert table is not None
    shown = sheet(table)
    rows = [dict(zip(shown.headings, cells, strict=True)) for _, cells in shown.rows]
    assert [method for method, _ in shown.rows] == [("puf", "previous"), ("not", "previous")]
    assert rows[0] == {
        "Memory left after the request": "0.00 ± 1.41",
        "Memory left at the end": "0.00 ± 0.71",
        "Distance left at the end": "2.00 ± 0.00",
        "Excess at session starts, nats": "0.40 ± 0.00",
        "Resurrection, nats": "0.30 ± 0.00",
        "Others' accuracy, points": "\N{MINUS SIGN}1.5 ± 0.0",
        "Worst tenth, points": "\N{MINUS SIGN}5.0 ± 0.0",
        "Rounds to recover": "3.0 ± 0.0",
        "AUC of the attack": "0.60 ± 0.00 [0.50, 0.70]",
        "AUC, counterfactual": "0.55 ± 0.00",
        "Gradients, others": "1,200",
        "Gradients, erased": "0",
        "Traffic": "1 kB",
        "Stored": "2 kB",
    }
    assert rows[1]["Rounds to recover"] == "not reached"
    assert rows[1]["Resurrection, nats"] == rows[1]["Excess at session starts, nats"] == NOTHING


def test_memory_over_the_rounds(tmp_path: Path) -> None:
    """The request is after the first round, and the second session starts between the second and third."""
    runs = [erasing(tmp_path, "puf", seed, left) for seed, left in ((0, -1.0), (1, 2.0))]
    chart = memory(records.load(runs))
    assert chart is not None
    (panel,) = chart.panels
    exact, nothing, line, starts = panel.series
    assert (exact.name, nothing.name, line.name) == ("exact", "nothing erased", "puf")
    assert line.x.tolist() == [1.0, 2.0, 2.5, 4.0]
    assert (line.y.tolist(), line.low.tolist()) == ([0.5, 0.5, 0.5, 0.25], [-1.0, -1.0, 0.5, -0.5])
    assert (starts.x.tolist(), starts.y.tolist(), starts.listed) == ([2.5], [0.5], False)
    assert [name for name, _, _ in panel.sessions] == ["S1", "S2"]


def test_runs_that_compare_nothing_have_costs_alone(tmp_path: Path) -> None:
    run = erasing(tmp_path, "puf", 0, 1.0)
    nothing = {name: NAN for name in pd.read_csv(run / "history.csv") if name.startswith("erased_")}
    read = records.load([changed(run, **nothing)])
    table = erased(read)
    assert table is not None
    assert sheet(table).headings == ["Gradients, others", "Gradients, erased", "Traffic", "Stored"]
    assert memory(read) is None
