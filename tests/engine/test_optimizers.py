"""Local optimizers against torch.optim, in every executor and precision."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedtide.federation.assembly.hardware import Hardware
from fedtide.federation.federation import Federation
from fedtide.settings.groups.local import LocalSettings
from fedtide.training.engine.local import Local, Update
from fedtide.training.engine.optimizers import optimizer
from matrix import matrix
from support import (
    assembled,
    assert_close,
    assert_same,
    bare,
    closest,
    federation,
    run_rounds,
    settings,
    steady,
    vectors,
)

pytestmark = pytest.mark.usefixtures("drop_in")

CLIENTS, SIZE, STEPS = 3, 7, 50

SWITCHES: list[tuple[dict[str, Any], type[torch.optim.Optimizer], dict[str, Any]]] = [
    ({"name": "adam"}, torch.optim.Adam, {}),
    ({"name": "adam", "beta1": 0.5, "beta2": 0.9, "eps": 1e-3}, torch.optim.Adam, {"betas": (0.5, 0.9), "eps": 1e-3}),
    ({"name": "adam", "beta1": 0.0, "beta2": 0.0, "eps": 0.1}, torch.optim.Adam, {"betas": (0.0, 0.0), "eps": 0.1}),
    ({"name": "adam", "amsgrad": True}, torch.optim.Adam, {"amsgrad": True}),
    ({"name": "adamw"}, torch.optim.AdamW, {}),
    (
        {"name": "adamw", "beta2": 0.95, "eps": 1e-4, "amsgrad": True},
        torch.optim.AdamW,
        {"betas": (0.9, 0.95), "eps": 1e-4, "amsgrad": True},
    ),
    ({"name": "adagrad"}, torch.optim.Adagrad, {}),
    (
        {"name": "adagrad", "eps": 1e-2, "initial": 0.3, "lr_decay": 0.1},
        torch.optim.Adagrad,
        {"eps": 1e-2, "initial_accumulator_value": 0.3, "lr_decay": 0.1},
    ),
]


def reference(start: Tensor, gradients: Tensor, cls: Any, lr: float, decay: float, options: dict[str, Any]) -> Tensor:
    """torch's optimizer on one client's parameters."""
    y = torch.nn.Parameter(start.clone())
    theirs = cls([y], lr=lr, weight_decay=decay, **options)
    for gradient in gradients:
        y.grad = gradient.clone()
        theirs.step()
    return y.detach()


@pytest.mark.parametrize(("rates", "decay"), matrix([True, False], [0.05, 0.0]))
@pytest.mark.parametrize(("chosen", "cls", "options"), SWITCHES, ids=str)
def test_fifty_steps_are_torch_s(
    chosen: dict[str, Any], cls: Any, options: dict[str, Any], rates: bool, decay: float
) -> None:
    """Several clients in one block and one alone, with one rate or their own; gradients of changing size, zeros among them."""
    draw = torch.Generator().manual_seed(1)
    local = LocalSettings.model_validate({"optimizer": chosen, "weight_decay": decay})
    start = torch.randn(CLIENTS, SIZE, generator=draw, dtype=torch.float64)
    scale = torch.logspace(-3, 2, STEPS, dtype=torch.float64).view(-1, 1, 1)
    gradients = scale * torch.randn(STEPS, CLIENTS, SIZE, generator=draw, dtype=torch.float64)
    gradients[:, :, 0] = 0.0
    factors = torch.tensor([[1.0], [0.5], [3.0]], dtype=torch.float64) if rates else None
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        W = start.to(dtype, copy=True)
        cohort = bare(W, Local(lr_scale=None if factors is None else factors.to(dtype)), optimizer(local).at_rest(W))
        for rows in (slice(0, 2), slice(2, 3)):
            update = Update(cohort, rows, local)
            for gradient in gradients.to(dtype):
                g = torch.empty_like(W[rows])
                update.seed(g)
                update.step(W[rows], g.add_(gradient[rows]))
        for client in range(CLIENTS):
            lr = 0.1 * (1.0 if factors is None else float(factors[client]))
            wanted = reference(start[client], gradients[:, client], cls, lr, decay, options)
            assert closest(W[client].double(), wanted) < tolerance


def trained(chosen: Any, scope: str, rounds: int, *, model: str = "softmax_regression", **engine: Any) -> Federation:
    """A single client whose rounds are ten full-batch steps."""
    local = {"steps": 10, "batch_size": 100, "lr": 0.05, "weight_decay": 0.02, "order": "stored"}
    values = {"local": {**local, "optimizer": chosen, "momentum_scope": scope}, "engine": {"workers": 1, **engine}}
    return federation(settings(model=model, **values), steady([12], rounds), vectors(12))


@pytest.mark.parametrize(
    ("place", "way", "scope"),
    matrix([5, 7], [{"executor": "threads"}, {"executor": "stacked"}, {"model": "normed"}], ["client", "round"]),
)
def test_rounds_of_one_client_are_torch_s(place: int, way: dict[str, Any], scope: str) -> None:
    """Fifty steps of a network in every executor: kept moments go on over five rounds, others start afresh in each."""
    chosen, cls, options = SWITCHES[place]
    fed = trained(chosen, scope, 5, **way)
    network, data = fed.parts.task.network.double().train(), vectors(12)
    weights = list(network.parameters())
    for step in range(STEPS):
        if step == 0 or (step % 10 == 0 and scope == "round"):
            theirs = cls(weights, lr=0.05, weight_decay=0.02, **options)
        theirs.zero_grad()
        torch.nn.functional.cross_entropy(network(data.train_inputs), data.train_labels).backward()
        theirs.step()
    wanted = torch.cat([weight.detach().flatten() for weight in weights])
    state, _ = run_rounds(fed)
    assert closest(state.w, wanted) < 1e-10
    assert {name for name in state.memory if name.startswith("optimizer.")} == (
        set(optimizer(fed.parts.settings.local).widths(1)) if scope == "client" else set()
    )


SIZES = (5, 1, 8, 3, 4)
COHORTS = [[0, 1, 2, 3], [1, 2, 4], [0, 2, 4], [3]]


def final(chosen: Any, *, dtype: torch.dtype = torch.float64, algorithm: Any = "fedprox", **engine: Any) -> Any:
    """State after some rounds of clients that have taken different numbers of steps."""
    local = {"epochs": 2, "batch_size": 3, "lr": 0.05, "optimizer": chosen, "momentum_scope": "client", "clip": 0.5}
    values = settings(algorithm=algorithm, local=local, engine={"workers": 1, **engine})
    return run_rounds(federation(values, steady(SIZES, 4), vectors(), dtype=dtype, cohorts=COHORTS))[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "chosen"),
    matrix(["fedprox", "columns", "sharp"], [{"name": "adamw", "amsgrad": True}, "adagrad"]),
)
def test_executors_workers_and_chunks_agree(chosen: Any, algorithm: str) -> None:
    ways = [{"executor": "threads"}, {"executor": "stacked"}, *({"executor": "stacked", "chunk": n} for n in (1, 2))]
    first, *others = (final(chosen, algorithm=algorithm, **way) for way in ways)
    for other in others:
        assert_close(first, other, 1e-10)
    assert first.memory["optimizer.step"][:, 0].tolist() == [8, 4, 18, 4, 8]
    for way in ways[:2]:
        assert_same(
            final(chosen, algorithm=algorithm, **way), final(chosen, algorithm=algorithm, **way | {"workers": 4})
        )


@pytest.mark.parametrize("chosen", ["adam", "adagrad"])
@pytest.mark.slow
def test_single_and_mixed_precision_train(chosen: str) -> None:
    """float32 is near float64; with bfloat16 in the forward pass moments stay float32 and the loss falls as fast."""
    assert_close(final(chosen), _as_double(final(chosen, dtype=torch.float32)), 1e-3)
    local = {"epochs": 10, "batch_size": 20, "lr": 0.03, "optimizer": chosen, "momentum_scope": "client"}
    losses = []
    for autocast in (None, torch.bfloat16):
        hardware = Hardware(dtype=torch.float32, autocast=autocast)
        parts = assembled(settings(local=local), steady([30, 30], 3), vectors(), hardware)
        state, records = run_rounds(Federation(parts))
        assert {rows.dtype for rows in state.memory.values()} == {torch.float32}
        losses.append([record.row["train_loss"] for record in records])
    plain, mixed = losses
    assert plain[-1] < 0.8 * plain[0], losses
    assert mixed == pytest.approx(plain, rel=0.1), losses


def _as_double(state: Any) -> Any:
    """The same state in float64."""
    state.w, state.b = state.w.double(), state.b.double()
    state.memory = {name: rows.double() for name, rows in state.memory.items()}
    return state
