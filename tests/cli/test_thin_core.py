"""What an installation without extras can do: training needs no optional package, what needs one says which extra it is."""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fedtide.core.extras import EXTRAS

ABSENT = sorted({module for modules in EXTRAS.values() for module in modules} - {"jinja2"})  # which torch needs
PROGRAM = """
import contextlib, io, json, sys
from importlib.machinery import PathFinder

absent, commands = set(json.loads(sys.argv[1])), json.loads(sys.argv[2])

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, context):
        return [] if context.name in absent else super().find_distributions(context)

sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]

from fedtide.cli.main import main
import fedtide

found = []
for arguments in commands:
    sys.argv[1:], out, err, status = arguments, io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as left:
            status = left.code or 0
    found.append([status, out.getvalue().splitlines(), err.getvalue().splitlines()])
small = fedtide.Params.read(fedtide.Params().raw, "scenario.rounds_per_session=1")
print("found:", json.dumps([found, len(fedtide.run(small).history)]))
"""
RUN = ["run", "--set", "scenario.rounds_per_session=1"]
WORKS = (RUN, ["list"], ["list", "models"], ["show", "algorithm", "scaffold"], ["check"], ["init"], ["schema"],
         ["runs", "list"], ["doctor"])  # fmt: skip
NEEDS = {
    "report": (["report"], ["watch"], ["timeline"]),
    "reproduce": (["reproduce", "--list"],),
    "tune": (["tune"],),
    "mlflow": (["ui"], ["mlflow", "sync"], [*RUN, "--set", "tracking.uri=http://127.0.0.1:9"]),
    "data": (["predict", "RUN", "rows.csv"], ["init", "--from", "rows.csv"], ["run", "--set", "data=table"],
             [*RUN, "--set", "evaluation.clients_every=1"]),
    "vision": (["run", "--set", "model=resnet18"],),
    "dvc": (["init", "--dvc"],),
}  # fmt: skip


@pytest.fixture(scope="module")
def called(tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty")
    commands = [*(each for group in NEEDS.values() for each in group), *WORKS]
    program = [sys.executable, "-c", PROGRAM, json.dumps(ABSENT), json.dumps(commands)]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("found:")]
    commands_, python = json.loads(line[6:])
    return {json.dumps(words): result for words, result in zip(commands, commands_, strict=True)}, python, folder


@pytest.mark.slow
def test_an_empty_folder_runs_the_default_experiment_without_any_extra(called):
    found, _, folder = called
    status, out, err = found[json.dumps(RUN)]
    assert status == 0
    assert "final accuracy" in out[-1]
    assert out[-1].endswith("; of the default experiment, as there is no params.yaml")
    assert err[:2] == [
        "no params.yaml in this folder: using the default experiment; write its settings with `fedtide init`",
        "MLflow is not installed, so runs are not logged there; in a clone of fedtide: pip install '.[mlflow]'",
    ]
    assert not (folder / "mlruns").exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", WORKS, ids=" ".join)
def test_commands_that_need_no_extra(called, command):
    assert called[0][json.dumps(command)][0] == 0


@pytest.mark.slow
def test_scripts_run_and_read_records(called):
    assert called[1] == 7


@pytest.mark.slow
@pytest.mark.parametrize(("extra", "command"), [(name, words) for name, group in NEEDS.items() for words in group])
def test_commands_name_the_extra_they_need(called, extra, command):
    status, out, err = called[0][json.dumps(command)]
    assert (status, out) == (2, [])
    assert err[-1].startswith("fedtide: ")
    assert err[-1].endswith(f"in a clone of fedtide: pip install '.[{extra}]'")
    assert not [line for line in err if "Traceback" in line or line.startswith("round")]


@pytest.mark.slow
def test_extras_bring_what_is_looked_for():
    """Every module of an extra is of a package that the extra names, itself or by another extra."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def packages(extra):
        for requirement in map(Requirement, extras[extra]):
            if requirement.name == "fedtide":
                for other in requirement.extras:
                    yield from packages(other)
            else:
                yield requirement.name.lower().replace("_", "-")

    known = packages_distributions()
    for extra, modules in EXTRAS.items():
        for module in modules:
            names = {name.lower().replace("_", "-") for name in known.get(module, [module])}
            assert names & set(packages(extra)), f"{extra}: {module}"
    core = {Requirement(line).name for line in project["dependencies"]}
    assert not core & {
        name for extra in ("mlflow", "dvc", "report", "tune", "data", "vision") for name in packages(extra)
    }


def test_compromised_releases_are_never_installed():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (lightning,) = (line for line in map(Requirement, project["dependencies"]) if line.name == "lightning")
    assert [version for version in ("2.6.1", "2.6.2", "2.6.3", "2.6.4") if version in lightning.specifier] == [
        "2.6.1",
        "2.6.4",
    ]
