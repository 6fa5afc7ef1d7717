"""Any torch module as a network in two parts: what is in front of a named layer, and that layer.

The module runs as a whole, and the layer's input is recorded on the way. A layer whose parameters are all constant runs in
evaluation mode, with everything in it.
"""

import copy
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from fnmatch import fnmatchcase
from typing import Any, Self

import torch
from torch import Tensor, nn

from fedtide.core.errors import SettingsError, nearest, shortened
from fedtide.training.models._draws import KeyedDraws, key_dropout
from fedtide.training.models.base import Keyed, Network, Outputs

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)  # layers that can be made again for another number of classes


class _Tap(nn.Module):
    """Takes the place of a layer: records inputs and outputs of the layer, which is registered elsewhere; looks like it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = (layer,)  # in a tuple, so that the layer's parameters have one name
        self.calls: list[tuple[Tensor, Tensor]] = []

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer[0](inputs)
        self.calls.append((inputs, outputs))
        return outputs

    def take(self) -> list[tuple[Tensor, Tensor]]:
        """Inputs and outputs of the calls since the last time; a module that kept them could not be copied."""
        calls, self.calls = self.calls, []
        return calls

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "layer":  # while it is being copied
                raise
            return getattr(self.layer[0], name)


class ForeignNetwork(Network):
    """A module with one of its layers, named ``head``, as the head. The module is changed; its dropout gets keyed masks.

    ``sample`` are prepared inputs [n, ...] to try it on.

    Raises:
        SettingsError: the module does not call the layer.

    Attributes:
        body: the module, with a note-taker in place of the layer.
    """

    def __init__(self, module: nn.Module, head: str, sample: Tensor) -> None:
        super().__init__()
        key_dropout(module)
        for part in module.modules():
            if isinstance(part, nn.Embedding | nn.EmbeddingBag):
                part.sparse = False  # flat vectors need the gradient in full
            elif isinstance(part, nn.TransformerEncoder):
                part.use_nested_tensor = False  # whose shapes depend on values
        self.body, self.head, self.draws = module, module.get_submodule(head), Keyed()
        self._constant: list[str] = []
        self._place = head
        is_meta = any(value.is_meta for value in module.parameters())
        _set(module, head, _Tap(self.head))
        self._linear = not is_meta and all(self._is_last(sample, mode) for mode in (False, True))
        self._fixed = False
        self._keep_constant()

    @property
    def has_linear_head(self) -> bool:
        return self._linear and isinstance(self.head, nn.Linear)

    @property
    def has_fixed_features(self) -> bool:
        return self._fixed

    def stored_name(self, name: str) -> str:
        """The name in the module as it was."""
        part, _, rest = name.partition(".")
        return rest if part == "body" else f"{self._place}.{rest}"

    def features(self, inputs: Tensor) -> Tensor:
        return self._whole(inputs)[0]

    def contrast(self, features: Tensor, logits: Tensor) -> Tensor:
        """The features; the logits if features are fixed, and so the same for all models."""
        return logits if self._fixed else features

    def forward(self, inputs: Tensor) -> Tensor:
        return self._whole(inputs)[1]

    def outputs(self, inputs: Tensor) -> Outputs:
        features, logits = self._whole(inputs)
        return Outputs(logits, self.contrast(features, logits))

    def freeze(self, patterns: tuple[str, ...], key: str) -> None:
        """Keep parameters and statistics in front of the head constant whose names match, or begin with, a pattern.

        A pattern that matches nothing is a SettingsError about ``key``.
        """
        tensors = {**dict(self.body.named_parameters()), **dict(self.body.named_buffers())}
        for pattern in patterns:
            chosen = [name for name in tensors if fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")]
            if not chosen:
                tops = {name.rpartition(".")[0] or name for name in tensors}
                raise SettingsError(nearest(f"{key}: {pattern!r} matches no parameter before the head", pattern, tops))
            for name in chosen:
                if isinstance(tensors[name], nn.Parameter):
                    tensors[name].requires_grad_(False)
        self._keep_constant()

    def _keep_constant(self) -> None:
        """Find the layers that are constant, whose statistics then are too."""
        self._constant = [name for name, part in self.body.named_modules() if _is_constant(part)]
        self._fixed = self._linear and "" in self._constant
        self.train()

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for name in self._constant:
            self.body.get_submodule(name).eval()
        return self

    def _whole(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        tap: Any = self.body.get_submodule(self._place)
        with KeyedDraws(self.draws.key) if self.body.training else nullcontext():
            logits = logits_of(self.body(inputs))
        return tap.take()[-1][0].flatten(1), logits

    def _is_last(self, sample: Tensor, training: bool) -> bool:
        """Whether the module calls the layer once, and returns the very tensor that the layer returns, unchanged.

        Values would prove nothing: a gate or a scale behind the layer may begin as the identity.
        """
        body = copy.deepcopy(self.body).train(training)  # statistics stay as they are
        tap: Any = body.get_submodule(self._place)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                logits = logits_of(body(sample.clone()))
        except Exception:  # the error is reported when samples of the run pass
            return False
        if not (calls := tap.take()):
            raise SettingsError(
                f"model.head = {self._place!r}: forward does not call it; name the last layer that it calls"
            )
        return len(calls) == 1 and logits is calls[0][1] and logits._version == 0


def logits_of(outputs: Any) -> Tensor:
    """The logits in what a module returns: itself, or the ``logits`` of a mapping or an object; else a TypeError."""
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", outputs)
    if isinstance(found, Tensor):
        return found
    shown = type(outputs).__name__
    if isinstance(outputs, Mapping):
        shown = f"{shown} with the keys {shortened(', '.join(map(str, outputs)))}"
    raise TypeError(f"forward should return logits, or a mapping or an object with logits, got {shown}")


def _set(module: nn.Module, name: str, part: nn.Module) -> None:
    owner, _, leaf = name.rpartition(".")
    module.get_submodule(owner)._modules[leaf] = part


def _is_constant(part: nn.Module) -> bool:
    """Whether a module has parameters, and all are constant."""
    values = list(part.parameters())
    return bool(values) and not any(value.requires_grad for value in values)


def find_head(module: nn.Module, name: str | None, run: Callable[[], object]) -> str:
    """Name of the head: as given, or of the linear layer, or else convolution, that ``run`` calls last.

    A SettingsError if there is no such layer, or it has no parameters.
    """
    parts = {place: part for place, part in module.named_modules() if place}
    if name is None:
        called: list[nn.Module] = []
        layers = (part for part in parts.values() if isinstance(part, _LAYERS))
        hooks = [layer.register_forward_hook(lambda part, *_: called.append(part)) for layer in layers]
        run()
        for hook in hooks:
            hook.remove()
        called.sort(key=lambda part: isinstance(part, nn.Linear))
        name = next((place for place, part in parts.items() if called and part is called[-1]), None)
        if name is None:
            raise SettingsError("model.head: the module has no linear layer to use as head; give the head's name")
    if name not in parts:
        raise SettingsError(nearest(f"model.head = {name!r}: the module has no such layer", name, parts))
    if not any(True for _ in parts[name].parameters()):
        raise SettingsError(f"model.head = {name!r}: this layer has no parameters; give the last layer that has some")
    return name


def fit_head(module: nn.Module, head: str, classes: int) -> None:
    """Make the head again, with fresh weights, if it is a linear layer or a convolution with another number of outputs."""
    layer = module.get_submodule(head)
    if not isinstance(layer, _LAYERS):
        return
    like = layer.weight
    common: dict[str, Any] = {"bias": layer.bias is not None, "device": like.device, "dtype": like.dtype}
    if isinstance(layer, nn.Linear):
        if layer.out_features != classes:
            _set(module, head, nn.Linear(layer.in_features, classes, **common))
    elif layer.out_channels != classes:
        names = ("in_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")
        same = {name: getattr(layer, name) for name in names}
        _set(module, head, type(layer)(out_channels=classes, **same, **common))
