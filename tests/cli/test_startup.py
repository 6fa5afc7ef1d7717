"""What a command imports before it has work to do: start-up is what a user waits for."""

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "lightning", "mlflow", "dvc", "optuna", "pandas", "matplotlib", "plotly", "distributed"}
PROGRAM = """
import json, sys
from fedtide.cli.main import main

for arguments in json.loads(sys.argv[1]):
    status, sys.argv[1:] = 0, arguments
    if arguments:
        try:
            main()
        except SystemExit as left:
            status = left.code or 0
    print("imported:", json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def imported(*commands):
    """Exit status of some commands called in one process, and the heavy libraries it has imported after each, and what they
    printed as errors; without arguments a command only imports its module."""
    program = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    called = subprocess.run(program, capture_output=True, text=True, check=False)
    assert called.returncode == 0, called.stderr
    found = [json.loads(line[9:]) for line in called.stdout.splitlines() if line.startswith("imported:")]
    return [(status, HEAVY & set(modules)) for status, modules in found], called.stderr


@pytest.mark.slow
def test_what_asks_or_has_nothing_to_train_imports_no_library_for_training_tracking_or_clusters(fedtide, folder):
    """Nothing heavy at all to list what there is; less than all for a wrong setting, a finished run, a finished comparison."""
    assert fedtide("run", "-q").status == 0
    assert fedtide("compare", "-q").status == 0
    asked = [(), ("--help",), ("run", "--help"), ("list", "algorithms"), ("list", "models", "--json")]
    (*answers, wrong, run, comparison), errors = imported(
        *asked, ("run", "--set", "local.lr=-1"), ("run", "--set", "tracking.mlflow=true"), ("compare", "-q")
    )
    assert answers == [(0, set())] * len(asked)
    assert wrong[0] == 2
    assert errors.startswith("fedtide: --set local.lr=-1: local.lr = -1: should be greater than 0\n")
    assert not {"lightning", "mlflow", "dvc"} & wrong[1]
    assert run[0] == comparison[0] == 0
    assert not {"lightning", "mlflow", "dvc", "optuna", "matplotlib", "plotly"} & run[1]
    assert "distributed" not in comparison[1]
    assert not (folder / "mlruns").exists()
