"""What plug-ins return, checked where it enters the engine and the federation."""

from collections.abc import Sequence
from dataclasses import fields
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.core.discovery.faults import broken_contract
from fedtide.training.engine.local import GradientAt, Local, NoStep, Term


def tensor(
    plugin: Any, hook: str, value: Any, like: Tensor | None, *shapes: tuple[int, ...], name: str = "a tensor"
) -> Tensor:
    """``value``, if it is a tensor of one of some ``shapes``: like ``like``, or with None of any floating-point type."""
    if not isinstance(value, Tensor):
        raise broken_contract(plugin, hook, f"{name}, got {type(value).__name__}")
    if tuple(value.shape) not in shapes:
        wanted = " or ".join(str(list(shape)) for shape in shapes)
        raise broken_contract(plugin, hook, f"{name} of shape {wanted}, got {list(value.shape)}")
    if like is None and not value.is_floating_point():
        raise broken_contract(plugin, hook, f"floating-point numbers, got {value.dtype}")
    if like is not None and (value.dtype, value.device) != (like.dtype, like.device):
        raise broken_contract(plugin, hook, f"{like.dtype} on {like.device}, got {value.dtype} on {value.device}")
    return value


def instance(plugin: Any, hook: str, value: Any, *types: type) -> Any:
    """``value``, if it is of one of some types."""
    if not isinstance(value, types):
        wanted = " or ".join(kind.__name__ for kind in types)
        raise broken_contract(plugin, hook, f"{wanted}, got {type(value).__name__}")
    return value


def positions(plugin: Any, hook: str, value: Any, count: int, end: int) -> Sequence[Ints]:
    """``value``, if it is a sequence of ``count`` arrays of integers from 0 to ``end`` - 1."""
    if not isinstance(value, Sequence) or len(value) != count:
        found = f"{len(value)} items" if isinstance(value, Sequence) else type(value).__name__
        raise broken_contract(plugin, hook, f"one array for each of {count} clients, got {found}")
    for item in value:
        if not isinstance(item, np.ndarray) or item.ndim != 1 or (len(item) and item.dtype.kind not in "iu"):
            found = f"{item.dtype} {list(item.shape)}" if isinstance(item, np.ndarray) else type(item).__name__
            raise broken_contract(plugin, hook, f"arrays [n] of integers, got {found}")
        if len(item) and not 0 <= item.min() <= item.max() < end:
            raise broken_contract(plugin, hook, f"indices from 0 to {end - 1}, got {item.min()} to {item.max()}")
    return value


def local(plugin: Any, value: Any, clients: int, size: int) -> Local:
    """What :meth:`Algorithm.local` returned, if it is a ``Local`` whose entries have the shapes they should."""
    added: Local = instance(plugin, "local", value, Local)
    vectors, columns = [(size,), (1, size), (clients, size)], [(), (1,), (1, 1), (clients, 1)]
    allowed = {"linear": vectors, "toward": vectors, "pull": [*vectors, *columns]}
    for field in fields(added):
        if isinstance(item := getattr(added, field.name), Tensor):
            tensor(plugin, "local", item, item, *allowed.get(field.name, columns), name=field.name)
    return added


def mask(plugin: Any, value: Any, size: int) -> Tensor:
    """The mask of a phase, if it is bool [d] of ``size`` entries."""
    if not isinstance(value, Tensor) or value.dtype != torch.bool or tuple(value.shape) != (size,):
        found = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise broken_contract(plugin, "phases", f"trains of type torch.bool and shape {[size]}, got {found}")
    return value


def direction(plugin: Any, value: Any, W: Tensor) -> Tensor | GradientAt | NoStep:
    """What :meth:`Algorithm.direction` returned, if it is like the parameters ``W`` [c, d], a gradient there, or no step."""
    if isinstance(value, NoStep):
        return value
    if isinstance(value, GradientAt):
        shape = tuple(W.shape)
        tensor(plugin, "direction", value.point, W, shape)
        if value.minus is not None:
            tensor(plugin, "direction", value.minus, W, shape, shape[1:])
        return value
    return tensor(plugin, "direction", value, W, tuple(W.shape))


def terms(plugin: Any, value: Any) -> list[Term]:
    """What a hook ``terms`` returned, if it is a list of ``Term``."""
    return [instance(plugin, "terms", item, Term) for item in instance(plugin, "terms", value, list, tuple)]


def record(plugin: Any, value: Any, clients: int, hook: str = "record") -> dict[str, Tensor | float]:
    """What a hook returned, if it maps names to numbers and columns [C, 1]."""
    for item in instance(plugin, hook, value, dict).values():
        if isinstance(item, Tensor):
            tensor(plugin, hook, item, item, (clients, 1))
        else:
            instance(plugin, hook, item, Real)
    found: dict[str, Tensor | float] = value
    return found
