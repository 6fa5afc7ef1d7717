"""The contract of an algorithm stays small, and all of it is read."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from inspect import isfunction
from pathlib import Path

import pytest

import fedtide
from fedtide.core import plugins
from fedtide.core.discovery.faults import PluginError
from fedtide.federation.assembly.choose import refuse_unknown_words
from fedtide.methods.algorithms.base import ADMITS, NEEDS, Algorithm, Round

SOURCE = Path(fedtide.__file__).parent
CONTRACT = {"base.py", "_round.py", "_problem.py", "_phase.py"}
DECLARATIONS = sorted(set(Algorithm.__annotations__) - {"kind", "Settings", "settings", "problem"})
HOOKS = sorted(name for name, value in vars(Algorithm).items() if isfunction(value) and not name.startswith("_"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def read(algorithms: bool) -> Iterator[str]:
    """Names of attributes and parameters that are read in the framework, or also in the algorithms."""
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "algorithms" and (not algorithms or path.name in CONTRACT - {"_round.py", "base.py"}):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                yield node.attr
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "overrides":
                yield from (argument.value for argument in node.args if isinstance(argument, ast.Constant))


def test_an_author_can_hold_the_contract() -> None:
    assert len(DECLARATIONS) <= 14, DECLARATIONS
    assert len(HOOKS) <= 18, HOOKS
    assert not [name for name, value in vars(Algorithm).items() if isinstance(value, property)]
    assert len(fields(Round)) <= 24, [field.name for field in fields(Round)]


def test_every_declaration_and_hook_is_read_by_the_framework() -> None:
    """`shared` and `server` are read by functions beside the contract."""
    unread = {*DECLARATIONS, *HOOKS} - {*read(algorithms=False)} - {"shared", "server", "direction"}
    assert not unread


def test_every_field_of_a_round_is_read() -> None:
    assert not {field.name for field in fields(Round)} - {*read(algorithms=True)}


@pytest.mark.parametrize("declared", ["admits", "needs"])
def test_every_promise_and_need_is_made_and_read(declared: str) -> None:
    """Words without an algorithm, or that no part of the framework asks for, would be ballast."""
    made = {
        word
        for name in plugins.names("algorithms")
        for kind in [plugins.load(Algorithm, name)]
        for word in getattr(kind(kind.Settings(name=name)), declared)
    }
    asked = {
        node.value
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "algorithms"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    known = {"admits": ADMITS, "needs": NEEDS}[declared].keys()
    assert made == known
    assert not known - asked


@pytest.mark.parametrize(("declared", "words"), [("admits", ("sum",)), ("admits", "sums"), ("needs", ("head",))])
def test_other_words_are_refused(declared: str, words: object) -> None:
    algorithm = plugins.load(Algorithm, "fedavg")
    instance = algorithm(algorithm.Settings())
    setattr(instance, declared, words)
    with pytest.raises(PluginError, match=f"{declared} of fedavg should return a sequence of words among"):
        refuse_unknown_words(instance)


def test_only_what_is_fixed_before_a_round_is_kept_in_an_instance() -> None:
    """A run goes on from its saved state alone, so no hook of a round may leave anything in ``self``."""
    found = []
    for path in (SOURCE / "algorithms").glob("*.py"):
        for kind in (node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)):
            for hook in (node for node in kind.body if isinstance(node, ast.FunctionDef)):
                if hook.name in ("__init__", "bind") or kind.name in ("Round", "Vectors"):
                    continue
                found += [
                    f"{path.name}: {kind.name}.{hook.name}: self.{target.attr}"
                    for node in ast.walk(hook)
                    for target in (
                        [node] if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) else []
                    )
                    if isinstance(target.value, ast.Name) and target.value.id == "self"
                ]
    assert not found
