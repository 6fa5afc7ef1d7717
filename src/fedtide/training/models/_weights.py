"""Weights from a file, for all of a module but what is in its last layer."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from fedtide.core.errors import SettingsError, shortened


def read_weights(path: Path, key: str) -> dict[str, Tensor]:
    """Tensors by name, from a ``state_dict`` that ``torch.save`` has written, or from a ``.safetensors`` file."""
    if not path.is_file():
        raise SettingsError(f"{key} = {str(path)!r}: no such file")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        found = torch.load(path, map_location="cpu", weights_only=True)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{key} = {str(path)!r}: reading it requires the package {error.name}; install it"
        ) from None
    except Exception as error:
        raise SettingsError(f"{key} = {str(path)!r} cannot be read: {shortened(str(error))}") from error
    if not isinstance(found, dict) or not found or not all(isinstance(value, Tensor) for value in found.values()):
        raise SettingsError(f"{key} = {str(path)!r}: should hold a state_dict (tensors by name), got {_kind(found)}")
    return found


def load_weights(module: nn.Module, head: str, weights: dict[str, Tensor], source: str) -> None:
    """Copy weights, by name, into a module: all of them but for the ``head``, whose weights are copied if they fit.

    Other names or shapes outside of the head are a SettingsError about their ``source``.
    """
    own = module.state_dict()
    in_head = {name for name in {*own, *weights} if name.startswith(f"{head}.")}
    absent, unknown = sorted(set(own) - set(weights) - in_head), sorted(set(weights) - set(own) - in_head)
    for names, what in ((absent, "lacks"), (unknown, "has unknown tensors:")):
        if names:
            raise SettingsError(f"{source} {what} {_listed(names)}")
    other = [name for name in sorted(set(own) - in_head) if own[name].shape != weights[name].shape]
    if other:
        found, wanted = (list(values[other[0]].shape) for values in (weights, own))
        raise SettingsError(f"{source}: {other[0]} has shape {found}, the module's has {wanted}")
    heads = {name: value.shape for name, value in own.items() if name in in_head}
    if heads != {name: value.shape for name, value in weights.items() if name in in_head}:
        weights = {name: value for name, value in weights.items() if name not in in_head}
    module.load_state_dict(weights, strict=False)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _kind(found: object) -> str:
    if isinstance(found, dict) and found:
        return f"a dictionary of {', '.join(sorted({type(value).__name__ for value in found.values()}))}"
    return type(found).__name__
