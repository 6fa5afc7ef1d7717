"""Networks as users write them: each is trained as it is written, or refused in one line before training."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedtide.core.errors import SettingsError
from fedtide.core.randomness import keys64
from fedtide.federation.federation import Federation
from fedtide.training.models._draws import KeyedDraws, key_dropout
from fedtide.training.models._foreign import logits_of
from fedtide.training.models.base import Keyed
from models import zoo, zoo_text
from support import dataset, federation, run_rounds, settings, steady

SIZES, EPOCHS, RATE, ROUNDS, LENGTH = (12, 8, 8), 2, 0.3, 2, 6

REFUSED = {
    "Fourier": r"model\.path = 'models\.zoo:Fourier': parameter w is complex; keep real and imaginary parts",
    "WritesInputs": "the model's forward writes into its inputs",
    "ToList": "depends on values in Python",
    "Unique": "depends on values in Python",
    "NumpyDraw": "draws from a generator of Python or NumPy",
    "Counter": "changes its attribute calls",
    "Reassigned": r"changes its attribute mean, .* as in self\.mean\.copy_",
    "LostMean": "training changes the model's buffer mean, which files of the model leave out",
    "Checkpointed": "the model cannot be traced",
    "Packed": "the model cannot be traced",
}
"""What a network is refused for; all others are trained."""

STATISTICS = ("BatchNorm", "SpectralNorm", "RunningMean")

NETWORKS = [
    name
    for name, made in vars(zoo).items()
    if isinstance(made, type) and issubclass(made, nn.Module) and made.__module__ == zoo.__name__
]

TEXTS = (
    "Encoder",
    "GruText",
    "LstmText",
    "Packed",
    "Functional",
    "bert",
    "Masked",
    "distilbert",
    "gpt2",
    "llama",
    "lora",
)
STACKED = ("Encoder", "LstmText", "Packed", "Functional", "bert")
"""Networks of tokens, and those of them that are tried with both executors; the rest has layers of the same kinds."""


def home(name: str) -> ModuleType:
    return zoo_text if name in TEXTS else zoo


def samples(name: str) -> tuple[Tensor, Tensor]:
    count, draw = sum(SIZES), torch.Generator().manual_seed(5)
    labels = torch.arange(count) % 3
    if name not in TEXTS:
        return 2 * torch.randn(count, zoo.FEATURES, generator=draw, dtype=torch.float64), labels
    words = torch.randint(1, zoo_text.VOCABULARY, (count, LENGTH), generator=draw)
    lengths = torch.randint(1, LENGTH, (count, 1), generator=draw)
    return words * (torch.arange(LENGTH) < lengths), labels


def fed(name: str, executor: str, **values: Any) -> Federation:
    chosen = settings(
        model={"name": "module", "path": f"{home(name).__name__}:{name}", **values},
        local={"epochs": EPOCHS, "batch_size": 100, "lr": RATE, "order": "stored"},
        engine={"executor": executor, "workers": 1},
    )
    text = {"kind": "text", "vocabulary": zoo_text.VOCABULARY} if name in TEXTS else {}
    return federation(chosen, steady(SIZES, ROUNDS), dataset(*samples(name), 3, **text))


def trained_by_a_plain_loop(network: nn.Module, name: str) -> dict[str, Tensor]:
    """Federated averaging with full batches: a copy of the module and an optimizer for every client; dropout is keyed."""
    inputs, labels = samples(name)
    shards = list(zip(inputs.split(SIZES), labels.split(SIZES), strict=True))
    for t in range(ROUNDS):
        states = []
        first = torch.tensor(keys64(0, "batches.samples", (t,), range(len(SIZES))))
        for (x, y), key in zip(shards, first, strict=True):
            client = copy.deepcopy(network).train()
            key_dropout(client)
            optimizer = torch.optim.SGD([value for value in client.parameters() if value.requires_grad], RATE)
            for step in range(EPOCHS):
                keyed = key + step * 2862933555777941757
                for part in client.modules():
                    if isinstance(part, Keyed):
                        part.key = keyed
                    if {value.requires_grad for value in part.parameters()} == {False}:
                        part.eval()  # as docs/extend_data.md says
                optimizer.zero_grad()
                with KeyedDraws(keyed):
                    loss = F.cross_entropy(logits_of(client(x.clone())), y)
                loss.backward()
                optimizer.step()
            states.append(client.state_dict())
        mean = {
            name: sum(state[name] * (size / sum(SIZES)) for state, size in zip(states, SIZES, strict=True))
            for name, value in states[0].items()
            if value.is_floating_point()
        }
        network.load_state_dict({**states[0], **mean})
    return network.state_dict()


def pairs() -> Iterator[Any]:
    """Every network with every executor; by default half of those that are trained, in turn: tracing takes long."""
    for number, name in enumerate(NETWORKS):
        for place, executor in enumerate(("threads", "stacked")):
            one_of_four = name not in REFUSED and name not in STATISTICS and (number + 2 * place) % 4
            yield pytest.param(name, executor, marks=[pytest.mark.slow] * bool(one_of_four))
    for name in TEXTS:
        for executor in ("threads", "stacked")[: 1 + (name in STACKED)]:
            yield pytest.param(name, executor, marks=pytest.mark.slow)


@pytest.mark.parametrize(("name", "executor"), pairs())
def test_a_network_is_trained_as_it_is_written(name: str, executor: str) -> None:
    """What is recorded is what the module computes with the weights of ``model.pt``."""
    if name in REFUSED:
        with pytest.raises(SettingsError, match=REFUSED[name] if executor == "threads" else None) as refusal:
            fed(name, executor)
        assert "\n" not in str(refusal.value)
        return
    if executor == "stacked" and name in STATISTICS:
        with pytest.raises(SettingsError, match="statistics; use 'threads'"):
            fed(name, executor)
        return
    run = fed(name, executor)
    network = getattr(home(name), name)().double()
    assert not network.load_state_dict(run.parts.named(run.parts.w0, run.parts.b0)).missing_keys
    state, records = run_rounds(run)
    stored = run.parts.named(state.w, state.b)
    for key, value in trained_by_a_plain_loop(network, name).items():
        if value.is_floating_point():
            torch.testing.assert_close(stored[key], value, rtol=0, atol=1e-9, check_dtype=False)
    network.load_state_dict(stored)
    inputs, labels = samples(name)
    with torch.no_grad():
        logits = logits_of(network.eval()(inputs))
    row = records[-1].row
    assert row["test_loss"] == pytest.approx(float(F.cross_entropy(logits, labels)), abs=1e-9)
    assert row["test_accuracy"] == pytest.approx(float((logits.argmax(1) == labels).double().mean()))


@pytest.mark.slow
def test_adapters_and_the_last_layer_alone_are_sent_and_counted() -> None:
    run, module = fed("lora", "threads"), zoo_text.lora()
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    assert {run.parts.network.stored_name(slot.name) for slot in run.parts.layout.parameters} == trained.keys()
    size = sum(value.numel() for value in trained.values())
    assert run.parts.payload().down == run.parts.payload().up == 4 * size
    assert 10 * size < sum(value.numel() for value in module.parameters())


@pytest.mark.parametrize("name", ["Tied", "TiedHead"])
def test_tied_parameters_have_one_value_under_both_names_and_are_loaded_as_such(name: str, tmp_path: Path) -> None:
    run = fed(name, "threads")
    state, _ = run_rounds(run)
    stored = run.parts.named(state.w, state.b)
    first, second = {"Tied": ("a.weight", "b.weight"), "TiedHead": ("a.weight", "fc.weight")}[name]
    assert torch.equal(stored[first], stored[second])
    torch.save(stored, tmp_path / "model.pt")
    again = fed(name, "threads", weights=str(tmp_path / "model.pt"))
    torch.testing.assert_close(again.parts.w0, state.w, rtol=1e-6, atol=1e-6)  # modules are made in single precision
