"""A command as a real process, forked off a server that has everything imported (see ``server``): tenths of a second.

Only what starts is faked: the command gets its arguments, runs the real entry point and really dies. The processes that it
starts with ``multiprocessing`` are forked off in the same way, by a process that was set aside before the command began.
"""

import contextlib
import fcntl
import json
import multiprocessing
import os
import resource
import runpy
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import process, resource_tracker, util
from pathlib import Path
from typing import Any

from injection import Injection, Moment, rows_of

__all__ = ["Attempt", "Moment", "Process", "rows_of"]
_context = multiprocessing.get_context("forkserver")
_main_process = process.current_process()  # the server imports this module
_HIGH = 500  # above the descriptors of any process here


class Process:
    """A command in a session of its own.

    Args:
        folder: its working directory.
        arguments: of ``fedtide``; or a Python file and its arguments.
        output: file for its standard output and standard error.
        injection: faults.
        environment: changed variables.
        limits: of :mod:`resource`, by number.
        before: called in the process before the command.
    """

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str],
        output: Path,
        injection: Injection | None = None,
        environment: Mapping[str, str] | None = None,
        limits: Mapping[int, int] | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.output = output
        arguments = (folder, list(arguments), output, injection, dict(environment or {}), dict(limits or {}), before)
        self._process = _context.Process(target=_work, args=arguments)
        self._process.start()
        self.pid = self._process.pid or 0

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit status, or minus the signal that ended it; None if it has not ended in that time."""
        self._process.join(seconds)
        return self._process.exitcode

    @property
    def lines(self) -> list[str]:
        """What it wrote to standard output and standard error."""
        return self.output.read_text(encoding="utf-8", errors="replace").splitlines() if self.output.exists() else []


class Attempt:
    """One ``fedtide run`` into ``<folder>/runs/<name>``.

    Args:
        folder: its working directory, with a params.yaml. Plug-ins below it are found.
        arguments: further arguments of the command.
        name: of the run directory.
        moments: when it gets which signal, in order; operations in the run directory count.
        largest: bytes that a file can have at most, as on a disk that is full; 0 for any.
        trace: folder for what it does; see :class:`injection.Injection`.
        before: called in the process before the command.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        name: str = "run",
        moments: tuple[Moment, ...] = (),
        largest: int = 0,
        trace: Path | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.run = folder / "runs" / name
        self._process = Process(
            folder,
            ["run", "--name", name, *arguments],
            folder / f"{name}.output",
            Injection(self.run, moments, trace),
            {"FEDTIDE_PLUGINS": "."},
            {resource.RLIMIT_FSIZE: largest} if largest else {},
            before,
        )

    def end(self) -> int:
        """Wait for it; its exit status, or minus the signal that ended it."""
        status = self._process.wait()
        assert status is not None
        return status

    @property
    def process(self) -> int:
        """Its id."""
        return self._process.pid

    def wait_for(self, rows: int) -> None:
        """Wait until ``rows`` rounds are on record."""
        while rows_of(self.run) < rows:
            assert self._process.wait(0.005) is None, self.lines

    def resume(self) -> None:
        """Let it continue after it was stopped by SIGSTOP, to its end."""
        while self._process.wait(0.05) is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(self.process, signal.SIGCONT)

    @property
    def lines(self) -> list[str]:
        """What it wrote to standard output and standard error."""
        return self._process.lines


def _work(
    folder: Path,
    arguments: list[str],
    output: Path,
    injection: Injection | None,
    environment: dict[str, str],
    limits: dict[int, int],
    before: Callable[[], None] | None,
) -> None:
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as in a terminal, whatever started the tests: nohup has it ignored
    os.chdir(folder)
    os.environ.update(environment)
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.close(written)
    if injection is not None:
        injection.install()
    _become_main()
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, resource.getrlimit(limit)[1]))
    if before is not None:
        before()
    sys.argv = ["fedtide", *arguments]
    if arguments[0].endswith(".py"):
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))  # as Python does for a script
        runpy.run_path(arguments[0], run_name="__main__")
        return
    from fedtide.cli.main import main

    main()


def _become_main() -> None:
    """Forget that ``multiprocessing`` started this process; set two processes aside for those that it will start."""
    process._parent_process = None  # type: ignore[attr-defined]
    process._current_process = _main_process  # type: ignore[attr-defined]
    resource_tracker._resource_tracker._fd = resource_tracker._resource_tracker._pid = None  # type: ignore[attr-defined]
    aside = [_set_aside() for _ in range(2)]  # for multiprocessing's fork server and its resource tracker
    really = util.spawnv_passfds

    def start(path: Any, arguments: Sequence[Any], descriptors: Sequence[int]) -> int:
        if not aside:
            return int(really(path, arguments, descriptors))
        pid, ours = aside.pop()
        socket.send_fds(ours, [json.dumps([arguments[-1], list(descriptors)]).encode()], list(descriptors))
        ours.close()
        return pid

    util.spawnv_passfds = start


def _set_aside() -> tuple[int, socket.socket]:
    """A fork that waits for the code of a new interpreter and for the descriptors that it inherits."""
    ours, theirs = socket.socketpair()
    if pid := os.fork():
        theirs.close()
        return pid, ours
    ours.close()
    message, received, *_ = socket.recv_fds(theirs, 1 << 16, 16)
    if not message:
        os._exit(0)
    theirs.close()
    code, numbers = json.loads(message)
    raised = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _HIGH) for descriptor in received]
    for descriptor, number in zip(raised, numbers, strict=True):
        os.dup2(descriptor, number, inheritable=False)
        os.close(descriptor)
    sys.argv = ["-c"]
    exec(code, {"__name__": "__main__"})
    os._exit(0)
