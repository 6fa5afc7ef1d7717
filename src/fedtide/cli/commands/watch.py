"""``fedtide watch``: the report of a comparison that is still running."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.options import PARAMS, Override, ParamsFile, Runs, Worlds, read_params
from fedtide.cli.reporter import log
from fedtide.core.discovery.shipped import DEFAULTS
from fedtide.core.extras import require

_LOOK = 1.0  # seconds between two looks at the records


def watch(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    runs: Runs = Path("runs"),
    worlds: Worlds = Path("worlds"),
    out: Annotated[Path | None, typer.Option(help="Folder of the report. Default: a temporary folder.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on the loopback interface.")] = 8000,
    every: Annotated[float, typer.Option(min=1, help="Minimum seconds between two reports.")] = 10.0,
) -> None:
    """Show the report of the runs of `compare` in a browser while they are running, renewed as rounds come.

    Records are only read, here or on another machine with the same folder.
    """
    require("report", "fedtide watch")
    from fedtide.cli.live_page import LivePage, served
    from fedtide.report.comparison import report, run_directories
    from fedtide.runs.display.progress import title

    chosen = read_params(params, overrides)
    titles = map(title, chosen.grid())
    directories = dict(zip(titles, run_directories(chosen, runs), strict=True))
    words = [
        *(["--params", str(params)] if params != DEFAULTS else []),
        *(word for item in overrides or () for word in ("--set", item)),
    ]
    command = shlex.join(["fedtide", "watch", *words])
    with ExitStack() as open_:
        folder = out or Path(open_.enter_context(tempfile.TemporaryDirectory()))
        page = LivePage(directories, lambda: report(chosen, runs, worlds, folder, command).page, every)
        open_.enter_context(served(page, port))
        log(f"http://127.0.0.1:{port}  (Ctrl-C to stop)")
        os.nice(10)  # the runs come first
        while True:
            page.renew()
            time.sleep(_LOOK)
