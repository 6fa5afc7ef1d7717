"""What a program computes does not depend on who uses the result of an operation that was replaced by a faster one."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedtide.training.programs import onednn
from fedtide.training.programs.program import Product, trace, trace_plain
from matrix import matrix

LAYERS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "addmm": lambda x, w, b: torch.addmm(b, x, w.t()),
    "linear": F.linear,
    "mm": lambda x, w, b: x @ w.t() + b,
    "bmm": lambda x, w, b: torch.bmm(x.view(8, -1, x.shape[1]), w.t().expand(8, -1, -1)).flatten(0, 1) + b,
    "relu": lambda x, w, b: F.linear(x, w, b).relu(),
    "log_softmax": lambda x, w, b: F.linear(x, w, b).log_softmax(-1),
    "norm": lambda x, w, b: F.normalize(F.linear(x, w, b), dim=-1),
}
"""Operations that are or were replaced; [rows, columns] each."""


def heads(y: Tensor) -> Tensor:
    return y.view(8, -1, 2, y.shape[1] // 2).transpose(1, 2)


def attention(y: Tensor, **how: object) -> Tensor:
    return F.scaled_dot_product_attention(heads(y), heads(y), heads(y), **how)  # type: ignore[arg-type]


class TwiceAsStored(torch.autograd.Function):
    """Reads the memory of its argument in order, as a kernel does that requires contiguous rows."""

    @staticmethod
    def forward(y: Tensor) -> Tensor:
        return 2 * torch.as_strided(y, y.shape, (y.shape[1], 1))

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[Tensor], output: Tensor) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * grad


CONSUMERS: dict[str, Callable[[Tensor], Tensor]] = {
    "attention": attention,
    "causal attention": lambda y: attention(y, is_causal=True),
    "masked attention": lambda y: attention(
        y, attn_mask=(torch.arange(y.shape[0] // 8) > 2).expand(y.shape[0] // 8, -1)
    ),
    "convolution": lambda y: F.conv1d(y.view(8, -1, y.shape[1]), y[:3, None, :3].expand(3, y.shape[0] // 8, 3)),
    "einsum": lambda y: torch.einsum("bij,bkj->bik", y.view(8, -1, y.shape[1]), y.view(8, -1, y.shape[1])),
    "bmm": lambda y: heads(y).flatten(0, 1) @ heads(y).flatten(0, 1).mT,
    "views": lambda y: y.view(-1).unflatten(0, (4, -1)).T.reshape(y.shape),
    "strides": lambda y: y.as_strided((y.shape[0], y.shape[1] // 2), (y.shape[1], 2)),
    "indexing": lambda y: y[torch.arange(0, y.shape[0], 3)][:, 1::2],
    "gather": lambda y: y.gather(1, torch.arange(y.shape[0]).unsqueeze(1) % y.shape[1]),
    "reductions": lambda y: torch.cat([y.sum(0), y.mean(1), y.amax(0), y.var(1), y.cumsum(1).flatten()]),
    "layer norm": lambda y: F.layer_norm(y, (y.shape[1],)),
    "custom operation": TwiceAsStored.apply,
}
SIZES = {"few columns": (32, 10, 16), "many columns": (128, 128, 64)}
"""Rows, inner, and columns: those that are computed transposed in other programs, and those that oneDNN takes."""


@pytest.mark.parametrize(("layer", "consumer", "size"), matrix(LAYERS, CONSUMERS, SIZES))
def test_values_and_gradients_are_those_of_plain_torch(
    layer: str, consumer: str, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "preferred", lambda: True)
    rows, inner, columns = SIZES[size]
    draw = torch.Generator().manual_seed(1)
    shapes = ((columns, inner), (columns,), (rows, inner))
    values = [torch.randn(*shape, generator=draw) / inner**0.5 for shape in shapes]

    def output(w: Tensor, b: Tensor, x: Tensor) -> Tensor:
        return CONSUMERS[consumer](LAYERS[layer](x, w, b))

    def loss(*tensors: Tensor) -> Tensor:
        return output(*tensors).square().mean()

    def gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
        found, value = torch.func.grad_and_value(loss, (0, 1))(*tensors)
        return (*found, value)

    found, value = trace(gradients, values)(*values)
    expected = gradients(*values)
    for one, other in zip((*found, value), expected, strict=True):
        one = one.left @ one.right if isinstance(one, Product) else one
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-6)
    torch.testing.assert_close(trace_plain(output, values)(*values), output(*values), rtol=1e-4, atol=1e-5)
