"""Sums whose order is chance on a GPU occur only where the tensors are on the CPU, or are whole numbers."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "fedtide"
ATOMIC = {"index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce", "index_put", "index_put_", "put_"}
WEIGHTED = {"bincount"}  # with weights
ALLOWED = {
    ("methods/algorithms/balancefl.py", "index_add"): "its tensors are moved to the CPU in the same statement",
    ("training/engine/passes/evaluation.py", "scatter_add_"): "its tensors are moved to the CPU in the same statement",
    ("training/engine/passes/metrics.py", "index_add_"): "scores of shards are on the CPU",
    ("federation/rounds/training.py", "index_add_"): "counts of rounds, whole numbers",
    ("federation/features/consistency.py", "bincount"): "losses of samples are on the CPU",
    ("methods/algorithms/fedvarp.py", "index_add_"): "shares of clients are on the CPU",
}


def calls() -> Iterator[tuple[str, str]]:
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            name, weights = node.func.attr, len(node.args) > 1 or any(key.arg == "weights" for key in node.keywords)
            of_numpy = isinstance(node.func.value, ast.Name) and node.func.value.id == "np"
            if not of_numpy and (name in ATOMIC or (name in WEIGHTED and weights)):
                yield str(file.relative_to(SOURCE)), name


@pytest.mark.slow
def test_every_such_sum_is_known() -> None:
    assert {*calls()} == ALLOWED.keys()
