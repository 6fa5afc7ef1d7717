"""``fedtide ui``."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated

import typer

from fedtide.cli.options import PARAMS, Host, Mlruns, Override, ParamsFile, listening, mlruns_named, read_params
from fedtide.cli.reporter import log
from fedtide.core.discovery.shipped import DEFAULTS
from fedtide.core.extras import require

_PATIENCE = 10.0  # seconds for servers to end by themselves
_WATCH = "read -r _; kill -TERM -{}"


def ui(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    mlruns: Mlruns = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the page.")] = 5000,
    host: Host = "127.0.0.1",
) -> None:
    """Open the MLflow UI on this machine, or print the address in `tracking.uri`."""
    require("mlflow", "fedtide ui")
    from fedtide.runs.mlflow.server import Server
    from fedtide.runs.mlflow.store import ui_command
    from fedtide.runs.workspace import mlflow_place
    from fedtide.settings.params import Params

    chosen = read_params(params, overrides) if params != DEFAULTS or overrides else Params()
    where = mlflow_place(chosen.experiment.tracking, mlruns_named(mlruns))
    if isinstance(where, Server):
        print(where.address)
        return
    command, environment = ui_command(where, address := listening(host), port)
    log(f"http://{address}:{port}  (Ctrl-C to stop)")
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
