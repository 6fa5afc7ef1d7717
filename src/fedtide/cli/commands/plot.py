"""``fedtide plot``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.options import PARAMS, Json, Override, ParamsFile, Runs, Worlds, read_params
from fedtide.cli.reporter import print_table
from fedtide.core.errors import SettingsError
from fedtide.core.extras import require

_FORMATS = (".pdf", ".png", ".svg")


def plot(
    name: Annotated[str | None, typer.Argument(help="Figure name. Omit to list available figures.")] = None,
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    runs: Runs = Path("runs"),
    worlds: Worlds = Path("worlds"),
    out: Annotated[Path | None, typer.Option(help="Output file (.pdf, .png or .svg). Default: NAME.pdf.")] = None,
    as_json: Json = False,
) -> None:
    """Write one figure of the report of `compare`, or list the figures that its runs have data for."""
    require("report", "fedtide plot")
    file = out or Path(f"{name}.pdf")
    if file.suffix not in _FORMATS:
        raise SettingsError(f"out = {str(file)!r}: should end in {', '.join(_FORMATS)}")
    if not file.parent.is_dir():
        raise SettingsError(f"out = {str(file)!r}: no folder {file.parent}")
    chosen = read_params(params, overrides)
    from fedtide.core.storage.files import write_bytes
    from fedtide.interface import named_figure
    from fedtide.report.comparison import figures

    drawings = figures(chosen, runs, worlds)
    if name is None:
        listed = [{"name": drawing.name, "title": drawing.title} for drawing in drawings]
        if as_json:
            print(json.dumps(listed))
        else:
            print_table(("name", "figure"), map(dict.values, listed))
        return
    form = file.suffix[1:]
    write_bytes(file, named_figure(name, drawings).files([form])[form])
    print(json.dumps({"file": str(file)}) if as_json else file)
