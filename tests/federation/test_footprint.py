"""The memory that a run takes, by part, known before it is allocated; and the limits that hold."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import support
from commands import Fedtide
from fedtide.core.errors import SettingsError
from fedtide.federation.assembly.footprint import Footprint, memory_plan, naming_exhaustion
from fedtide.federation.assembly.hardware import MemoryStore
from fedtide.federation.module import FederatedModule
from fedtide.training.resources.memory import available_bytes, free_under_limits, share_memory
from support import deal, federation, settings, steady, timeline, vectors

CPU = torch.device("cpu")


def planned(**values: Any) -> Footprint:
    """The footprint of a small run with six clients of ten samples."""
    world, data = steady([10] * 6, 2), vectors()
    return support.planned(settings(**values), world, data)


def largest(found: Footprint) -> str:
    return max((*found.device, *found.host, found.kept), key=lambda part: part.size).what


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"model": {"name": "mlp", "widths": [10**9]}, "engine": {"workers": 50}}, "copies of the model"),
        (
            {"model": {"name": "mlp", "widths": [10**9]}, "engine": {"workers": 1}, "algorithm": "feddc"},
            "a cohort of 6",
        ),
        (
            {"local": {"epochs": None, "steps": 10**9}},
            " samples in 6,000,000,000 local steps of 6 clients",
        ),
        (
            {"local": {"epochs": 10**9, "batch_size": 3}},
            "60,000,000,000 samples in 24,000,000,000 local steps",
        ),
    ],
)
def test_the_part_that_does_not_fit_is_named_with_a_remedy(values: dict[str, Any], what: str) -> None:
    found = planned(**values)
    assert what in largest(found)
    with pytest.raises(
        SettingsError, match=r"^the run needs [\d,.]+ GB of memory on cpu, but [\d,.]+ [GM]B are"
    ) as caught:
        found.refuse_excess(CPU, MemoryStore("host", CPU, None))
    (line,) = str(caught.value).splitlines()
    assert f"largest part: {largest(found)}" in line
    assert any(remedy in line for remedy in ("lower ", "fewer clients"))


def test_the_batches_of_a_round_are_those_of_its_clients() -> None:
    """One large client among many small ones, in all of 20 epochs: 17 MB of samples, and a step per epoch of the small ones."""
    world = steady([100_000, *[1] * 2000], 1)
    found = support.planned(settings(local={"epochs": 20, "batch_size": 32}), world, vectors())
    (batches,) = found.host
    assert batches.size == 8 * 20 * (102_000 + 3 * (3125 + 2000))
    few = {"participation": {"name": "fixed", "count": 10}}
    (batches,) = support.planned(settings(local={"epochs": 20, "batch_size": 32}, **few), world, vectors()).host
    assert batches.size == 8 * 20 * (100_009 + 3 * (3125 + 9))


def test_a_run_takes_its_share_beside_others() -> None:
    free = available_bytes(CPU)
    try:
        share_memory(4, 1000)
        assert available_bytes(CPU) == 1000
        with pytest.raises(SettingsError, match=r"but 0\.0 MB are available"):
            planned().refuse_excess(CPU, MemoryStore("device", CPU, None))
    finally:
        share_memory(1, 1 << 62)
    assert available_bytes(CPU) > free / 2


@pytest.mark.parametrize(("version", "limit"), [(1, "memory.limit_in_bytes"), (2, "memory.max")])
def test_limits_of_control_groups_and_of_those_around_them(tmp_path: Path, version: int, limit: str) -> None:
    process, groups = tmp_path / "self", tmp_path / "groups"
    process.mkdir()
    (process / "cgroup").write_text("4:memory:/a/b\n1:cpu:/\n" if version == 1 else "0::/a/b\n")
    base = groups / "memory" if version == 1 else groups
    used, cache = (
        ("memory.usage_in_bytes", "total_inactive_file") if version == 1 else ("memory.current", "inactive_file")
    )
    for folder, most in ((base, 2**63 - 4096), (base / "a", 5000), (base / "a/b", 9000)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / limit).write_text(f"{most}\n")
        (folder / used).write_text("3000\n")
        (folder / "memory.stat").write_text(f"cache 1\n{cache} 500\n")
    assert free_under_limits(groups, process) == [6500, 2500]
    (base / "a/b" / limit).write_text("max\n")
    assert free_under_limits(groups, process) == [2500]


@pytest.mark.parametrize(
    ("item", "wanted"),
    [
        ("local.epochs=99999999999999", "should be less than or equal to 1000000000"),
        (
            "scenario={name: sessions, num_sessions: 10000, rounds_per_session: 10000}",
            "the number of rounds 100000000 should",
        ),
        ("evaluation.every=10000000000", "every = 10000000000 should lie between"),
        ("model={name: mlp, widths: [1000000, 1000000]}", "the run needs "),
    ],
)
def test_absurd_numbers_are_refused_with_what_they_would_take(
    fedtide: Fedtide, folder: Path, item: str, wanted: str
) -> None:
    called = fedtide("run", "-q", "--set", item)
    assert (called.status, called.out) == (2, [])
    (line,) = called.err
    assert wanted in line
    assert not list(folder.glob("runs/*/history.csv"))


LIMITED = """
import resource, sys
limit = int(sys.argv.pop(1)) << 20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from fedtide.cli.main import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "status"), [(4, 0), (400, 2)])
def test_under_a_limit_of_the_address_space_a_run_is_refused_or_completes(
    folder: Path, clients: int, status: int
) -> None:
    """Never killed, never a traceback: 400 clients keep 1.7 GB of control variates, and 4 a hundredth of it."""
    chosen = (f"scenario={{name: static, rounds: 2, num_clients: {clients}}}", "algorithm=scaffold", "local.epochs=1",
              "model={name: mlp, widths: [1000, 1000]}")  # fmt: skip
    command = [sys.executable, "-c", LIMITED, "6000", "run", "-q", "--json"]
    called = subprocess.run(
        [*command, *(part for item in chosen for part in ("--set", item))], capture_output=True, text=True, check=False
    )
    assert called.returncode == status, called.stderr
    if status:
        (line,) = called.stderr.splitlines()
        assert line.startswith("fedtide: the run needs ")
    else:
        assert json.loads(called.stdout.splitlines()[-1])["state"] == "complete"


def test_on_disk_only_the_rows_that_can_be_written_are_counted() -> None:
    """One of six clients in each of two rounds; `all` needs a row of everybody from the start."""
    chosen: dict[str, Any] = {"algorithm": "scaffold", "participation": {"name": "fixed", "count": 1}}
    chosen["model"] = {"name": "mlp", "widths": [1000]}
    row = 4 * (5 * 1000 + 1000 + 1000 * 3 + 3)
    assert planned(**chosen).kept.size == 6 * row
    assert planned(**chosen, client_state={"storage": "disk"}).kept.size == 2 * (row + 4096)
    everybody = {"evaluation": {"models": ["global", "all"]}, "client_state": {"storage": "disk"}}
    assert planned(**chosen, **everybody).kept.size == 6 * 2 * row


def test_a_run_that_finds_too_little_memory_on_its_way_says_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: Any) -> None:
        torch.empty(1 << 60)

    monkeypatch.setattr("fedtide.federation.federation.Federation.run_round", greedy)
    module = FederatedModule(settings(), steady([10] * 6, 2), vectors())
    module.build()
    with pytest.raises(
        MemoryError, match=r"^round 1 ran out of memory: lower local\.batch_size, .*allocate memory"
    ) as caught:
        module.training_step(0, 0)
    module.on_fit_end()
    assert "\n" not in str(caught.value)


def test_other_errors_of_a_round_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes"), naming_exhaustion("round 1"):
        raise RuntimeError("shapes")


def test_participants_are_told_as_their_mean_over_the_rounds() -> None:
    """Six clients, of whom two are there in all four rounds, the others in two."""
    everybody = {client: client for client in range(6)}
    world = timeline(deal([10] * 6), [{0: 0, 1: 1}, everybody, everybody, {0: 0, 1: 1}])
    for there, participation, line in (
        (world, "all", "about 4 of 4 clients per round on average (6 in all)"),
        (world, {"name": "fixed", "fraction": 0.5}, "about 2 of 4 clients per round on average (6 in all)"),
        (world, {"name": "fixed", "fraction": 0.25}, "about 1.5 of 4 clients per round on average (6 in all)"),
        (steady([10] * 6, 2), {"name": "fixed", "fraction": 0.5}, "about 3 of 6 clients per round;"),
    ):
        parts = federation(settings(participation=participation), there, vectors()).parts
        parts.workers.close()
        assert line in memory_plan(parts, planned())
