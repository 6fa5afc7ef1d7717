"""Which algorithm becomes which other one, by its settings or in its world: a line for each."""

import functools
import json
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from matrix import matrix
from support import largest_gap, steady, trajectory, vectors

SIZES = (5, 2, 7, 4)
COHORTS = [[0, 2], [1, 2, 3], [2], [0, 1, 3], [3]]
EVERYBODY = [[0, 1, 2, 3]] * 5
PLAIN = {"epochs": 2, "batch_size": 3, "lr": 0.2}
MOMENTUM = {**PLAIN, "momentum": 0.5, "weight_decay": 0.01, "clip": 0.5}
DECAYING = {**PLAIN, "lr": 0.1, "weight_decay": 0.01, "schedule": "exponential", "decay": 0.8}
CLIPPED = {**PLAIN, "weight_decay": 0.01, "clip": 0.3}
ONE_STEP = {**PLAIN, "epochs": None, "steps": 1}
EQUAL_STEPS = {**PLAIN, "epochs": None, "steps": 4, "lr": 0.1, "weight_decay": 0.01}
FULL_STEP = {**PLAIN, "epochs": 1, "batch_size": 99}
RATE_ONE = {"capped_steps": 5, "batch_size": 2, "momentum": 0.9, "lr": 1.0}


class Reduction(NamedTuple):
    """``ours`` is ``theirs`` with these local settings and cohorts; ``gap`` between global models, 0 for equal bits."""

    ours: dict[str, Any]
    theirs: dict[str, Any]
    gap: float = 0.0
    local: dict[str, Any] = PLAIN
    cohorts: list[list[int]] = COHORTS

    @property
    def id(self) -> str:
        """Of the test."""
        return " = ".join("-".join(map(str, side.values())) for side in (self.ours, self.theirs))


def named(name: str, **values: Any) -> dict[str, Any]:
    """Settings of an algorithm."""
    return {"name": name, **values}


FEDAVG, UNIFORM = named("fedavg"), named("fedavg", weighting="uniform")
FEDSPEED = named("fedspeed", a=0.3, mix=0.0)
GENERATOR = {"noise": 3, "hidden": 6, "generator_steps": 4, "generator_batch": 5}
STORED = [
    *(named(name, units=units) for name in ("mifa", "fedvarp") for units in ("gradient", "displacement")),
    *(named("mifa", begin=begin) for begin in ("seen", "wait")),
    named("fedvarp", beta=0.5),
    named("fedawe"),
    named("fedawe", newcomers="current"),
    named("fedau"),
    named("ca_fed", bias=1e9, prior_rounds=1e-13),  # never excludes anybody
]
"""They remember or weigh the absent: FedAvg where nobody is, with unequal sizes, so unequal steps, and a rate that decays."""

TABLE = [
    Reduction(named("fedprox", mu=0.0), FEDAVG, local=MOMENTUM),
    *(Reduction(named("fedprox", mu=mu), FEDAVG, 1e-14, ONE_STEP) for mu in (0.01, 1.0, 8.0)),
    Reduction(named("moon", mu=0.0), FEDAVG, local=MOMENTUM),
    *(Reduction(named("ditto", lambda_=pull, personal_epochs=3), FEDAVG, local=MOMENTUM) for pull in (0.0, 2.0)),
    Reduction(named("local_finetuning"), FEDAVG, local=MOMENTUM),
    Reduction(named("fedgen", alpha=0.0, beta=0.0, **GENERATOR), FEDAVG, local=MOMENTUM),
    Reduction(named("mimelite", beta=0.0), FEDAVG),
    Reduction(named("fedcm", alpha=1.0), FEDAVG, local={**PLAIN, "weight_decay": 0.01}),
    Reduction(named("fedcm", alpha=1.0), FEDAVG, local={**PLAIN, "weight_decay": 0.01, "clip": 0.5}),
    Reduction(named("fednova"), FEDAVG, 1e-14, EQUAL_STEPS),
    Reduction(named("fednova"), FEDAVG, 1e-14, {**EQUAL_STEPS, "momentum": 0.9}),
    Reduction(named("fedcm", alpha=0.3), named("mimelite", beta=0.7), 1e-14, FULL_STEP),
    Reduction(
        named("fedcm", momentum_norm="nominal"), named("fedcm"), local=EQUAL_STEPS
    ),  # there is none without epochs
    *(
        Reduction(named("mime", dampening=form), named("mimelite", dampening=form), 1e-14, FULL_STEP)
        for form in (True, False)
    ),
    Reduction(named("slowmo", beta=0.0), FEDAVG, 1e-14),
    Reduction(
        named("slowmo", beta=0.7, alpha_s=0.6), named("fedopt", optimizer="sgd", beta1=0.7, server_lr=0.6), 1e-13
    ),
    Reduction(named("fedopt", optimizer="sgd", beta1=0.0, server_lr=1.0), FEDAVG, 1e-14),
    Reduction(named("scaffold_released"), FEDAVG, 1e-12, RATE_ONE),
    Reduction(named("feddyn", alpha=0.0, memory_in_server=False), UNIFORM, local=DECAYING),
    Reduction(named("feddc", alpha=0.2, correction=False), named("feddyn", alpha=0.2), 1e-13, DECAYING),
    Reduction(named("fedssg", gate=False, penalty=False, correction=False), named("feddyn", alpha=0.0)),
    Reduction(named("fedssg", gate=False, beta=0.0, alpha=0.7), UNIFORM, 1e-15, DECAYING),
    Reduction(named("fedssg", gate=False, alpha=0.3), named("feddc", alpha=0.3), 1e-14, ONE_STEP),
    Reduction(named("fedssg", gate=False, alpha=0.3, correction=False), named("feddyn", alpha=0.3), 1e-14, ONE_STEP),
    Reduction(named("fedssg", beta=1.0), named("fedssg", variant="algorithm_1", beta=1.0), 1e-14, DECAYING, EVERYBODY),
    Reduction(named("fedvarp", beta=0.0), UNIFORM, 1e-15, DECAYING),
    *(
        Reduction(named("fedvarp", clusters=4, weighting=rule), named("fedvarp", weighting=rule), 1e-14, DECAYING)
        for rule in ("uniform", "samples")
    ),
    Reduction(named("cfl_generative", size=0), UNIFORM),
    *(Reduction(named("cfl_core_set", size=0, choice=choice), UNIFORM) for choice in ("uniform", "herding")),
    Reduction(named("cfl_regularization", layers="full", B_head=0.0, B_below=0.0), UNIFORM, 1e-14),
    Reduction(
        named("cfl_regularization", layers="full", B_head=0.0, B_below=0.0, mu=0.3),
        named("fedprox", mu=0.3, weighting="uniform"),
        1e-14,
    ),
    Reduction(named("fedacg", lambda_=0.0, beta=0.0), FEDAVG, local=MOMENTUM),
    Reduction(named("fedacg", lambda_=0.0, beta=0.3), named("fedprox", mu=0.3), local=MOMENTUM),
    Reduction(named("fedsam", rho=0.0), FEDAVG, local=MOMENTUM),
    Reduction(named("fedlesam", rho=0.0), FEDAVG, local=MOMENTUM),
    Reduction(named("mofedsam", rho=0.0, alpha=0.3), named("fedcm", alpha=0.3), local=MOMENTUM),
    Reduction(named("mofedsam", alpha=1.0), named("fedsam"), local=MOMENTUM),
    Reduction(named("fedlesam", rho=0.0, base="scaffold", server_lr=0.8), named("scaffold", server_lr=0.8), 1e-14),
    Reduction(named("fedspeed", a=0.3, server_form="participants"), named("fedspeed", a=0.3), 1e-14, PLAIN, EVERYBODY),
    Reduction(named("fedspeed", a=0.3, rho=0.0), FEDSPEED, local=MOMENTUM),
    Reduction(named("fedsmoo", a=0.3, rho=0.0), FEDSPEED, local=MOMENTUM),
    Reduction(named("fedlesam", rho=0.0, base="feddyn", a=0.3, weighting="uniform"), FEDSPEED, local=MOMENTUM),
    Reduction(named("apfl"), FEDAVG),
    Reduction(named("apfl", adaptive="paper", newcomers="initial"), FEDAVG, local=CLIPPED),
    Reduction(named("apfl", mix="after", adaptive="release", serve="own"), FEDAVG, local=CLIPPED),
    Reduction(named("apfl", mix="after"), FEDAVG, 1e-14),
    Reduction(named("pfedme", steps=1, lambda_=20.0, personal_lr=0.05), FEDAVG, 1e-14, ONE_STEP),
    Reduction(named("per_fedavg", inner_lr=0.0, batches="same"), FEDAVG, local=MOMENTUM),
    Reduction(named("per_fedavg", inner_lr=0.0, batches="same", variant="hf"), FEDAVG, 1e-14, CLIPPED),
    *(
        Reduction({**method, **common}, {**FEDAVG, **common}, 1e-11, DECAYING, EVERYBODY)
        for method in STORED
        for common in ({"weighting": weighting, "server_lr": 0.7} for weighting in ("uniform", "samples"))
    ),
]


@functools.cache
def reference(algorithm: str, local: str, cohorts: str, executor: str) -> list[Tensor]:
    """Global models of an algorithm, as JSON, to which several are compared."""
    chosen = {"local": json.loads(local), "engine": {"executor": executor, "workers": 1}}
    return trajectory(json.loads(algorithm), steady(SIZES, 5), vectors(), cohorts=json.loads(cohorts), **chosen)[0]


@pytest.mark.parametrize(
    ("case", "executor"), matrix(TABLE, ["threads", "stacked"]), ids=lambda of: getattr(of, "id", of)
)
def test_it_is(case: Reduction, executor: str) -> None:
    chosen = {"local": case.local, "engine": {"executor": executor, "workers": 1}, "cohorts": case.cohorts}
    ours, _ = trajectory(case.ours, steady(SIZES, 5), vectors(), **chosen)
    theirs = reference(json.dumps(case.theirs), json.dumps(case.local), json.dumps(case.cohorts), executor)
    if case.gap:
        assert largest_gap(ours, theirs) < case.gap
    else:
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
