"""Dropout of modules that others have written, with masks that are pure functions of the engine's keys."""

import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fedtide.training.models.base import KeyedDropout, dropped

_DROPOUTS: dict[type[nn.Module], int | None] = {nn.Dropout: None, nn.Dropout1d: 2, nn.Dropout2d: 2, nn.Dropout3d: 2}
"""Leading dimensions of the inputs that a dropout layer draws for; None for all."""

_SALT = 0x5851F42D4C957F2D  # an odd 64-bit multiplier keeps the keys of a network's layers apart


def key_dropout(module: nn.Module) -> None:
    """Replace dropout layers, in place, by those whose masks are pure functions of the engine's keys."""
    keyed: dict[nn.Module, nn.Module] = {}
    for parent in list(module.modules()):
        for name, part in list(parent._modules.items()):
            if part is None or not (dims := _drawn_dims(part)):
                continue
            if part not in keyed:
                probability: Any = part.p
                salt = (len(keyed) + 1) * _SALT % 2**64 - 2**63
                keyed[part] = KeyedDropout(probability, salt, dims[0])
            parent._modules[name] = keyed[part]


def _drawn_dims(part: nn.Module) -> tuple[int | None] | None:
    """Leading dimensions that a dropout layer draws for (all: None), in a tuple; ``None`` for other layers."""
    torchvision: Any = sys.modules.get("torchvision.ops")  # which a module with such a layer has imported
    if torchvision and isinstance(part, torchvision.StochasticDepth):
        return (1 if part.mode == "row" else 0,)
    return (_DROPOUTS[type(part)],) if type(part) in _DROPOUTS else None


class KeyedDraws(TorchFunctionMode):
    """Within it, dropout that modules call as a function, or have within attention and recurrent layers, is keyed.

    Calls are told apart by their number since the mode was entered.
    """

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self._key, self._calls = key, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keyed = _KEYED.get(func)
        return func(*args, **kwargs or {}) if keyed is None else keyed(self, *args, **kwargs or {})

    def dropout(
        self, inputs: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, dims: int | None = None
    ) -> Tensor:
        """As of :mod:`torch.nn.functional`; ``dims`` as of :class:`KeyedDropout`."""
        if not training or p == 0.0:
            return inputs
        self._calls += 1
        values = dropped(inputs, p, self._key - self._calls * _SALT % 2**63, dims)  # layers have positive multiples
        return inputs.copy_(values) if inplace else values

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """As of :mod:`torch.nn.functional`, by its definition where something is dropped."""
        if dropout_p == 0.0:
            return functional.scaled_dot_product_attention(
                query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
            )
        if enable_gqa:
            key, value = (part.repeat_interleave(query.shape[-3] // part.shape[-3], -3) for part in (key, value))
        scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones_like(scores, dtype=torch.bool).tril()
        if attn_mask is not None:
            hidden = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -torch.inf) if hidden else scores + attn_mask
        return self.dropout(scores.softmax(-1), dropout_p) @ value

    def multi_head(self, *arguments: Any, **settings: Any) -> Any:
        """The attention of ``nn.MultiheadAttention``: torch's function, by the two above."""
        ours = {"dropout": self.dropout, "scaled_dot_product_attention": self.attention}
        written = functional.multi_head_attention_forward
        known = {**written.__globals__, **ours, "has_torch_function": lambda _: False}  # which would lead here again
        return FunctionType(written.__code__, known, None, written.__defaults__)(*arguments, **settings)

    def recurrent(self, inputs: Tensor, *rest: Any, layer: Callable[..., Any]) -> Any:
        """Recurrent layers one by one, with dropout between them."""
        states, weights, biased, layers, p, training, both, *first = rest
        if not (training and p and layers > 1 and first):  # those of packed sequences end otherwise
            return layer(inputs, *rest)
        single = isinstance(states, Tensor)  # all but LSTM
        of_each, lasts = len(weights) // layers, []
        for place in range(layers):
            own = [part.chunk(layers)[place] for part in ((states,) if single else states)]
            parts = weights[place * of_each : (place + 1) * of_each]
            inputs = self.dropout(inputs, p) if place else inputs
            inputs, *last = layer(inputs, own[0] if single else own, parts, biased, 1, 0.0, training, both, *first)
            lasts.append(last)
        return (inputs, *map(torch.cat, zip(*lasts, strict=True)))


_KEYED: dict[Any, Callable[..., Any]] = {
    functional.dropout: KeyedDraws.dropout,
    torch.dropout: KeyedDraws.dropout,
    **dict.fromkeys(
        (functional.dropout1d, functional.dropout2d, functional.dropout3d), partial(KeyedDraws.dropout, dims=2)
    ),
    functional.scaled_dot_product_attention: KeyedDraws.attention,
    functional.multi_head_attention_forward: KeyedDraws.multi_head,
    **{
        layer: partial(KeyedDraws.recurrent, layer=layer)
        for layer in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
    },
}
