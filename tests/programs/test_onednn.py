"""Products by oneDNN instead of MKL: the same up to rounding, and only where they are faster."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fedtide.training.programs import onednn
from fedtide.training.programs.program import Product, trace, trace_plain
from support import closest

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """As on a processor whose products oneDNN is faster at."""
    monkeypatch.setattr(onednn, "preferred", lambda: True)


def drawn(*shapes):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(*shape, generator=generator) / shape[-1] ** 0.5 for shape in shapes]


def perceptron(w1, b1, w2, b2, x):
    """Loss of two layers with a skip connection over a ReLU."""
    hidden = torch.relu(torch.addmm(b1, x, w1.t()))
    return torch.addmm(b2, hidden, w2.t()).relu().add(hidden).square().mean()


def gradients(*values):
    grads, loss = torch.func.grad_and_value(perceptron, (0, 1, 2, 3))(*values)
    return (*grads, loss)


def targets(graph):
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


def test_gradients_are_those_of_mkl_up_to_rounding():
    values = drawn((160, 200), (160,), (160, 160), (160,), (48, 200))
    found, loss = trace(gradients, values)(*values)
    *expected, value = gradients(*(tensor.double() for tensor in values))
    assert not any(isinstance(gradient, Product) for gradient in found)  # none is left to the update
    assert closest(loss, value) < 1e-5
    assert max(closest(one, other) for one, other in zip(found, expected, strict=True)) < 1e-6


def test_every_large_product_and_the_relu_after_it_is_taken():
    graph = make_fx(gradients)(*drawn((160, 200), (160,), (160, 160), (160,), (48, 200)))
    onednn.use_onednn(graph.graph)
    names = [getattr(target, "__name__", "") for target in targets(graph)]
    assert names.count("_linear_pointwise.default") == 5
    assert not {"mm.default", "addmm.default", "relu.default"} & set(names)


def test_a_value_that_is_needed_before_the_relu_is_kept():
    def both(x, w):
        product = torch.mm(x, w)
        return torch.relu(product).sum() + product.min()

    values = drawn((128, 128), (128, 128))
    assert closest(trace_plain(both, values)(*values), both(*values)) < 1e-3
    graph = make_fx(both)(*values)
    onednn.use_onednn(graph.graph)
    assert torch.ops.aten.relu.default in targets(graph)


@pytest.mark.parametrize(
    ("left", "right", "dtype"),
    [
        ((100, 100), (100, 100), torch.float32),  # small
        ((200, 200), (200, 200), torch.float64),  # oneDNN has no double precision
    ],
)
def test_other_products_stay_as_they_are(left, right, dtype):
    a, b = drawn(left, right)
    graph = make_fx(torch.mm)(a.to(dtype), b.to(dtype))
    onednn.use_onednn(graph.graph)
    assert targets(graph) == [torch.ops.aten.mm.default]


def test_mkl_stays_where_it_is_as_fast(monkeypatch):
    monkeypatch.setattr(onednn, "preferred", lambda: False)
    values = drawn((160, 200), (160,), (160, 160), (160,), (48, 200))
    found, _ = trace(gradients, values)(*values)
    assert isinstance(found[0], Product)
