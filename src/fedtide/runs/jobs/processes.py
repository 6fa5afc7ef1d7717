"""Worker processes: how they start, and how they end with the process that started them."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import connection, forkserver, util
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any

_LONGEST = 103 - len("/listener-12345678")  # bytes of the folder of a socket, on macOS; Linux allows four more
_SAFE_PATH = "PYTHONSAFEPATH"  # Python's, as its option -P


def stop_with_parent(every: float = 0.5) -> None:
    """Stop this process (SIGTERM, so a run saves its state) once its parent has ended, for whatever reason."""
    starter, parent = multiprocessing.parent_process(), os.getppid()

    def watch() -> None:
        if starter is not None:  # not getppid(): workers are forked by a server of their parent
            connection.wait([starter.sentinel])
        while starter is None and os.getppid() == parent:
            time.sleep(every)
        while True:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(every)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def worker_context() -> ForkServerContext | SpawnContext:
    """How worker processes are started: forked from one process that has imported what a run needs, where that is possible.

    That process listens at a socket below the temporary folder (``TMPDIR``), and the system limits the length of its path.
    """
    if len(os.fsencode(util.get_temp_dir())) > _LONGEST:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedtide.runs.jobs.preload"])
    return context


def start_workers_early() -> None:
    """Start to import what workers need, while this process imports, too."""
    if worker_context().get_start_method() == "forkserver":
        with current_folder_hidden():
            forkserver.ensure_running()


@contextmanager
def main_module_hidden() -> Iterator[None]:
    """Workers started inside do not import the main module, so a script needs no guard around its calls."""
    main = vars(sys.modules["__main__"])
    present = [name for name in ("__file__", "__spec__") if name in main]  # neither after %reset in a notebook
    hidden: dict[str, Any] = {name: main.pop(name) for name in present}
    main["__spec__"] = None
    try:
        yield
    finally:
        del main["__spec__"]
        main.update(hidden)


@contextmanager
def current_folder_hidden() -> Iterator[None]:
    """Python processes started inside do not look for modules in the current folder first.

    With ``-c`` and ``-m`` Python would take the user's ``json.py`` there for its own; workers look where their parent does.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


def how_it_ended(code: int) -> str:
    """How a worker process ended that had a job, from its exit code."""
    if code >= 0:
        return f"its process ended with exit status {code}"
    memory = ", perhaps for lack of memory" if code == -signal.SIGKILL else ""
    return f"its process was killed ({signal.Signals(-code).name}{memory})"


def begin_worker(environment: Mapping[str, str]) -> None:
    """Initialize a worker process: its parent's environment, and one thread, since workers share the cores."""
    import torch

    from fedtide.core import plugins

    os.environ.clear()
    os.environ.update(environment)
    stop_with_parent()
    for kind in plugins.KINDS:  # makes plug-ins in the user's folders importable before jobs that use them arrive
        plugins.folders(kind)
    torch.set_num_threads(1)
    gc.freeze()  # skip imported objects in later garbage collections
