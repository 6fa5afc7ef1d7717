"""Every command of README.md, CONTRIBUTING.md and the documentation, as it is printed.

What is cheap is executed, in a folder with the shipped ``params.yaml`` and the files that the page shows, and small; the others
go through their own validation, up to the first training, in a copy of the repository. The slow test executes what takes
minutes. A program, command or block that has no rule here fails.
"""

import contextlib
import functools
import re
import runpy
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from printed_commands import LANGUAGES, PAGES, ROOT, Call, blocks, calls, copy_of_the_repository, files, script

from commands import sets
from fedtide.cli import stages
from fedtide.core import plugins
from fedtide.report import comparison
from fedtide.runs import execution
from fedtide.runs.open_run import modules
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.studies.tuning import study
from fedtide.studies.tuning.space import Space
from support import LIGHT

WITH_COMMANDS = [name for name, text in PAGES.items() if script(text).strip()]
AT_HAND = ("digits", "table", "visits")  # data that needs no download
SMALL = {"rounds_per_session": 1, "rounds_per_period": 1, "rounds": 1, "num_sessions": 3, "num_devices": 4}
EXECUTED = {"list", "show", "check", "run", "predict", "evaluate", "new", "test", "cite", "init", "runs", "doctor"}
STOPPED = {"compare", "contribution", "trees", "report", "plot", "tune", "tide", "reproduce", "mlflow", "watch", "ui"}


class Enough(Exception):
    """A command has validated everything and would begin to work."""


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    return copy_of_the_repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture
def page_folder(tmp_path, monkeypatch, shared_data):
    """A folder with the shipped params.yaml alone, as a user has it elsewhere."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    (folder / "data").symlink_to(shared_data)
    monkeypatch.setattr(sys, "path", list(sys.path))
    loaded = set(sys.modules)
    yield folder
    for name in set(sys.modules) - loaded:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            parent, _, last = name.rpartition(".")
            if parent in sys.modules:
                vars(sys.modules[parent]).pop(last, None)
            del sys.modules[name]


def orders() -> str:
    """The table of docs/own_table.md."""
    rows = [
        f"2024-{1 + n % 3:02}-{1 + n % 28:02},shop {n % 4},{n % 7},{n % 11},{('yes', 'no')[n * n % 5 % 2]}"
        for n in range(240)
    ]
    return "\n".join(["date,shop,price,items,returned", *rows, ""])


def meters() -> str:
    """The series of docs/own_table.md: six days of two meters, in two months."""
    rows = [
        f"2024-0{1 + n // 72}-{1 + n % 72 // 24:02} {n % 24:02}:00,meter {m},{n % 5 + m},{('no', 'yes')[n * n % 3 % 2]}"
        for m in range(2)
        for n in range(144)
    ]
    return "\n".join(["hour,meter,load,fault", *rows, ""])


def write_shown(text: str, folder: Path, home: Path) -> None:
    """The files of a page: plug-ins below ~/my-plugins, others in the folder; they are executed once, as the page says."""
    for name, content in files(text).items():
        path = (home / "my-plugins" if name.partition("/")[0] in plugins.KINDS else folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        if path.parent == folder:
            with contextlib.chdir(folder):
                runpy.run_path(str(path), run_name="__main__")
    (folder / "orders.csv").write_text(orders())
    (folder / "meters.csv").write_text(meters())


def validated(settings: RunSettings) -> None:
    """All plug-ins of a run exist and take its settings."""
    modules(settings)
    kinds = {
        "algorithms": "algorithm", "data": "data", "scenarios": "scenario", "partitions": "partition", "models": "model",
        "participation": "participation", "objectives": "objective", "communication": "communication",
        "initializers": "initializer",
        "aggregation": "aggregation", "attacks": "attack", "drift": "drift", "detectors": "detector",
    }  # fmt: skip
    for kind, field in kinds.items():
        chosen = getattr(settings, field)
        plugins.load(kind, chosen.name)(chosen)
    for request in settings.erase:
        plugins.load("erasers", request.name)(request)


def executed_small(whole: Callable[..., Any], settings: RunSettings, workspace: Any, **others: Any) -> Any:
    """A run with few rounds and without MLflow, if its data is at hand and it is one process."""
    validated(settings)
    if settings.data.name not in AT_HAND or settings.engine.devices * settings.engine.nodes > 1:
        raise Enough
    fewer = {key: value for key, value in SMALL.items() if key in type(settings.scenario).model_fields}
    small = settings.model_copy(
        update={
            "scenario": settings.scenario.model_copy(update=fewer),
            "algorithm": settings.algorithm.model_copy(update=LIGHT.get(settings.algorithm.name, {})),
            "drift": RunSettings().drift,  # which may begin in a round that is left out
        }
    )
    workspace.runs.mkdir(exist_ok=True)
    return whole(small, type(workspace)(workspace.runs, None, None, workspace.experiment), **others)


def stopping(monkeypatch) -> None:
    """Commands stop where their work would begin."""

    def grid(settings, *_, **__):
        for run in settings:
            validated(run)
        raise Enough

    def report(params, *_, **__):
        grid(params.grid())

    def search(params, where, out, *_):
        Space(params)
        out.mkdir(parents=True, exist_ok=True)
        (out / "best.yaml").write_text(yaml.safe_dump(Space(params).raw({})))  # which later commands read
        raise Enough

    def table(recipe, only, *_):
        runs = [run for cell in recipe.select(only) for run in recipe.runs(cell, recipe.seeds[0])]
        grid({(run.label, run.initializer_label): run for run in runs}.values())

    def enough(*_, **__):
        raise Enough

    monkeypatch.setattr(execution, "execute", functools.partial(executed_small, execution.execute))
    monkeypatch.setattr(stages, "compare", grid)
    monkeypatch.setattr(comparison, "report", report)
    monkeypatch.setattr(comparison, "run_directories", lambda params, runs: grid(params.grid()))  # of watch
    monkeypatch.setattr("fedtide.runs.mlflow.upload.mirror", enough)
    monkeypatch.setattr("fedtide.runs.mlflow.store.ui_command", enough)
    monkeypatch.setattr("fedtide.studies.contribution.contributions", lambda settings, *_: grid([settings]))
    monkeypatch.setattr("fedtide.studies.trees.trees", lambda params, *_: grid(params.grid()))
    monkeypatch.setattr(study, "tune", search)
    monkeypatch.setattr("fedtide.runs.dry_run.rehearse", grid)
    monkeypatch.setattr("fedtide.studies.reproduce.reproduce.reproduce", table)
    monkeypatch.setattr("fedtide.cli.commands.reproduce._experiments", enough)  # test_experiments_page.py lists them
    for work in ("campaign.run_method", "verify.methods_in", "board.entries"):
        monkeypatch.setattr(f"fedtide.studies.tide.{work}", enough)


def call_fedtide(arguments: list[str], monkeypatch, capfd) -> None:
    """A command in this process: it ends with status 0, or stops where its work would begin."""
    from fedtide.cli.main import main

    assert arguments[0] in EXECUTED | STOPPED, f"no rule for fedtide {arguments[0]}"
    if arguments[0] == "mlflow":
        call_fedtide(["run"], monkeypatch, capfd)  # which it brings MLflow up to date with
    if arguments[0] == "init":  # which writes into folders without settings
        monkeypatch.chdir(tempfile.mkdtemp(dir="."))
        for table in Path("..").glob("*.csv"):
            shutil.copy(table, ".")
    if arguments[0] in ("evaluate", "predict"):
        arguments = [arguments[0], run_on_a_table(monkeypatch, capfd), *arguments[2:]]
    if arguments[0] == "predict":
        shutil.copyfile("orders.csv", arguments[2])
    monkeypatch.setattr(sys, "argv", ["fedtide", *arguments])
    capfd.readouterr()
    with pytest.raises((SystemExit, Enough)) as left:
        main()
    if left.type is Enough:
        assert arguments[0] in {*STOPPED, "run"}
    else:
        assert arguments[0] in EXECUTED or {"--list", "--dry-run"} & {*arguments}, (
            f"fedtide {arguments[0]} was to stop before its work"
        )
        fails = "hooks:Drift" in str(arguments)  # which raises on purpose
        assert bool(left.value.code) == fails, capfd.readouterr().err


def run_on_a_table(monkeypatch, capfd) -> str:
    """The name of a run on the table of docs/own_table.md."""
    table = "data={name: table, file: orders.csv, label: returned, client: shop, time: date}"
    chosen = [table, "scenario={name: calendar}", "partition.name=natural", "model=softmax_regression"]
    call_fedtide(["run", *sets(*chosen)], monkeypatch, capfd)
    return next(path.parent.name for path in sorted(Path("runs").glob("*/encoding.json")))


DRAWN = {f"experiments/{name}.py" for name in ("tuning/grids", "cfl/quadratic", "fedssg/participants")}
"""Scripts whose arguments are runs, results or files to write."""


def call_python(call: Call, repository: Path, shown: dict[str, str]) -> None:
    """A script of the repository: it exists, and so do the settings and overrides that it is given."""
    if call.arguments[0] == "-":
        compile(call.stdin, "stdin", "exec")
        return
    if call.arguments[0] == "-m":
        assert call.arguments[1] in ("venv",)
        return
    name, *arguments = call.arguments
    if name in shown:
        return  # executed when it was written
    assert (repository / name).is_file()
    overrides = [item for item in arguments if "=" in item]
    given = [Path(item) for item in arguments if item.endswith(".yaml")]
    for path in given:
        assert Params.read(repository / path, overrides).grid()
    if not given and name not in DRAWN:
        assert all((repository / argument).exists() for argument in arguments)
    if name == "experiments/search.py":
        found = runpy.run_path(str(repository / name))
        searches = found["commands"](repository / given[0], Path("tuning"), overrides)
        assert searches
        for label in found["spaces"](repository / given[0])["spaces"]:
            assert label in searches


def call_other(call: Call, repository: Path, monkeypatch, capfd) -> None:
    program, arguments = call.program, call.arguments
    if program == "make":
        made = re.findall(r"^([a-z]+):", (repository / "Makefile").read_text(), re.MULTILINE)
        assert arguments
        assert set(arguments) <= set(made)
    elif program == "pip":
        extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert arguments[0] == "install"
        assert set(re.findall(r"\[(\w+)\]", arguments[-1] if "-e" not in arguments else arguments[2])) <= set(extras)
        assert "-c" not in arguments or (repository / arguments[arguments.index("-c") + 1]).is_file()
    elif program == "dvc":
        targets = yaml.safe_load((repository / "dvc.yaml").read_text())["stages"]
        assert " ".join(arguments[:2]) in ("repro", "exp run", "exp show", "metrics show", "metrics diff", "plots diff")
        overrides = [arguments[place + 1] for place, word in enumerate(arguments) if word == "-S"]
        assert Params.read(repository / "params.yaml", overrides).grid()
        if overrides:
            assert arguments[-1] in targets
    elif program in ("torchrun", "srun"):
        words = arguments[arguments.index("fedtide") + 1 :]
        call_fedtide(words, monkeypatch, capfd)
    elif program == "uv":
        assert arguments[0] == "export"
    else:
        serves = program == "mlflow" and arguments[:2] == ["models", "serve"]
        known = ("docker", "curl", "kubectl", "tensorboard", "optuna-dashboard", "ls", "cut", "head", "id")
        assert serves or program in known, f"no rule for {call}"


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_commands_work_as_printed(page, page_folder, repository, tmp_path, monkeypatch, capfd):
    text = PAGES[page]
    found = calls(text, tmp_path)
    assert found
    monkeypatch.chdir(page_folder)
    write_shown(text, page_folder, tmp_path / "home")
    monkeypatch.delenv("FEDTIDE_MLRUNS", raising=False)
    stopping(monkeypatch)
    for call in found:
        repository_needed = (
            call.program != "fedtide" or call.arguments[0] == "reproduce" or names_a_file(call, repository)
        )
        monkeypatch.chdir(repository if repository_needed else page_folder)
        monkeypatch.setenv("FEDTIDE_PLUGINS", call.plugins)
        if call.program == "fedtide":
            call_fedtide(call.arguments, monkeypatch, capfd)
        elif call.program.startswith("python"):
            call_python(call, repository, files(text))
        else:
            call_other(call, repository, monkeypatch, capfd)


def names_a_file(call: Call, repository: Path) -> bool:
    return any("/" in word and (repository / word).is_file() for word in call.arguments)


def test_every_block_has_a_language_with_a_rule():
    used = {language.strip() for text in PAGES.values() for language, _ in blocks(text)}
    assert used <= LANGUAGES
    bare = [content for text in PAGES.values() for language, content in blocks(text) if not language.strip()]
    assert not [content for content in bare if re.match(r"(\$ )?(fedtide|make|python|pip|dvc) ", content)]
