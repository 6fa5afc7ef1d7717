"""The local step against a few lines of torch.optim, in float64."""

from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from torch import Tensor

from fedtide.core import plugins
from fedtide.core.discovery.faults import PluginError
from fedtide.settings.groups.local import LocalSettings
from fedtide.training.engine.local import Local, Update, clip, momentum_steps
from matrix import matrix
from support import bare, closest, largest_gap, steady, trajectory, vectors

pytestmark = pytest.mark.usefixtures("drop_in")

CLIENTS, SIZE, STEPS = 3, 5, 4
Scope = Literal["total", "total_with_decay", "loss"]


def column(draw: torch.Generator) -> Tensor:
    """A positive coefficient per client."""
    return torch.rand(CLIENTS, 1, generator=draw, dtype=torch.float64) + 0.5


def additions(kind: str, draw: torch.Generator) -> Local:
    """Coefficients of different shapes."""

    def vector(*shape: int) -> Tensor:
        return torch.randn(*shape, SIZE, generator=draw, dtype=torch.float64)

    return {
        "nothing": Local(),
        "constant": Local(linear=vector()),
        "constants": Local(linear=vector(CLIENTS)),
        "pull": Local(pull=0.3, toward=vector()),
        "pulls": Local(pull=column(draw), toward=vector(CLIENTS)),
        "elementwise": Local(pull=vector().abs(), toward=vector(), linear=vector(CLIENTS)),
        "scale": Local(scale=0.3, linear=vector()),
        "columns": Local(scale=column(draw), linear=vector(), decay=column(draw), lr_scale=column(draw)),
        "decay": Local(decay=0.2),
    }[kind]


def row(value: Any, client: int) -> Any:
    """A client's own part of a coefficient."""
    return value[client] if isinstance(value, Tensor) and value.dim() == 2 else value


def one(value: Any, client: int, default: float) -> float:
    """A client's own number."""
    part = row(value, client)
    return default if part is None else float(part)


def explicit(
    start: Tensor, momentum: Tensor, gradients: Tensor, client: int, added: Local, local: LocalSettings, lr: float
) -> tuple[Tensor, Tensor]:
    """The formulas in the order they are documented; torch's SGD does momentum, Nesterov and the step."""
    y = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.SGD(
        [y], lr=lr * one(added.lr_scale, client, 1.0), momentum=local.momentum, nesterov=local.nesterov
    )
    if local.momentum:
        optimizer.state[y]["momentum_buffer"] = momentum.clone()
    decay = local.weight_decay + one(added.decay, client, 0.0)

    def clipped(v: Tensor) -> Tensor:
        return v if local.clip is None else v * min(1.0, local.clip / (float(v.norm()) + 1e-6))

    for g in gradients:
        theta = y.detach()
        v = clipped(g) if local.clip_scope == "loss" else g
        v = one(added.scale, client, 1.0) * v
        if added.linear is not None:
            v = v + row(added.linear, client)
        if added.pull is not None:
            v = v + row(added.pull, client) * (theta - row(added.toward, client))
        if local.clip_scope == "total_with_decay":
            v = clipped(v + decay * theta)
        else:
            v = (clipped(v) if local.clip_scope == "total" else v) + decay * theta
        y.grad = v
        optimizer.step()
    return y.detach(), optimizer.state[y].get("momentum_buffer", momentum)


@pytest.mark.parametrize(
    ("kind", "momentum", "scope"),
    matrix(
        ["nothing", "constant", "constants", "pull", "pulls", "elementwise", "scale", "columns", "decay"],
        [(0.0, False), (0.9, False), (0.6, True)],
        ["total", "total_with_decay", "loss"],
    ),
)
def test_the_step_is_the_documented_formula(kind: str, momentum: tuple[float, bool], scope: Scope) -> None:
    """Of several clients in one block, and of one."""
    draw = torch.Generator().manual_seed(4)
    added = additions(kind, draw)
    for limit, weight_decay in ((None, 0.0), (0.7, 0.03)):
        local = LocalSettings(
            momentum=momentum[0], nesterov=momentum[1], clip=limit, clip_scope=scope, weight_decay=weight_decay
        )
        W, m = torch.randn(2, CLIENTS, SIZE, generator=draw, dtype=torch.float64).unbind(0)
        gradients = torch.randn(STEPS, CLIENTS, SIZE, generator=draw, dtype=torch.float64)
        wanted = [explicit(W[k], m[k], gradients[:, k], k, added, local, 0.1) for k in range(CLIENTS)]
        cohort = bare(W, added, {"momentum": m} if momentum[0] else {})
        for rows in (slice(0, 2), slice(2, 3)):
            update = Update(cohort, rows, local)
            for gradient in gradients:
                g = torch.empty_like(W[rows])
                update.seed(g)
                g.add_(gradient[rows])
                update.step(W[rows], g)
        for client, (y, buffer) in enumerate(wanted):
            assert closest(W[client], y) < 1e-14
            assert closest(m[client], buffer) < 1e-14


@pytest.mark.parametrize("executor", ["threads", "stacked"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.2])
def test_a_direct_step_is_a_step(executor: str, weight_decay: float) -> None:
    """Matrix products that write into the parameters end where the general update does (a limit that is never reached)."""
    local = {"steps": 3, "batch_size": 4, "lr": 0.3, "weight_decay": weight_decay}
    chosen = {"algorithm": {"name": "fedprox", "mu": 0.5}, "engine": {"executor": executor, "workers": 1}}
    world, data = steady((6, 9), 3), vectors()
    direct, _ = trajectory(world=world, data=data, local=local, **chosen)
    general, _ = trajectory(world=world, data=data, local={**local, "clip": 1e9}, **chosen)
    assert largest_gap(direct, general) < 1e-13


def test_a_pull_needs_a_target() -> None:
    with pytest.raises(ValueError, match="toward"):
        Update(bare(torch.zeros(1, 2), Local(pull=0.1)), slice(0, 1), LocalSettings())


@given(norm=st.floats(1e-3, 1e3), limit=st.floats(1e-2, 1e2))
@examples(deadline=None)
def test_clipping_bounds_the_norm_and_keeps_the_direction(norm: float, limit: float) -> None:
    direction = torch.tensor([[0.6, -0.8], [0.0, 1.0]], dtype=torch.float64)
    v = norm * direction
    clip(v, limit)
    assert (v.norm(dim=-1) <= min(norm, limit) * (1 + 1e-12)).all()
    assert closest(v / v.norm(dim=-1, keepdim=True), direction) < 1e-12
    if norm + 1e-6 <= limit:
        assert torch.equal(v, norm * direction)


@given(steps=st.integers(0, 60), momentum=st.floats(0.0, 0.99), nesterov=st.booleans())
@examples(deadline=None)
def test_the_closed_form_of_the_travel_is_the_recursion(steps: int, momentum: float, nesterov: bool) -> None:
    k = a = 0.0
    for _ in range(steps):
        k = momentum * k + 1
        a += 1 + momentum * k if nesterov else k
    assert float(momentum_steps(torch.tensor([steps]), momentum, nesterov)) == pytest.approx(a, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_what_is_added_comes_on_top_of_a_direction(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FedProx whose direction is the plain gradient is FedProx."""
    common = {"local": {"epochs": 2, "batch_size": 3, "lr": 0.1}, "engine": {"executor": executor, "workers": 1}}
    prox = {"name": "fedprox", "mu": 0.3}
    plain, _ = trajectory(prox, steady((5, 3), 3), vectors(), **common)
    cls = plugins.load("algorithms", "fedprox")
    monkeypatch.setattr(cls, "direction", lambda self, grad, W, r: grad(W))
    ours, _ = trajectory(prox, steady((5, 3), 3), vectors(), **common)
    assert largest_gap(ours, plain) < 1e-14


@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_a_direction_may_be_any_tensor_but_not_change_the_parameters(
    executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the algorithm keeps is not overwritten by the step; gradients of one step are apart."""
    common = {"local": {"epochs": 2, "batch_size": 3, "lr": 0.1}, "engine": {"executor": executor, "workers": 2}}
    cls = plugins.load("algorithms", "fedavg")
    monkeypatch.setattr(cls, "client", ("last",))

    def kept(self: Any, grad: Any, W: Any, r: Any) -> Any:
        first, second = grad(W), grad(W + 1)
        r.client.last = first.add_(second, alpha=0.5)
        return r.client.last

    def fresh(self: Any, grad: Any, W: Any, r: Any) -> Any:
        r.client.last = found = grad(W) + 0.5 * grad(W + 1)
        return found

    found = []
    for direction in (kept, fresh):
        monkeypatch.setattr(cls, "direction", direction)
        models, state = trajectory("fedavg", steady((5, 3), 3), vectors(), **common)
        found.append([*models, state.memory["last"]])
    assert largest_gap(*found) == 0

    monkeypatch.setattr(cls, "direction", lambda self, grad, W, r: grad(W.add_(1)))
    with pytest.raises(PluginError, match=r"fedavg should .*leave W as it is"):
        trajectory("fedavg", steady((5, 3), 1), vectors(), **common)
