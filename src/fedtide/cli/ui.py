"""``fedtide ui``."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated

import typer

from fedtide.cli.options import Mlruns, mlruns_folder
from fedtide.cli.reporter import log

_PATIENCE = 10.0  # seconds for servers to end by themselves
_WATCH = "read -r _; kill -TERM -{}"


def ui(
    mlruns: Mlruns = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on the loopback interface.")] = 5000,
) -> None:
    """Open the MLflow UI on this machine."""
    from fedtide.tracking.mlflow import correct_all, ui_command

    root = mlruns_folder(mlruns)
    command, environment = ui_command(root, port=port)
    correct_all(root, log)
    log(f"http://127.0.0.1:{port}  (Ctrl-C to stop)")
    raise typer.Exit(serve(command, environment))


def serve(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command whose processes all end with this one, however it ends; the command's exit status."""
    server = subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True)
    # A shell that waits for the end of its input, which this process never writes: also a SIGKILL closes it.
    watch = subprocess.Popen(["sh", "-c", _WATCH.format(server.pid)], stdin=subprocess.PIPE, start_new_session=True)
    try:
        return server.wait()
    finally:
        watch.kill()
        _end_group(server)
        watch.wait()


def _end_group(server: subprocess.Popen[bytes]) -> None:
    """End all processes of a session's leader."""
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            server.wait(_PATIENCE)
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
