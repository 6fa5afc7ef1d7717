"""Scripts of ``benchmarks/`` that start processes of their own, at small sizes."""

import re
import runpy
import shutil
import subprocess

import pytest

from benchmark_scripts import SCRIPTS, Call, numbers, table

pytestmark = pytest.mark.slow

ALONE = ("unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")
"""A network of its own, as ``processes.py`` asks for."""


def can_be_alone() -> bool:
    if not shutil.which("unshare") or not shutil.which("ip"):
        return False
    return subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0


def test_population(start: Call) -> None:
    shown = table(start("population.py", "--clients", 200, 300, "--algorithms", "fedavg", "--rounds", 3, "--turns", 1))
    assert list(shown) == ["200", "300"]
    for cells in shown.values():
        world, peak, ms, ratio, mean, other, most, _ = (numbers(cell)[0] for cell in cells)
        assert world >= 0
        assert min(ms, ratio, mean, other) > 0
        assert most >= peak > 100
    assert shown["200"][3] == shown["200"][5] == "1.00"


def test_a_population_with_a_large_client(start: Call) -> None:
    """Memory follows the samples: the batches of clients as large as the largest would take 1.6 GB."""
    ragged = ("--clients", 2000, "--largest", 100_000, "--algorithms", "fedavg", "--rounds", 2, "--turns", 1)
    ((cells,),) = (table(start("population.py", *ragged)).values(),)
    assert numbers(cells[6])[0] < numbers(cells[1])[0] + 300


def test_cards(start: Call) -> None:
    (line,) = start("cards.py", "--device", "cpu", "--only", "W3", "--runs", 2, "--rounds", 1)
    assert line.startswith("W3, runs 2: ")
    ms, rate, times, *_ = numbers(line.partition(": ")[2])
    assert ms > 0
    assert rate > 0
    assert times == 1


def test_cluster(start: Call) -> None:
    waited, *runs = start("cluster.py", "--jobs", 3, "--seconds", 0.01, "--workers", 2, "--runs", 1)
    assert waited.startswith("3 jobs of 0.01 s over 2 workers: ")
    assert [re.sub(r"[\d.]+ s", "S", line) for line in runs] == [
        "1 runs over 2 processes: S, S each",
        "1 runs over 2 Dask workers: S, S each",
    ]


def test_trackers(start: Call) -> None:
    pytest.importorskip("mlflow")
    header, *lines = start("tracking.py", "--rounds", 2, "--turns", 1)
    assert header.split() == ["tracker", "training", "processor", "rest", "[s]"]
    shown = {line[:26].strip(): numbers(line[26:]) for line in lines}
    names = ["none", "SQLite", "server", "server killed half-way", "nothing there", "accepts, never answers"]
    assert list(shown) == names
    assert shown["none"][:6] == [1] * 6
    assert all(min(found[:6]) > 0 for found in shown.values())


@pytest.mark.skipif(not can_be_alone(), reason="needs a network of its own")
def test_bytes_between_processes(start: Call) -> None:
    lines = start("processes.py", "--processes", 2, "--algorithms", "fedavg", "--rounds", 3, before=ALONE)
    assert lines[-1].startswith("fedavg, 2 processes: ")
    assert numbers(lines[-1])[1] == pytest.approx(2, abs=0.3), "the sum goes there, and the model comes back"


def test_a_tree_computes_the_same_as_itself(start: Call) -> None:
    root = SCRIPTS.parent
    assert start("compare_trees.py", root, root, "--only", "uplink") == ["uplink: the same"]


def test_trees_that_differ_are_told_apart() -> None:
    differences = runpy.run_path(str(SCRIPTS / "compare_trees.py"))["differences"]
    old = {"model": ["w a", "b c"], "history.csv": [{"round": "0", "loss": "1.5"}], "events": ["x"]}
    new = {"model": ["w d", "b c"], "history.csv": [{"round": "0", "loss": "1.25"}], "events": ["x"]}
    assert differences(old, old) == []
    assert differences(old, new) == [
        "model: w a became w d",
        "history.csv, row 0: {'loss': '1.5'} became {'loss': '1.25'}",
    ]


def test_peers_learn_the_same_and_one_that_cannot_be_installed_is_a_line(start: Call) -> None:
    contenders = "fedtide,fedtide-naive,jax"
    lines = start(
        "peers.py", "--mode", "check", "--turns", 1, "--only", "W3", "--contenders", contenders, "--folder", "peers"
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    shown = {cells[0]: cells[1:] for cells in rows[1:]}
    assert list(shown) == ["fedtide", "plain PyTorch loop, one thread", "a JAX program for these workloads"]
    own, naive, jax = shown.values()
    assert float(naive[1]) > 0
    assert (naive[4], naive[5]) == (own[4], own[5]) == ("1.0000", own[5])
    assert re.fullmatch(r"failed: ERROR: No matching distribution found for jax\S*", jax[0])
    assert any(line.startswith("W3, turn 1, jax: failed: ERROR: ") for line in lines)
