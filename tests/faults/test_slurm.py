"""A comparison on a real SLURM of one node, whose jobs are cancelled, warned and preempted.

Needs Debian's packages slurmctld, slurmd, slurm-client and munge, and root, since SLURM starts jobs for other users.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from test_cluster import GRID, assert_same, rows_of, settings_of

from clusters import output_of, started
from waiting import until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue")
MISSING = [program for program in PROGRAMS if shutil.which(program) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"SLURM is not installed: no {', '.join(MISSING)}"),
    pytest.mark.skipif(os.getuid() != 0, reason="slurmd needs root"),
]

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SchedulerParameters=sched_interval=5
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=low Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=high Nodes={host} MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=off
"""
JOBS = """
jobqueue:
  slurm:
    cores: 1
    memory: 2GB
    walltime: "00:30:00"
    queue: low
    interface: lo
    log-directory: logs
"""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture
def slurm(monkeypatch):
    """A controller and a node in a folder of their own; calls one of SLURM's programs."""
    root = Path(tempfile.mkdtemp(prefix="slurm-"))  # the name of a socket must be short
    for name in ("state", "spool"):
        (root / name).mkdir()
    (root / "munge.key").write_bytes(os.urandom(1024))
    (root / "munge.key").chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    (root / "slurm.conf").write_text(CONFIGURATION.format(root=root, host=host, ports=free_ports(2)))
    monkeypatch.setenv("SLURM_CONF", str(root / "slurm.conf"))
    files = {"key": "key", "socket": "socket", "pid": "pid", "log": "log", "seed": "seed"}
    options = [f"--{what}-file={root}/munge.{end}" for what, end in files.items() if what != "socket"]
    subprocess.run(["munged", "--force", f"--socket={root}/munge.socket", *options], check=True, capture_output=True)
    daemons = [root / "munge.pid", root / "slurmctld.pid", root / "slurmd.pid"]

    def call(*command):
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.split()

    try:
        until((root / "munge.socket").exists)
        subprocess.run(["slurmctld", "-c"], check=True)
        subprocess.run(["slurmd"], check=True)
        until(lambda: call("sinfo", "--noheader", "--format=%t", "--partition=low") == ["idle"])
        yield call
    finally:
        call("scancel", f"--user={os.getuid()}")
        for file in reversed(daemons):
            if file.exists():
                os.kill(int(file.read_text()), signal.SIGTERM)
        time.sleep(1)
        shutil.rmtree(root, ignore_errors=True)


def test_jobs_are_cancelled_warned_and_preempted(folder, slurm):
    changes = {**GRID, "compare": {"algorithms": ["fedavg"], "seeds": [0, 1]}}
    changes["scenario"] = {**GRID["scenario"], "rounds_per_session": 8000}
    (folder / "dask").mkdir()
    (folder / "dask" / "jobqueue.yaml").write_text(JOBS)
    options = ["--cluster=slurm", "--set=compare.workers=2"]
    command = started(folder, "compare", *settings_of(changes), *options, DASK_CONFIG=str(folder / "dask"))
    runs = folder / "runs"

    told = set()  # jobs that end; SLURM may list them as running for a while

    def jobs():
        listed = slurm("squeue", "--noheader", "--format=%i", "--states=R", "--partition=low")
        return [job for job in listed if job not in told]

    def tell(*options):
        told.add(job := jobs()[0])
        slurm("scancel", *options, job)

    def in_progress(more):
        """Another run goes on, and its job is in the queue."""
        return command.poll() is not None or (sum(map(rows_of, runs.glob("*-s*"))) > more and jobs())

    def done():
        return sum(map(rows_of, runs.glob("*-s*")))

    until(lambda: in_progress(50))
    tell("--batch", "--signal=USR1")
    until(lambda: command.poll() is not None or begun_again(folder) >= 1)
    far = done()
    until(lambda: in_progress(far + 50))
    tell()
    until(lambda: command.poll() is not None or begun_again(folder) >= 2)
    later = done()
    until(lambda: in_progress(later + 50))
    slurm("sbatch", "--partition=high", "--ntasks=2", "--output=/dev/null", "--wrap=true")
    until(lambda: command.poll() is not None or begun_again(folder) >= 3)
    status = command.wait()
    output = output_of(folder)
    assert status == 0, output
    assert sum("its worker was told to stop" in line for line in output) >= 3, output
    assert not any("Traceback" in line for line in output)
    assert_same(folder, changes)


def begun_again(folder):
    return sum("; resuming from its checkpoint" in line for line in output_of(folder))
