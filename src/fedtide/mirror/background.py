"""Mirroring to a server from a thread, so that no network is in the way of training."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Any

from fedtide.mirror.mlflow import GAP, MlflowMirror
from fedtide.mirror.server import SECONDS, Server
from fedtide.mirror.store import reason
from fedtide.mirror.workspace import Workspace
from fedtide.records.run_directory import RunDirectory
from fedtide.world.dataset import Dataset

SHARE = 0.01
"""Of the time since a server was last tried, that the end of a run waits for it to answer."""

_LEAST = 0.2  # seconds of that wait at least
_PAUSE = 1.0  # seconds between two calls with new rounds
_AGAIN = 60.0  # seconds until a silent server is tried again
_MOST = 600.0  # seconds to finish with a server that answers
_ROUNDS = 1000  # that wait to be sent; the end of a run reads any others from its records


def tracker(workspace: Workspace, data: Dataset, log: Callable[[str], None]) -> MlflowMirror | BackgroundMirror:
    """Mirrors a run of a workspace that has a place in MLflow; ``data``: the dataset, as loaded."""
    where = workspace.mlruns
    assert where is not None
    common = workspace.experiment, workspace.comparison, log, data, workspace.options
    mirror = MlflowMirror(where, *common)
    return BackgroundMirror(where, mirror, log) if isinstance(where, Server) else mirror


class BackgroundMirror:
    """Mirrors one run to a server, as a :class:`fedtide.runs.callbacks.Tracker`.

    A thread sends the rounds, all that are waiting in one call. When the server fails, that is logged once; the thread tries
    again from the run's records every minute and at the end. The end waits for a server that answers, and for a silent one
    at most a hundredth of the time for which it was not tried (at least 0.2 s).
    """

    def __init__(self, server: Server, mirror: MlflowMirror, log: Callable[[str], None]) -> None:
        self._server, self._mirror, self._log = server, mirror, log
        self._rows: deque[dict[str, Any]] = deque(maxlen=_ROUNDS)
        self._changed = Condition()
        self._state = "trying"  # -> answering -> done, or -> silent -> trying
        self._ending = self._failed = False
        self._tried = 0.0
        self._thread: Thread | None = None

    def begin(self, directory: RunDirectory) -> None:
        self._tried = time.monotonic()
        self._thread = Thread(target=self._work, args=(directory,), name="mlflow", daemon=True)
        self._thread.start()

    def log_round(self, row: dict[str, Any]) -> None:
        self._rows.append(row)

    def end(self) -> None:
        """Let the thread finish, however the run ended."""
        if self._thread is None:
            return
        patience = max(_LEAST, SHARE * (time.monotonic() - self._tried))
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            if self._wait_for("answering", "done", seconds=patience):
                self._wait_for("done", "gone", seconds=_MOST)
            if self._state != "done":
                self._remark(f"{self._server.address} does not answer")
                self._state = "gone"

    def _wait_for(self, *states: str, seconds: float) -> bool:
        return self._changed.wait_for(lambda: self._state in states or self._state == "gone", seconds)

    def _work(self, directory: RunDirectory) -> None:
        while True:
            last = self._ending
            try:
                self._mirror_all(directory, last)
            except Exception as error:  # whatever MLflow or the network may raise
                self._mirror.abandon()
                with self._changed:
                    self._remark(reason(error))
                    self._tried = time.monotonic()
                    self._state = "gone" if last or self._state == "gone" else "silent"
                    self._changed.notify_all()
                    if self._state == "gone":
                        return
                    self._changed.wait_for(lambda: self._ending, _AGAIN)
                    self._state = "trying"
            else:
                return

    def _mirror_all(self, directory: RunDirectory, last: bool) -> None:
        """Bring MLflow up to date and keep it so until the end."""
        waited = max(_LEAST, SHARE * (time.monotonic() - self._tried))
        self._server.call(min(SECONDS, waited) if last else SECONDS)
        self._enter("answering")
        run = self._mirror.open(directory)
        while not self._ending:
            with self._changed:
                self._changed.wait_for(lambda: self._ending, _PAUSE)
            run.add([self._rows.popleft() for _ in range(len(self._rows))])
        run.add(directory.history())
        self._mirror.close(run)
        if self._failed:
            self._log("MLflow: the server answers again, the run is complete there")
        self._enter("done")

    def _enter(self, state: str) -> None:
        """Change the state, unless nobody waits any more."""
        with self._changed:
            if self._state == "gone":
                raise TimeoutError
            self._state = state
            self._changed.notify_all()

    def _remark(self, why: str) -> None:
        if not self._failed:
            self._failed = True
            self._log(f"MLflow: {why}; {GAP}")
