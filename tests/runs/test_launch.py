"""A run on several machines: two launchers on the loopback interface stand for two of them."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning.pytorch.accelerators import MPSAccelerator
from lightning.pytorch.utilities import rank_zero_only

from fedtide.core.errors import SettingsError
from fedtide.runs.jobs.launch import Decision
from fedtide.runs.jobs.ranks import global_rank, launched
from fedtide.runs.lightning.trainer import device_of, trainer
from fedtide.settings.run import RunSettings
from small_runs import history
from waiting import free_port, until

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_NTASKS")
BATCH = {"SLURM_JOB_NAME": "train", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}


def environment(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", 0)  # which Lightning sets for the whole process
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("values", "rank", "processes"),
    [
        ({}, 0, 1),
        ({"LOCAL_RANK": "1"}, 1, 1),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, 3, 4),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"}, 2, 4),
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "LOCAL_RANK": "1"}, 1, 1),
        ({"RANK": "3"}, 0, 1),
        (BATCH, 0, 1),
    ],
)
def test_the_rank_is_that_among_all_machines(
    values: dict[str, str], rank: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(monkeypatch, **values)
    assert (global_rank(), launched()) == (rank, processes)


def test_double_precision_on_a_mac_is_that_of_its_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Apple's GPU, for which a stand-in is enough: it is never used."""

    def chosen(**engine: str) -> RunSettings:
        return RunSettings(engine=engine)  # type: ignore[arg-type]

    monkeypatch.setattr(MPSAccelerator, "is_available", lambda: True)
    assert trainer(chosen(precision="64-true"), 1, []).strategy.root_device.type == "cpu"
    for name in ("mps", "gpu"):
        with pytest.raises(SettingsError, match=f"accelerator {name}, .*; set engine.precision = 32-true, or"):
            device_of(chosen(precision="64-true", accelerator=name))


def test_tensorfloat_needs_a_gpu() -> None:
    chosen = RunSettings(engine={"precision": "tf32", "accelerator": "cpu"})  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="tf32: TensorFloat-32 requires a CUDA GPU, and the run would use cpu"):
        device_of(chosen)
    assert trainer(chosen, 1, []).precision == "32-true"


@pytest.mark.parametrize(
    ("values", "engine", "message"),
    [
        ({"RANK": "0", "WORLD_SIZE": "4"}, {"nodes": 2}, "devices = 1: 4 processes were started"),
        ({}, {"nodes": 2, "devices": 3}, "on every machine with torchrun or srun, 3 processes each"),
        ({"LOCAL_RANK": "0"}, {"devices": 2}, "LOCAL_RANK = 0 in the environment, but no launcher has started"),
        ({"LOCAL_RANK": "1"}, {"devices": 2}, "LOCAL_RANK = 1 in the environment, but no launcher has started"),
        (
            {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"},
            {"devices": 2},
            "no launcher has started other processes",
        ),
        ({"RANK": "0", "WORLD_SIZE": "two"}, {"devices": 2}, "WORLD_SIZE = 'two' in the environment: should be a"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, {"devices": 2}, "missing in the environment: 'LOCAL_RANK'"),
        ({**BATCH, "SLURM_STEP_NUM_TASKS": "8"}, {"devices": 8, "accelerator": "cpu"}, "Use `--ntasks-per-node=8`"),
    ],
)
def test_another_number_of_processes_is_refused(
    values: dict[str, str], engine: dict[str, int], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(monkeypatch, **values)
    with pytest.raises(SettingsError, match=message), Decision(RunSettings(engine=engine)):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize(
    ("values", "used"),
    [
        (BATCH, "LightningEnvironment"),
        ({**BATCH, "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS_PER_NODE": "8"}, "SLURMEnvironment"),
        ({**BATCH, "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, "TorchElasticEnvironment"),
    ],
)
def test_a_process_in_a_batch_job_is_alone_unless_srun_or_torchrun_has_started_several(
    values: dict[str, str], used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(monkeypatch, **values)
    made = trainer(RunSettings(engine={"devices": 8, "accelerator": "cpu"}), 1, [])  # type: ignore[arg-type]
    assert type(made.strategy.cluster_environment).__name__ == used  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_waits_for_other_processes_says_so_and_ends_on_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    port = str(free_port())
    values = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, "-m", "fedtide", "run", "--set", "engine.devices=2", "--set", "engine.accelerator=cpu"]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, **values}, text=True, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert any(line.startswith("waiting for the run's other processes, 1") for line in process.stderr)
        until(lambda: accepts("127.0.0.1", int(port)))
        process.send_signal(number)
        assert process.wait(60) == -number
    assert not list(tmp_path.glob("runs/*"))


def accepts(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as asking:
        return asking.connect_ex((host, port)) == 0


PARAMS = """
scenario: {name: static, num_clients: 5, rounds: 3}
partition: iid
data: digits
algorithm: %s
initializer: previous
local: {steps: 3, batch_size: 8, lr: 0.1}
evaluation: {splits: [test], session_start_losses: false}
engine: {executor: threads, workers: 1, precision: 64-true, accelerator: cpu}
tracking: {mlflow: false}
"""


def start(folder: Path, node: int, port: int) -> subprocess.Popen[str]:
    """The command on one machine."""
    options = ["--nnodes=2", "--nproc-per-node=2", f"--node-rank={node}", "--master-addr=127.0.0.1"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, f"--master-port={port}", "-m", "fedtide", "run"]
    chosen = ["--quiet", "--set", "engine.nodes=2", "--set", "engine.devices=2", "--name", "shared"]
    kept = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, *chosen], cwd=folder, env=kept, text=True, stderr=subprocess.PIPE)


def together(folder: Path) -> list[str]:
    port = free_port()
    both = [start(folder, node, port) for node in (0, 1)]
    errors = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    return errors


def numbers(folder: Path) -> list[list[str]]:
    return [[cell for column, cell in row.items() if "seconds" not in column] for row in history(folder)]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_two_machines_with_two_processes_each_give_the_same_run(algorithm: str, tmp_path: Path) -> None:
    """To the bit, in double precision, with sums (FedAvg) and with whole cohorts (SCAFFOLD); a finished run is found again."""
    (tmp_path / "params.yaml").write_text(PARAMS % algorithm)
    alone = [sys.executable, "-m", "fedtide", "run", "--quiet", "--name", "alone"]
    subprocess.run(alone, cwd=tmp_path, check=True)
    together(tmp_path)
    runs = tmp_path / "runs"
    assert numbers(runs / "shared") == numbers(runs / "alone")
    models = [torch.load(runs / name / "model.pt", weights_only=True) for name in ("shared", "alone")]
    assert all(torch.equal(models[0][name], value) for name, value in models[1].items())
    if algorithm == "fedavg":
        written = {path: path.stat().st_mtime_ns for path in (runs / "shared").iterdir() if path.suffix != ".lock"}
        together(tmp_path)
        assert {path: path.stat().st_mtime_ns for path in written} == written
