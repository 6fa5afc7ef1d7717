"""MOON: identities with FedAvg, bounds of the contrastive term, and the memory of previous models."""

import math
from types import SimpleNamespace

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedtide.core import plugins
from fedtide.methods.algorithms.base import Term
from fedtide.training.engine.local import TermBatch
from fedtide.training.models.base import Outputs
from support import federation, run_rounds, settings, steady, vectors

LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.2, "momentum": 0.9}
SIZES = (5, 2, 7)


def term(mu: float = 1.0, temperature: float = 1.0) -> Term:
    """The contrastive term of one client that has a previous model."""
    cls = plugins.load("algorithms", "moon")
    r = SimpleNamespace(w=torch.zeros(1), client=SimpleNamespace(previous=torch.zeros(1, 1)), seen=torch.ones(1, 1))
    (made,) = cls(cls.Settings(mu=mu, temperature=temperature)).terms(r)  # type: ignore[attr-defined]
    return made  # type: ignore[no-any-return]


def contrast(z: Tensor, near: Tensor, far: Tensor, temperature: float = 1.0) -> Tensor:
    """Its value [B] for features of the model, of the global model and of the previous one."""
    references = {name: Outputs(f, f) for name, f in (("global", near), ("previous", far))}
    unused = torch.zeros(len(z), dtype=torch.int64)
    return term(temperature=temperature).loss(TermBatch(Outputs(z, z), unused, references, torch.nn.Identity(), unused))


def test_the_term_is_one_function_so_that_it_is_traced_once() -> None:
    fed = federation(settings(algorithm="moon", local=LOCAL), steady(SIZES, 3), vectors())
    losses = []
    terms = fed.parts.algorithm.terms
    fed.parts.algorithm.terms = lambda r: losses.extend(made := terms(r)) or made  # type: ignore[method-assign, func-returns-value]
    run_rounds(fed)
    assert len(losses) == 3
    assert len({made.loss for made in losses}) == 1


@given(
    st.lists(st.floats(-3, 3), min_size=12, max_size=12),
    st.sampled_from([0.1, 0.5, 1.0, 2.0]),
)
def test_the_term_is_a_softmax_over_two_similarities(values: list[float], temperature: float) -> None:
    z, near, far = torch.tensor(values, dtype=torch.float64).view(3, 2, 2).unbind()
    cosines = [
        (z * other).sum(1) / (z.norm(dim=1).clamp(min=1e-8) * other.norm(dim=1).clamp(min=1e-8))
        for other in (near, far)
    ]
    found = contrast(z, near, far, temperature)
    expected = -torch.log_softmax(torch.stack(cosines) / temperature, dim=0)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    low, high = (math.log1p(math.exp(sign * 2 / temperature)) for sign in (-1, 1))
    assert bool(((found >= low - 1e-12) & (found <= high + 1e-12)).all())
