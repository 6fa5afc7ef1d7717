"""What models have in common that take their network from elsewhere: arguments, head, weights, constant layers."""

from abc import abstractmethod
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from fedtide.core.errors import SettingsError, shortened
from fedtide.core.plugins import INCIDENTAL, PluginSettings
from fedtide.training.models._foreign import ForeignNetwork, find_head, fit_head, logits_of
from fedtide.training.models.base import Model, Network


class WrappedSettings(PluginSettings):
    arguments: dict[str, Any] = Field({}, description="constructor arguments; the number of classes is added")
    head: str | None = Field(
        None,
        description="name of the last layer, such as fc; replaced if its number of outputs is not that of the "
        "classes; null: the last linear layer, or the last convolution if there is none",
    )
    weights: Annotated[str | None, INCIDENTAL] = Field(
        None,
        description="file with a state_dict, .pt (read with weights_only) or .safetensors; the head's weights are "
        "used if they fit, all others must; null: random weights",
    )
    freeze: tuple[str, ...] = Field(
        (),
        description="patterns of parameter names, such as features.* (or just features), that are neither trained nor sent; "
        "the head always is: [*] trains the head alone",
    )


class WrappedModel(Model):
    """A model that takes its network from elsewhere; sub-classes make it."""

    Settings = WrappedSettings
    settings: WrappedSettings

    @abstractmethod
    def make(self, num_classes: int) -> nn.Module:
        """The module, freshly initialized."""

    @abstractmethod
    def fault(self, error: BaseException) -> SettingsError:
        """The error in one line of an exception that the module has raised."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The setting that names the module, with its value."""

    def files(self) -> tuple[Path, ...]:
        return (Path(self.settings.weights),) if self.settings.weights else ()

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        chosen = self.settings
        module = self.make(num_classes)
        for name, value in module.named_parameters():
            if value.is_complex():
                raise SettingsError(
                    f"{self.title}: parameter {name} is complex; keep real and imaginary parts in a real parameter [..., 2] "
                    "and use torch.view_as_complex in forward"
                )
        is_meta, sample = _is_meta(module), _sample(module, input_shape, vocabulary)
        if any(nn.parameter.is_lazy(value) for value in module.parameters()):
            self._run(module, sample)  # gives all parameters their shapes
        head = find_head(module, chosen.head, lambda: self._run(module, sample))
        fit_head(module, head, num_classes)
        if chosen.weights and not is_meta:
            load_weights(module, head, Path(chosen.weights))
        try:
            logits_of(self._run(module, sample))
        except TypeError as error:
            raise SettingsError(f"{self.title}: {error}") from None
        network = ForeignNetwork(module, head, sample)
        network.freeze(chosen.freeze, "model.freeze")
        return network

    def _run(self, module: nn.Module, sample: Tensor) -> Any:
        try:
            with torch.no_grad():
                return module.eval()(sample)
        except Exception as error:
            fault = self.fault(error)
            raise SettingsError(f"{fault} (on samples {list(sample.shape[1:])})") from error


def _sample(module: nn.Module, input_shape: tuple[int, ...], vocabulary: int) -> Tensor:
    """Two samples of noise, or of token ids, in the type and on the device of a module's parameters."""
    draw, device = torch.Generator().manual_seed(0), "meta" if _is_meta(module) else "cpu"
    if vocabulary:
        return torch.randint(1, max(2, vocabulary), (2, *input_shape), generator=draw, device="cpu").to(device)
    dtypes = [value.dtype for value in module.parameters() if value.is_floating_point()]
    return torch.randn(2, *input_shape, generator=draw, device="cpu").to(device, dtypes[0] if dtypes else torch.float32)


def _is_meta(module: nn.Module) -> bool:
    return any(value.is_meta for value in module.parameters())


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors by name, from a ``state_dict`` that ``torch.save`` has written, or from a ``.safetensors`` file."""
    where = f"model.weights = {str(path)!r}"
    if not path.is_file():
        raise SettingsError(f"{where}: no such file")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        found = torch.load(path, map_location="cpu", weights_only=True)
    except ModuleNotFoundError as error:
        raise SettingsError(f"{where}: reading it requires the package {error.name}; install it") from None
    except Exception as error:
        raise SettingsError(f"{where} cannot be read: {shortened(str(error))}") from error
    if not isinstance(found, dict) or not found or not all(isinstance(value, Tensor) for value in found.values()):
        raise SettingsError(f"{where}: should hold a state_dict (tensors by name), got {type(found).__name__}")
    return found


def load_weights(module: nn.Module, head: str, path: Path) -> None:
    """Copy weights by name into a module, those of the ``head`` if they fit.

    Other names or shapes outside of the head are a SettingsError.
    """
    weights = read_weights(path)
    own, given = (
        {name: value for name, value in values.items() if name.startswith(f"{head}.")}
        for values in (module.state_dict(), weights)
    )
    if {name: value.shape for name, value in own.items()} != {name: value.shape for name, value in given.items()}:
        weights = {name: value for name, value in weights.items() if name not in given} | own
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        _, _, problems = str(error).partition("\n")
        raise SettingsError(f"model.weights = {str(path)!r}: {shortened(problems)}") from None
