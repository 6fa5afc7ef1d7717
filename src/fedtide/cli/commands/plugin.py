"""``fedtide new`` and ``fedtide test``: write a plug-in, and test it."""

import json
import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli import completion
from fedtide.cli.options import Json, Override
from fedtide.cli.reporter import log
from fedtide.core import plugins
from fedtide.core.errors import SettingsError, meant, nearest, shortened

_KINDS = "Kind of plug-in: algorithm, scenario, partition, dataset, model, link or detector."
Kind = Annotated[str, typer.Argument(help=_KINDS, autocompletion=completion.kinds)]
Folder = Annotated[
    Path | None, typer.Option(help="Plug-in folder. Default: the first one in $FEDTIDE_PLUGINS, or plugins.")
]


def new(kind: Kind, name: str, folder: Folder = None) -> None:
    """Write a template of a plug-in and its test."""
    from fedtide.authoring.writing import write_plugin
    from fedtide.cli.commands.describe import kind_of

    roots = plugins.user_roots()
    chosen = folder or (roots[0] if roots else Path("plugins"))
    files = write_plugin(kind_of(kind), name, chosen)
    value = os.pathsep.join(map(str, [chosen.resolve(), *roots]))
    found = "" if chosen.resolve() in roots else f"export FEDTIDE_PLUGINS={shlex.quote(value)} && "
    others = any(name in plugins.names(each) for each in plugins.KINDS if each != files[0].parent.name)
    which = f" --kind {kind}" if others else ""
    print(f"wrote {' and '.join(map(str, files))}; next: {found}fedtide test {name}{which}")


def contract(
    name: Annotated[str, typer.Argument(help="Plug-in name.", autocompletion=completion.names)],
    kind: Annotated[
        str | None, typer.Option(help="Plug-in kind, required if plug-ins of several kinds have this name.")
    ] = None,
    overrides: Override = None,
    as_json: Json = False,
) -> None:
    """Run the standard plug-in contract tests in small runs. Exit status 1 if one fails."""
    from fedtide.cli.commands.describe import kind_of

    kinds = tuple(plugins.KINDS) if kind is None else (kind_of(kind),)
    found = [each for each in kinds if name in plugins.names(each)]
    if not found:
        if kind is not None:
            raise SettingsError(
                nearest(f"no plug-in named {shortened(name)!r} in {kinds[0]}", name, plugins.names(kinds[0]))
            )
        hint = meant(name, {other for each in kinds for other in plugins.names(each)})
        hint = hint or "; is its folder in FEDTIDE_PLUGINS?"
        raise SettingsError(f"no plug-in named {shortened(name)!r}{hint}")
    if len(found) > 1:
        raise SettingsError(f"{' and '.join(found)} have a plug-in named {name!r}: choose one with --kind")
    plugins.load(found[0], name)
    from fedtide.authoring.contract import verdicts
    from fedtide.authoring.trial import Trial

    checked: list[dict[str, str | None]] = []
    for requirement, problem in verdicts(Trial(found[0], name, overrides or ())):
        checked.append({"requirement": requirement, "problem": problem})
        if as_json:
            continue
        if problem is None:
            print(f"PASSED {name}: {requirement}")
        else:
            log(f"FAILED {name}: {requirement}: {problem}")
    if as_json:
        print(json.dumps(checked))
    if any(each["problem"] is not None for each in checked):
        raise typer.Exit(1)
