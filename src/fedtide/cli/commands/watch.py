"""``fedtide watch``: the report of a comparison that is still running, rebuilt as rounds are recorded."""

import html
import os
import shlex
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.options import PARAMS, Host, Override, ParamsFile, Runs, Worlds, as_given, listening, read_params
from fedtide.cli.reporter import log
from fedtide.core.errors import SettingsError
from fedtide.core.extras import require
from fedtide.core.storage.files import make_folder, write_text
from fedtide.runs.jobs.signals import StopSignals

_LOOK = 1.0  # seconds between two looks at the records
_SHARE = 4.0  # a report is not built again before this many times the seconds that it took
_RECORDS = ("settings.json", "history.csv", "events.jsonl", "summary.json", "error.txt")
_PAGE = "report.html"


def watch(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    runs: Runs = Path("runs"),
    worlds: Worlds = Path("worlds"),
    out: Annotated[Path | None, typer.Option(help="Folder of the report. Default: a temporary folder.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the page.")] = 8000,
    host: Host = "127.0.0.1",
    every: Annotated[float, typer.Option(min=1, max=86400, help="Minimum seconds between two reports.")] = 10.0,
) -> None:
    """Show the report of the runs of `compare` in a browser while they are running, refreshed as rounds finish.

    Records are only read, here or on another machine with the same folder.
    """
    require("report", "fedtide watch")
    from fedtide.report.comparison import report, run_directories

    chosen = read_params(params, overrides)
    address = listening(host)
    directories = run_directories(chosen, runs)
    command = shlex.join(["fedtide", "watch", *as_given(params, overrides)])
    with ExitStack() as open_:
        folder = out or Path(open_.enter_context(tempfile.TemporaryDirectory()))
        open_.enter_context(served(folder, port, every, address))
        log(f"http://{address}:{port}  (Ctrl-C to stop)")
        os.nice(10)  # the runs come first
        stop = open_.enter_context(StopSignals())  # an exception raised amid a report may be swallowed there
        seen: object = None
        ready = 0.0
        while stop.received is None:
            if time.monotonic() >= ready and (now := signature(directories)) != seen:
                seen, began = now, time.monotonic()
                renew(folder, lambda: report(chosen, runs, worlds, folder, command))
                ready = time.monotonic() + max(every, _SHARE * (time.monotonic() - began))
            time.sleep(_LOOK)
    signal.raise_signal(stop.received)


def signature(directories: Iterable[Path]) -> object:
    """Changes with every record of these run directories."""
    facts = [file.stat() for path in directories for name in _RECORDS if (file := path / name).is_file()]
    return [(each.st_ino, each.st_size, each.st_mtime_ns) for each in facts]


def renew(folder: Path, build: Callable[[], object]) -> None:
    """Build the report; before the first one, the page says why there is none."""
    try:
        build()
    except (SettingsError, OSError) as error:  # before the first round, or of a file that was just being replaced
        if not (folder / _PAGE).exists():
            make_folder(folder)
            write_text(folder / _PAGE, f"<!doctype html><title>fedtide watch</title><p>{html.escape(str(error))}</p>")


class _Handler(SimpleHTTPRequestHandler):
    """Serves the newest report, which browsers ask for again every few seconds."""

    every = 0.0

    def translate_path(self, path: str) -> str:
        return super().translate_path(f"/{_PAGE}" if path == "/" else path)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("Refresh", f"{self.every:g}")
        super().end_headers()

    def log_message(self, *args: object) -> None:
        """No line per request."""


@contextmanager
def served(folder: Path, port: int, every: float, host: str = "127.0.0.1") -> Iterator[None]:
    """Serve the report in a folder on an address of this machine inside the block; a SettingsError if the port is taken."""
    _Handler.every = every
    try:
        server = ThreadingHTTPServer((host, port), partial(_Handler, directory=str(folder)))
    except OSError as error:
        raise SettingsError(f"--port {port}: {error.strerror}; use another port") from None
    threading.Thread(target=server.serve_forever, name="watch", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
