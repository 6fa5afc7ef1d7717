from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from fedtide.training.models._draws import KeyedDraws
from fedtide.training.models.base import KeyedDropout

KEYS = st.integers(-(2**63), 2**63 - 1)


def dropped(layer: KeyedDropout, inputs: Tensor, key: int | Tensor) -> Tensor:
    return functional_call(layer, {"key": torch.as_tensor(key)}, (inputs,))


@settings(max_examples=25, deadline=None)
@given(key=KEYS, probability=st.sampled_from([0.1, 0.4, 0.5, 0.9]))
def test_entries_are_dropped_or_rescaled_so_that_the_mean_is_kept(key: int, probability: float) -> None:
    count = 20_000
    values = dropped(KeyedDropout(probability).train(), torch.ones(count // 100, 100, dtype=torch.float64), key)
    kept = values != 0
    torch.testing.assert_close(values[kept], torch.full_like(values[kept], 1 / (1 - probability)))
    deviation = (probability / (1 - probability) / count) ** 0.5
    assert abs(values.mean().item() - 1) < 6 * deviation


@settings(max_examples=25, deadline=None)
@given(key=KEYS, other=KEYS)
def test_the_mask_is_a_function_of_the_key_alone(key: int, other: int) -> None:
    layer = KeyedDropout(0.4).train()
    inputs = torch.ones(8, 32)
    torch.manual_seed(key & 0xFFFF)
    first = dropped(layer, inputs, key)
    assert torch.equal(first, dropped(layer, inputs, key))
    assert torch.equal(first, dropped(layer, inputs * 2, key) / 2)
    assert key == other or not torch.equal(first, dropped(layer, inputs, other))


def test_vmap_over_keys_equals_one_key_at_a_time() -> None:
    layer = KeyedDropout(0.4).train()
    keys = torch.tensor([0, 1, -5, 2**62])
    inputs = torch.randn(4, 3, 10)
    together = vmap(lambda key, x: dropped(layer, x, key))(keys, inputs)
    for row, key in enumerate(keys):
        assert torch.equal(together[row], dropped(layer, inputs[row], key))


def test_no_key_no_draw_where_nothing_is_dropped() -> None:
    inputs = torch.randn(3, 4)
    assert KeyedDropout(0.4).eval()(inputs) is inputs
    assert KeyedDropout(0.0).train()(inputs) is inputs


Q, KV = torch.randn(2, 4, 3, 8, dtype=torch.float64), torch.randn(2, 2, 5, 8, dtype=torch.float64)
SEQUENCES = torch.randn(2, 4, 8, dtype=torch.float64)
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "hidden": {"attn_mask": torch.tensor([1, 0, 1, 1, 0], dtype=torch.bool).expand(3, 5)},
    "added": {"attn_mask": torch.randn(3, 5, dtype=torch.float64), "scale": 0.7},
    "causal": {"is_causal": True},
}


def recurrent(kind: type[nn.RNNBase], **settings: Any) -> Callable[[float], Tensor]:
    layer = kind(8, 6, 3, batch_first=True, **settings).double()

    def outputs(probability: float) -> Tensor:
        layer.dropout = probability
        sequence, ends = layer(SEQUENCES)
        return torch.cat([sequence.flatten(), *(part.flatten() for part in (ends if kind is nn.LSTM else [ends]))])

    return outputs


def of_layer(layer: Any, call: Callable[[Any], Tensor]) -> Callable[[float], Tensor]:
    def outputs(probability: float) -> Tensor:
        layer.dropout = probability
        return call(layer)

    return outputs


HIDDEN = torch.tensor([[False, False, False, True]] * 2)
HEADS = nn.MultiheadAttention(8, 2, batch_first=True).double()
CALLS: dict[str, Callable[[float], Tensor]] = {
    "function": lambda p: F.dropout(SEQUENCES, p),
    "in place": lambda p: F.dropout(SEQUENCES.clone(), p, inplace=True),
    "channels": lambda p: F.dropout1d(SEQUENCES, p),
    "GRU": recurrent(nn.GRU),
    "LSTM": recurrent(nn.LSTM, bidirectional=True, proj_size=4),
    "RNN": recurrent(nn.RNN, bidirectional=True),
    "heads": of_layer(HEADS, lambda layer: layer(*[SEQUENCES] * 3, key_padding_mask=HIDDEN, need_weights=False)[0]),
    "weights": of_layer(HEADS, lambda layer: layer(*[SEQUENCES] * 3, key_padding_mask=HIDDEN)[1]),
    **{
        way: lambda p, how=how: F.scaled_dot_product_attention(Q, KV, KV, dropout_p=p, enable_gqa=True, **how)
        for way, how in WAYS.items()
    },
}
"""Dropout within functions and layers, by its probability."""


@pytest.mark.parametrize("name", CALLS)
def test_dropout_within_functions_and_layers_is_keyed_and_otherwise_that_of_torch(name: str) -> None:
    def keyed(probability: float, key: int) -> Tensor:
        with KeyedDraws(torch.tensor(key)):
            return CALLS[name](probability)

    drawn = torch.get_rng_state()
    assert torch.equal(keyed(0.5, 1), keyed(0.5, 1))
    assert not torch.equal(keyed(0.5, 1), keyed(0.5, 2))
    torch.testing.assert_close(keyed(1e-12, 1), CALLS[name](0.0), rtol=0, atol=1e-10)  # nothing is dropped
    assert torch.equal(torch.get_rng_state(), drawn)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "weights", "channels", "GRU"])
def test_the_mean_over_masks_is_that_of_torch(name: str) -> None:
    with torch.no_grad():
        theirs = torch.stack([CALLS[name](0.3) for _ in range(1000)])
        ours = []
        for key in range(1000):
            with KeyedDraws(torch.tensor(key * 10_007)):
                ours.append(CALLS[name](0.3))
    gap, spread = torch.stack(ours).mean(0) - theirs.mean(0), (2 * theirs.var(0) / 1000).sqrt()
    assert float((gap.abs() / spread.clamp(min=1e-12)).max()) < 6


def test_calls_in_one_pass_have_masks_of_their_own() -> None:
    with KeyedDraws(torch.tensor(3)):
        first, second = (F.dropout(torch.ones(100), 0.5) for _ in range(2))
    assert not torch.equal(first, second)
    assert not torch.equal(first, dropped(KeyedDropout(0.5, 0), torch.ones(100), 3))
