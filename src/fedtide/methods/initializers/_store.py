"""Tensors of several sessions in one flat mapping, so that they are saved with the run."""

from __future__ import annotations

from torch import Tensor

Store = dict[str, Tensor]


def remember(store: Store, group: str, session: int, **tensors: Tensor) -> None:
    """Store named tensors of a session under ``<group>.<session>.<name>``."""
    store.update({f"{group}.{session}.{name}": value for name, value in tensors.items()})


def recall(store: Store, group: str, session: int, name: str) -> Tensor:
    """One stored tensor."""
    return store[f"{group}.{session}.{name}"]


def sessions(store: Store, group: str) -> list[int]:
    """Sessions of which a group has tensors, ascending."""
    parts = (key.split(".") for key in store)
    return sorted({int(part[1]) for part in parts if len(part) == 3 and part[0] == group})


def forget(store: Store, group: str, session: int) -> None:
    """Drop a session's tensors."""
    for key in [key for key in store if key.startswith(f"{group}.{session}.")]:
        del store[key]
