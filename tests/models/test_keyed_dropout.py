import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call, vmap

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
