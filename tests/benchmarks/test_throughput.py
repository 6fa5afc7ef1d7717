"""``benchmarks/throughput.py``, which is ``make bench``: every part at its smallest, as a table and as a file."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from benchmark_scripts import SCRIPTS, Call, table
from fedtide.core import plugins

ALWAYS = {"fedtide", "fedtide, tested", "no TorchScript"}
AROUND = {"bare rounds", "state saved / 10", "products alone", "state and MLflow"}
PARTS = {
    "W1": ALWAYS | AROUND,
    "W3": ALWAYS | AROUND,
    "cohorts": {"mlp, 10", "softmax_regression, 10"},
    "links": {"clip", *(f"clip, {name}" for name in ("qsgd", "top_k", "random_k", "sign"))},
    "clock": {
        f"{name}, {what}" for name in ("fedbuff", "fedasync") for what in ("W1", "mlp, 10", "softmax_regression, 10")
    },
}


def measured(call: Call, part: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of a part as written, which are those of the printed table, and all lines."""
    lines = call("throughput.py", "--small", "--turns", 1, "--only", part, "--json", "speed.json")
    written = json.loads(Path("speed.json").read_text())
    assert written["machine"]["device"] == "cpu"
    shown = table(lines)
    for row in written["rows"]:
        assert row["part"] == part
        for ratio in (row["speed"], row["work"]):
            assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"] < math.inf
        assert f"{row['speed']['median']:.2f}" in shown[row["name"]] or part in (
            "W1",
            "W3",
        )  # where a name has two rows
    assert shown.keys() == {row["name"] for row in written["rows"]}
    return written["rows"], lines


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_part_has_its_competitors(call: Call, part: str) -> None:
    rows, _ = measured(call, part)
    assert {row["name"] for row in rows} - {"fedtide, one core"} == PARTS[part]
    if part.startswith("W"):
        assert all(row["difference"] < 1e-3 for row in rows), "the plain loop learns something else"
        assert all(re.fullmatch(r"executor [a-z]+, workers: \d+", row["executor"]) for row in rows)
    if part == "cohorts":
        assert all(size > 1e8 for row in rows for size in row["peaks"]["host"])


@pytest.mark.slow
def test_every_algorithm_is_compared_or_left_out_by_name(call: Call) -> None:
    rows, lines = measured(call, "algorithms")
    left_out = {line.split()[1] for line in lines if line.startswith("algorithm ")}
    assert {row["name"] for row in rows} == set(plugins.names("algorithms")) - left_out - {"fedavg"}
    assert left_out <= {"fedasync", "fedbuff"}


def test_make_bench_is_this_script() -> None:
    _, _, recipe = (SCRIPTS.parent / "Makefile").read_text().partition("\nbench:")
    assert recipe.splitlines()[1] == "\tpython benchmarks/throughput.py"
