"""Jobs for a batch system: the worker takes the place of the job's shell, which would not pass signals on."""

import sys

import dask
import dask_jobqueue  # noqa: F401  # whose defaults are then in Dask's configuration

from fedtide.runs.jobs.cluster.connect import connected


def test_the_worker_of_a_job_gets_its_signals(tmp_path, monkeypatch):
    (tmp_path / "sbatch").touch(mode=0o755)  # SLURM's; it is looked for, not called
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    own = {"cores": 1, "memory": "2GB", "interface": "lo", "queue": "low", "local-directory": str(tmp_path)}
    settings = {f"jobqueue.slurm.{key}": value for key, value in own.items()}
    with dask.config.set(settings), connected("slurm", 2, print) as cluster:
        script = cluster.client.cluster.job_script()
    assert "#SBATCH -p low" in script
    assert f"\nexec {sys.executable} -P -m " in script
    assert "--no-nanny" in script
