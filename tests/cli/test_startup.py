"""What a command imports before it has work to do: start-up is what a user waits for."""

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "lightning", "mlflow", "dvc", "optuna", "pandas", "matplotlib", "plotly", "distributed"}
PROGRAM = """
import json, sys
from fedtide.cli.main import main

status = 0
if sys.argv[1:]:
    try:
        main()
    except SystemExit as left:
        status = left.code or 0
print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def imported(*arguments, expected=0):
    """Heavy libraries in a process that called the command; without arguments, that imported its module."""
    called = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert called.returncode == 0, called.stderr
    status, modules = json.loads(called.stdout.splitlines()[-1])
    assert status == expected, called.stderr
    return HEAVY & set(modules)


@pytest.mark.parametrize(
    "arguments", [(), ("--help",), ("run", "--help"), ("list", "algorithms"), ("list", "models", "--json")]
)
def test_asking_what_there_is_imports_nothing_heavy(arguments):
    assert imported(*arguments) == set()


def test_a_finished_run_is_returned_without_training_and_tracking(fedtide, folder):
    assert fedtide("run", "-q").status == 0
    heavy = {"lightning", "mlflow", "dvc", "optuna", "matplotlib", "plotly"}
    assert not heavy & imported("run", "--set", "tracking.mlflow=true")
    assert not (folder / "mlruns").exists()


def test_a_comparison_without_a_cluster_does_not_import_dask(fedtide, folder):
    assert fedtide("compare", "-q").status == 0
    assert "distributed" not in imported("compare", "-q")


def test_a_wrong_setting_is_refused_without_training(folder):
    assert not {"lightning", "mlflow", "dvc"} & imported("run", "--set", "local.lr=-1", expected=2)
