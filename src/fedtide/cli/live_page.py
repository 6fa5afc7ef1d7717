"""A report that is rebuilt as rounds are recorded, and a server for it."""

from __future__ import annotations

import html
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fedtide.core.errors import SettingsError
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.display.progress import Follower
from fedtide.runs.mlflow.store import is_held

_SHARE = 4.0  # a report is not built again before this many times the seconds that it took
_RECORDS = ("settings.json", "history.csv", "events.jsonl", "summary.json", "error.txt")
_STYLE = "font:14px system-ui,sans-serif;padding:.2em 1em;border-bottom:1px solid #888"


class LivePage:
    """The newest report of some runs, with how far they are.

    Args:
        directories: of the runs by their names; existing or not, never written.
        build: builds the report and gives its file. every: seconds between two of them, at least.

    Attributes:
        seconds: until a browser should ask again.
    """

    def __init__(self, directories: Mapping[str, Path], build: Callable[[], Path], every: float) -> None:
        self._directories, self._build, self.seconds = directories, build, every
        self._followers = {name: Follower([path]) for name, path in directories.items()}
        self._seen: object = None
        self._next = 0.0
        self._report, self._note = "", "No report yet."

    def renew(self) -> bool:
        """Build the report again if records have changed and it is time; whether it was built."""
        seen, began = self._signature(), time.monotonic()
        if seen == self._seen or began < self._next:
            return False
        try:
            self._report = self._build().read_text(encoding="utf-8")
            self._seen, self._note = seen, f"Report of {time.strftime('%H:%M:%S')}."
        except (SettingsError, OSError) as error:  # before the first round, or of a file that was just being replaced
            self._note = f"No report at {time.strftime('%H:%M:%S')}: {error}"
        self._next = time.monotonic() + max(self.seconds, _SHARE * (time.monotonic() - began))
        return True

    def html(self) -> tuple[str, bool]:
        """The page, and whether it will change."""
        states = {name: self._state(name) for name in self._directories}
        goes_on = not all(state.startswith("ended") for state in states.values()) or self._seen != self._signature()
        lines = [f"{sum(state.startswith('ended') for state in states.values())} of {len(states)} runs have ended."]
        lines += [f"{name}: {state}." for name, state in states.items() if not state.startswith("ended")]
        shown = "".join(f"<p>{html.escape(line)}</p>" for line in [*lines, self._note])
        banner = f'<aside role="status" id="watch" style="{_STYLE}">{shown}</aside>'
        page = self._report or "<!doctype html><html lang=en><title>fedtide watch</title><body></body></html>"
        return re.sub(r"<body[^>]*>", lambda found: found[0] + banner, page, count=1), goes_on

    def _state(self, name: str) -> str:
        path = self._directories[name]
        position = self._followers[name].position()
        at = f"round {position.done} of {position.rounds}"
        if position.score is not None:
            at += f", {position.score[0].words} {position.shown}"
        try:
            summary = RunDirectory(path).summary()
        except (SettingsError, OSError):
            summary = None
        if summary is not None:
            return f"ended: {summary['state']}"
        if not (path / "manifest.json").is_file():
            return "not started"
        if is_held(path):
            return f"running, {at}"
        return f"failed, {at}" if (path / "error.txt").is_file() else f"stopped, {at}"

    def _signature(self) -> object:
        """Changes with every record."""
        files = [path / name for path in self._directories.values() for name in _RECORDS]
        facts = [file.stat() for file in files if file.is_file()]
        return [(each.st_ino, each.st_size, each.st_mtime_ns) for each in facts]


@contextmanager
def served(page: LivePage, port: int) -> Iterator[None]:
    """Serve the page on the loopback interface inside the block, in threads of this process.

    Raises:
        SettingsError: the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/":
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            text, goes_on = page.html()
            content = text.encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            if goes_on:
                self.send_header("Refresh", f"{page.seconds:g}")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            """No line per request."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise SettingsError(f"--port {port}: {error.strerror}; use another port") from None
    threading.Thread(target=server.serve_forever, name="watch", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
