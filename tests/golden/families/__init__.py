"""How the golden files of each family are read; chosen by what a file says, never by its name."""

from collections.abc import Callable
from typing import Any

from golden.families import (
    asynchronous,
    cfl,
    drift,
    dynamicfl,
    erasure,
    lockstep,
    momentum_sam,
    personal,
    sessions,
    uplink,
)
from golden.families.case import Case

READERS: dict[str, Callable[[dict[str, Any], dict[str, Any]], Case]] = {
    "async": asynchronous.read,
    "cfl": cfl.read,
    "drift": drift.read,
    "dynamicfl": dynamicfl.read,
    "erasure": erasure.read,
    "personal": personal.read,
    "sessions": sessions.read,
    "uplink": uplink.read,
}


def read(content: dict[str, Any], run: dict[str, Any]) -> Case:
    """A run of a file: the reader of the file's ``family``, or without one by how its runs describe their weights."""
    if "family" in content:
        return READERS[content["family"]](run, content["problems"])
    reader = momentum_sam.read if "weighting" in run else lockstep.read
    return reader(run, content["problems"])
