"""Where runs are executed: on this machine, or by the workers of a cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from fedtide.core.errors import SettingsError, nearest

LOCAL = "local"
BATCH_SYSTEMS = {
    "htcondor": "HTCondorCluster",
    "lsf": "LSFCluster",
    "moab": "MoabCluster",
    "oar": "OARCluster",
    "pbs": "PBSCluster",
    "sge": "SGECluster",
    "slurm": "SLURMCluster",
}
"""Batch systems, and the classes of dask-jobqueue that submit their jobs."""

_ADDRESS = re.compile(r"([a-z]+://)?[^\s/:]+:\d+|[a-z]+://[^\s/:]+(:\d+)?")


def _known(value: str) -> str:
    if value and value not in (LOCAL, *BATCH_SYSTEMS) and not _ADDRESS.fullmatch(value):
        problem = f"{value!r} is neither an address such as tcp://host:8786 nor a known name"
        raise SettingsError(nearest(problem, value, (LOCAL, *BATCH_SYSTEMS)))
    return value


ClusterName = Annotated[str, AfterValidator(_known)]
"""The address of a Dask scheduler, ``local``, or the name of a batch system; empty for no cluster."""


@dataclass(frozen=True)
class Hosts:
    """What executes runs.

    Attributes:
        name: of the cluster, see :data:`ClusterName`; empty for processes of this machine.
        runs_per_card: runs that share a graphics card; 0 for as many as it has room for, on a cluster one.

    Raises:
        SettingsError: the name is unknown.
    """

    name: str = ""
    runs_per_card: int = 0

    def __post_init__(self) -> None:
        try:
            _known(self.name)
        except SettingsError as error:
            raise SettingsError(f"cluster: {error}") from None

    @property
    def away(self) -> bool:
        """Whether they are workers of a cluster."""
        return bool(self.name)


HERE = Hosts()
