"""FedGen: identities with FedAvg, sizes, and both objectives against plain modules."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedtide.core.randomness import torch_generator
from fedtide.methods.algorithms.fedgen import Generator, imagine
from fedtide.training.engine.local import TermBatch
from fedtide.training.models.base import Outputs
from support import closest, federation, run_rounds, settings, steady, trajectory, vectors, watch

LOCAL = {"steps": 4, "batch_size": 3, "lr": 0.1}
SMALL = {"name": "fedgen", "noise": 3, "hidden": 6, "generator_steps": 4, "generator_batch": 5, "generator_lr": 0.01}
WORLD = steady((6, 9, 3), 3)


def run(**values: Any) -> list[Tensor]:
    return trajectory({**SMALL, **values}, WORLD, vectors(), local=LOCAL)[0]


@pytest.mark.slow
def test_the_first_round_is_fedavg() -> None:
    plain, _ = trajectory("fedavg", WORLD, vectors(), local=LOCAL)
    for values in ({"alpha": 0.0}, {"beta": 0.0}):
        found = run(**values)
        assert torch.equal(found[0], plain[0])
        assert closest(found[1], plain[1]) > 1e-4


def modules(generator: Generator, g: Tensor, statistics: Tensor) -> nn.Sequential:
    """The generator as a plain network."""
    network = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 5)).double()
    torch.nn.utils.vector_to_parameters(g.clone(), network.parameters())
    norm: Any = network[1]
    norm.running_mean.copy_(statistics[:6])
    norm.running_var.copy_(statistics[6:])
    return network


def drawn() -> tuple[Generator, Tensor, Tensor]:
    made = Generator(3, 6, 3, 5)
    g, statistics = made.start(torch_generator(1, "test"))
    rng = torch.Generator().manual_seed(0)
    g += 0.3 * torch.randn(g.shape, generator=rng, dtype=torch.float64)
    return made, g, statistics + torch.rand(12, generator=rng, dtype=torch.float64)


def test_a_folded_generator_is_the_generator_in_evaluation_mode() -> None:
    made, g, statistics = drawn()
    eps, labels = torch.rand(7, 3, dtype=torch.float64), torch.arange(7) % 3
    network = modules(made, g, statistics).eval()
    wanted = network(torch.cat([eps, functional.one_hot(labels, 3).double()], 1))
    assert closest(imagine(made.folded(g, statistics), eps, labels), wanted.detach()) < 1e-14


def test_what_the_clients_add() -> None:
    """Against torch's own losses, on the samples that the key stands for."""
    fed = federation(settings(algorithm=SMALL, local=LOCAL), steady((7, 9, 5), 1), vectors())
    algorithm: Any = fed.parts.algorithm
    made, g, statistics = drawn()
    tensors = {**made.folded(g, statistics), "labels": torch.tensor([0.5, 0.5, 1.0], dtype=torch.float64)}
    head = nn.Linear(5, 3).double()
    logits = torch.randn(40, 3, dtype=torch.float64)
    labels = torch.arange(40) % 3
    seen: list[Tensor] = []

    def spy(features: Tensor) -> Tensor:
        seen.append(head(features))
        return seen[-1]

    batch = TermBatch(Outputs(logits, logits), labels, {}, spy, torch.tensor(5), tensors)
    aligned = algorithm._align(batch)
    wanted = functional.kl_div(logits.log_softmax(1), seen[0].softmax(1), reduction="none").sum(1)
    assert closest(aligned, wanted.detach()) < 1e-14
    assert not aligned.requires_grad  # the target is fixed, and f is not part of this test's graph
    taught = algorithm._teach(batch)
    possible = torch.stack(
        [functional.cross_entropy(seen[1], torch.full((40,), label), reduction="none") for label in (0, 2)]
    )
    gaps = (possible - taught).detach().abs()
    assert gaps.min(0).values.max() < 1e-14  # labels 0 and 2 are equally likely, 1 is not among those seen
    assert 8 < int((gaps.argmin(0) == 0).sum()) < 32


def test_the_server_trains_its_generator_as_plain_modules_would() -> None:
    fed = federation(settings(algorithm=SMALL, local=LOCAL), WORLD, vectors())
    algorithm: Any = fed.parts.algorithm
    start = algorithm.extra()
    watched = watch(fed)
    run_rounds(fed, rounds=1)
    r, _ = watched[0]
    network = modules(algorithm._generator, start["generator"], start["statistics"]).train()
    adam = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=0.01)
    rng = torch_generator(0, "fedgen.server", 0)
    eps = torch.rand(4, 5, 3, generator=rng, dtype=torch.float64)
    picks = torch.randint(3, (4, 5), generator=rng)
    slots = {slot.name: slot.view(r.W) for slot in r.problem.layout.parameters}
    counts = 1 + r.label_counts * 12 / r.n
    for noise, labels in zip(eps, picks, strict=True):
        features = network(torch.cat([noise, functional.one_hot(labels, 3).double()], 1))
        loss = torch.zeros((), dtype=torch.float64)
        for k in range(3):
            logits = features @ slots["head.weight"][k].T + slots["head.bias"][k]
            shares = counts[k, labels] / counts[:, labels].sum(0)
            loss = loss + (shares * functional.cross_entropy(logits, labels, reduction="none")).mean()
        products = [
            (features[a] - features[b]).abs().mean() * (noise[a] - noise[b]).square().mean()
            for a in range(5)
            for b in range(5)
        ]
        loss = loss + torch.exp(-torch.stack(products).mean())
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    found = r.extra["generator"]
    assert closest(found, torch.nn.utils.parameters_to_vector(network.parameters()).detach()) < 1e-12
    norm: Any = network[1]
    assert closest(r.extra["statistics"], torch.cat([norm.running_mean, norm.running_var])) < 1e-12
    assert float(r.extra["taken"]) == 4
    for kept, name in (("first", "exp_avg"), ("second", "exp_avg_sq")):  # the next round continues from them
        moments = [adam.state[parameter][name] for parameter in network.parameters()]
        assert closest(r.extra[kept], torch.nn.utils.parameters_to_vector(moments)) < 1e-12


def test_the_generator_travels_down_and_counts_travel_up() -> None:
    fed = federation(settings(algorithm=SMALL, local=LOCAL), WORLD, vectors())
    model = fed.parts.layout.size
    generator = (3 + 3) * 6 + 3 * 6 + (6 + 1) * 5
    assert (fed.parts.payload().down, fed.parts.payload().up) == (4 * (model + generator), 4 * (model + 3))
    assert fed.parts.payload().models == pytest.approx(1 + (generator + 3) / (2 * model))


def test_labels_of_the_whole_federation_are_taught_in_every_cohort() -> None:
    fed = federation(settings(algorithm=SMALL, local=LOCAL), steady((7, 9, 5), 1), vectors())
    extra = fed.parts.algorithm.extra() | {"taken": torch.ones(())}
    present = torch.tensor([[4.0, 0, 0], [0, 0, 9]])
    services = SimpleNamespace(population_counts=lambda: present)
    r: Any = SimpleNamespace(extra=extra, w=fed.parts.w0, t=2, services=services, label_counts=present[:1])
    assert [term.tensors["labels"].tolist() for term in fed.parts.algorithm.terms(r)] == [[0.5, 0.5, 1.0]] * 2
