"""Which changes of the sources change which run keys."""

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import Field

from fedtide.core.discovery import source
from fedtide.runs.open_run import modules, run_key
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings

SOURCE = Path(__file__).parents[2] / "src"

RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "explicit": {"validation": 0.2},
    "scaffold": {"algorithm": "scaffold"},
    "scaffold_released": {"algorithm": "scaffold_released"},
    "fedwcm": {"algorithm": "fedwcm"},
    "fedwcm_x": {"algorithm": "fedwcm_x"},
    "dynamic": {"initializer": "dynamic", "scenario": "sessions"},
    "continuous": {"initializer": "continuous", "scenario": "sessions"},
    "two_processes": {"engine": {"devices": 2, "accelerator": "cpu"}},
    "intervals": {"communication": "intervals", "model": "lenet", "objective": "focal"},
}
EVERY = frozenset(RUNS)
Keys = dict[str, str]
Edit = Callable[[str], str]


class Reworded(ast.NodeTransformer):
    """Other docstrings, descriptions and texts of errors; unparsing drops comments and layout."""

    def _documented(self, node: Any) -> Any:
        self.generic_visit(node)
        if ast.get_docstring(node) is not None:
            node.body[0] = ast.Expr(ast.Constant("Reworded."))
        return node

    visit_Module = visit_ClassDef = visit_FunctionDef = _documented  # noqa: N815

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        return ast.keyword("description", ast.Constant("Reworded.")) if node.arg == "description" else node

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                part.value = "reworded"
        return node


class OtherConstant(ast.NodeTransformer):
    """The first number is another one."""

    done = False

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if self.done or not isinstance(node.value, int | float) or isinstance(node.value, bool):
            return node
        self.done = True
        return ast.Constant(node.value + 1)


def reworded(text: str) -> str:
    """The same code in other words."""
    return "# A comment.\n\n\n" + ast.unparse(ast.fix_missing_locations(Reworded().visit(ast.parse(text))))


def other_constant(text: str) -> str:
    """The same text with another constant, or one more."""
    change = OtherConstant()
    changed = ast.unparse(ast.fix_missing_locations(change.visit(ast.parse(text))))
    return changed if change.done else f"{changed}\n_ANOTHER = 1\n"


@pytest.fixture(scope="module")
def settings() -> dict[str, RunSettings]:
    return {name: Params(raw).run() for name, raw in RUNS.items()}


def keys(settings: dict[str, RunSettings]) -> Keys:
    data: Any = SimpleNamespace(digest="of the data")
    return {name: run_key(each, data) for name, each in settings.items()}


@pytest.fixture(scope="module")
def before(settings: dict[str, RunSettings]) -> Keys:
    return keys(settings)


@pytest.fixture
def changed(
    settings: dict[str, RunSettings], before: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Iterable[str], Edit], set[str]]]:
    """Runs whose key changes with the sources of some modules: ``changed(["fedtide.core.errors"], other_constant)``."""
    original = source.source_file

    def change(edited: Iterable[str], edit: Edit) -> set[str]:
        files = {}
        for module in edited:
            file = original(module)
            assert file is not None, module
            files[module] = tmp_path / f"{module}.py"
            files[module].write_text(edit(file.read_text(encoding="utf-8")), encoding="utf-8")
        with monkeypatch.context() as patch:
            patch.setattr(source, "source_file", lambda module: files.get(module) or original(module))
            source._imports.cache_clear()
            after = keys(settings)
        return {name for name, key in after.items() if key != before[name]}

    yield change
    source._imports.cache_clear()


def members(package: str) -> list[str]:
    """All modules of a package, by their names."""
    files = sorted((SOURCE / "fedtide" / package.replace(".", "/")).glob("*.py"))
    return [f"fedtide.{package}.{file.stem}" for file in files if file.stem != "__init__"]


def test_equal_settings_have_equal_keys(settings: dict[str, RunSettings], before: Keys) -> None:
    assert keys(settings) == before
    assert len(set(before.values())) == len(RUNS)


@pytest.mark.slow
def test_wording_changes_no_key(settings: dict[str, RunSettings], changed: Any) -> None:
    """Docstrings, comments, layout, descriptions and texts of errors, in all modules that count."""
    assert changed({name for each in settings.values() for name in modules(each)}, reworded) == set()


@pytest.mark.slow
def test_what_only_logs_reports_or_searches_changes_no_key(changed: Any) -> None:
    areas = ("cli", "runs.mlflow", "records", "report", "studies.tuning")
    silent = [module for area in areas for module in members(area)]
    silent += ["fedtide.runs.lightning.callbacks", "fedtide.report.picture"]
    silent += ["fedtide.settings.experiment", "fedtide.settings.groups.tuning"]
    assert changed(silent, other_constant) == set()


@pytest.mark.parametrize(
    ("module", "runs"),
    [
        ("methods.algorithms.scaffold", {"scaffold"}),
        ("methods.algorithms.fedwcm", {"fedwcm", "fedwcm_x"}),
        ("methods.algorithms._momentum", {"fedwcm", "fedwcm_x"}),
        ("methods.algorithms.fedprox", set()),
        ("methods.initializers.dynamic", {"dynamic"}),
        ("world.scenarios.sessions", {"dynamic", "continuous"}),
        ("methods.communication._budgets", {"intervals"}),
        ("methods.selection.dynacomm", {"intervals"}),
        ("methods.selection.genetic", set()),
        ("training.models.lenet", {"intervals"}),
        ("training.models.mlp", EVERY - {"intervals"}),
        ("training.objectives.focal", {"intervals"}),
        ("methods.weighting.uniform", {"fedwcm"}),
    ],
)
def test_a_plugin_concerns_the_runs_that_use_it(changed: Any, module: str, runs: set[str]) -> None:
    assert changed([f"fedtide.{module}"], other_constant) == runs


COMMON = (
    *("methods.algorithms.base", "methods.algorithms._round", "core.randomness", "methods.costs.wireless"),
    *("federation.rounds.round", "federation.federation", "federation.scoring.scores", "world.building.build"),
    *("world.splits.longtail", "world.timeline"),
)


@pytest.mark.parametrize("module", [*members("training.engine"), *(f"fedtide.{name}" for name in COMMON)])
def test_the_common_path_concerns_every_run(changed: Any, module: str) -> None:
    assert changed([module], other_constant) == EVERY


class LargerValidation(RunSettings):
    """The settings of a version with another default."""

    validation: float = Field(0.3, ge=0, lt=1)


def test_a_default_concerns_the_runs_that_rely_on_it(before: Keys) -> None:
    labels = {name: Params(raw).run() for name, raw in RUNS.items()}
    later: dict[str, RunSettings] = {
        name: LargerValidation(**raw, label=labels[name].label, initializer_label=labels[name].initializer_label)  # type: ignore[arg-type]
        for name, raw in RUNS.items()
    }
    after = keys(later)
    assert {name for name, key in after.items() if key != before[name]} == EVERY - {"explicit"}
