"""Options shared by several commands."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedtide.cli import completion
from fedtide.cli.reporter import log
from fedtide.core.discovery.shipped import DEFAULTS
from fedtide.core.errors import SettingsError, shortened

if TYPE_CHECKING:
    from fedtide.settings.params import Params


def _or_default(context: typer.Context, given: Path) -> Path:
    """A settings file; where none was named and there is none, that of the default experiment."""
    source = context.get_parameter_source("params")
    return given if os.path.lexists(given) or (source and source.name == "COMMANDLINE") else DEFAULTS


ParamsFile = Annotated[
    Path,
    typer.Option(
        "--params",
        callback=_or_default,
        help="Settings file. Default: params.yaml, or the default experiment without one.",
    ),
]
_SET = "Override one setting; may be repeated."
Override = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help=_SET, autocompletion=completion.settings),
]
Runs = Annotated[Path, typer.Option("--runs", help="Folder of run directories.")]
Worlds = Annotated[Path, typer.Option("--worlds", help="Folder of the timelines that `fedtide timeline` writes.")]
_MLRUNS = "MLflow folder, or URI. Default: $FEDTIDE_MLRUNS, $MLFLOW_TRACKING_URI, or mlruns; tracking.uri comes first."
Mlruns = Annotated[str | None, typer.Option("--mlruns", metavar="FOLDER", help=_MLRUNS)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object (or list) on the last line.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Suppress progress output.")]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="IPv4 address to listen on; 0.0.0.0: all of this machine.")]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Execute runs on Dask workers: a scheduler address, local, slurm, pbs, sge or lsf; see compare.cluster.",
    ),
]
Like = Annotated[str | None, typer.Option("--like", metavar="RUN", help="Use the settings of this recorded run.")]
AllowFailures = Annotated[
    bool, typer.Option("--allow-failures", help="Exit with status 0 even if runs diverged or failed; they are listed.")
]

_DRY_RUN = (
    "Assemble every cell once and print the number of runs, estimated time and memory; only datasets are prepared."
)
DryRun = Annotated[bool, typer.Option("--dry-run", help=_DRY_RUN)]
_REHEARSE = "Train one round of every cell in a temporary folder. Exit status 1 if one fails."
Rehearse = Annotated[bool, typer.Option("--rehearse", help=_REHEARSE)]
_SECONDS = "Wall-clock limit: runs are then interrupted, and the same command resumes. The exit status is 0."
Seconds = Annotated[float | None, typer.Option("--seconds", metavar="SECONDS", min=1, max=10**8, help=_SECONDS)]

PARAMS = Path("params.yaml")
_LABELS = {"label": "algorithm", "initializer_label": "initializer"}


def read_params(path: Path, overrides: list[str] | None, like: Path | None = None) -> Params:
    """A command's settings: of a run directory ``like`` it, or a file, or the default experiment; remarks are logged."""
    from fedtide.settings.params import Params

    if like is None and path == DEFAULTS:
        log("no params.yaml in this folder: using the default experiment; write its settings with `fedtide init`")
    params = Params.read(path if like is None else _recorded(like, overrides or ()), overrides or ())
    for remark in params.remarks:
        log(remark)
    return params


def _recorded(run: Path, overrides: Iterable[str]) -> dict[str, Any]:
    """The settings of a recorded run, without those that follow from others, which may be overridden."""
    from fedtide.runs.catalog import recorded

    raw = recorded(run)
    name, seed, start = raw["algorithm"]["name"], raw["seed"], raw["initializer"]["name"]
    derived = {"label": name, "initializer_label": start, "world_seed": seed}
    replaced = {item.partition("=")[0].strip().removesuffix(".name") for item in overrides}
    derived |= {key: raw[key] for key, of in _LABELS.items() if of in replaced}  # a label of what was there before
    kept = {key: value for key, value in raw.items() if derived.get(key) != value}
    return {**kept, "algorithms": {name: {"name": name}}}  # no built-in reference, whose settings would come on top


def as_given(params: Path, overrides: Iterable[str] | None) -> list[str]:
    """The words of a command line that give these settings."""
    named = [] if params == DEFAULTS else ["--params", str(params)]
    return [*named, *(word for item in overrides or () for word in ("--set", item))]


def mlruns_named(given: str | None) -> str:
    """MLflow's folder or URI: the argument, the environment's, or ``mlruns``."""
    return given or os.environ.get("FEDTIDE_MLRUNS") or os.environ.get("MLFLOW_TRACKING_URI") or "mlruns"


def listening(host: str) -> str:
    """The address of ``--host``, with a warning unless it is that of the loopback interface."""
    try:
        address = str(socket.getaddrinfo(host, 0, socket.AF_INET)[0][4][0])
        socket.create_server((address, 0)).close()
    except (OSError, UnicodeError) as error:
        problem = f"--host = {shortened(repr(host))}: {getattr(error, 'strerror', None) or error}"
        raise SettingsError(f"{problem}; use an address of this machine, such as 127.0.0.1 or 0.0.0.0") from None
    if not ip_address(address).is_loopback:
        log(f"WARNING --host {host}: the page has no password, and everybody who can reach this machine can open it")
    return address


def with_cluster(overrides: list[str] | None, cluster: str | None) -> list[str]:
    """Overrides of settings, and the one of ``--cluster``."""
    return [*(overrides or ()), *([f"compare.cluster={json.dumps(cluster)}"] if cluster is not None else ())]
