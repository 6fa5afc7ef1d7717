"""Clusters that cannot be used: one line, before any work."""

import sys

import pytest


def test_without_a_scheduler_nothing_is_begun(fedtide, folder, monkeypatch):
    monkeypatch.setattr("fedtide.runs.jobs.cluster.connect._PATIENCE", 1)
    called = fedtide("compare", "--cluster=127.0.0.1:9")
    assert (called.status, len(called.err)) == (2, 1)
    assert called.err[0].startswith("fedtide: compare.cluster = 127.0.0.1:9: no Dask scheduler can be reached (")
    assert not list((folder / "runs").glob("*"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "slrum",
            "--set compare.cluster=\"slrum\": compare.cluster: 'slrum' is neither an address such as tcp://host:8786",
        ),
        ("slurm", "compare.cluster = slurm: set compare.workers to the number of runs at once"),
    ],
)
def test_a_bad_name_is_refused(fedtide, name, message):
    called = fedtide("compare", "--cluster", name)
    assert (called.status, len(called.err)) == (2, 1)
    assert message in called.err[0]


@pytest.mark.parametrize("command", ["compare", "tune"])
def test_what_is_missing_is_named(fedtide, monkeypatch, command):
    monkeypatch.setitem(sys.modules, "distributed", None)
    called = fedtide(
        command, "--cluster=local", "--set=validation=0.2", "--set=tune.space={local.lr: {low: 0.1, high: 1}}"
    )
    assert called.status == 2
    assert called.err[-1] == (
        "fedtide: compare.cluster = local requires a package that is not installed (distributed); "
        "pip install 'fedtide[cluster]'"
    )
