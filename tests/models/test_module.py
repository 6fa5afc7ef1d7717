"""Networks from elsewhere: how they are cut, what is refused, weights from files, constant layers."""

import copy
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import own_nets
from fedtide.core.errors import SettingsError
from fedtide.federation.federation import Federation
from fedtide.training.engine.flat import Layout, statistics
from fedtide.training.engine.passes.models import recompute_statistics
from fedtide.training.engine.probe import mark_constants
from fedtide.training.models.base import KeyedDropout, Network
from support import assert_close, dataset, deal, federation, images, light, run_rounds, settings, steady

Build = Callable[..., Network]
GRAY = (1, 8, 8)
LOCAL = {"steps": 2, "batch_size": 2, "lr": 0.05, "momentum": 0.5}


def own(net: str, **values: Any) -> dict[str, Any]:
    """Settings of a network in ``own_nets``."""
    return {"name": "module", "path": f"own_nets:{net}", **values}


def fed(model: dict[str, Any], algorithm: str = "fedavg", rounds: int = 2, **values: Any) -> Federation:
    """Two clients with a few gray images, in batches of one size: every shape is traced."""
    chosen = settings(**{"model": model, "algorithm": light(algorithm), "local": LOCAL, **values})
    return federation(chosen, steady((6, 5), rounds), images())


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, *GRAY, generator=torch.Generator().manual_seed(1))


def names(network: nn.Module) -> list[str]:
    return [slot.name for slot in Layout(network).parameters]


@pytest.mark.parametrize("path", ["Plain", "Scaled"])
def test_the_parts_are_the_module(build: Build, x: Tensor, path: str) -> None:
    """Cut in two or run as a whole: logits, features and names are those of the module, with a head for three classes."""
    network = build("module", GRAY, 3, path=f"own_nets:{path}").eval()
    assert isinstance(network.head, nn.Linear)
    assert network.head.out_features == 3
    features = network.features(x)
    assert features.shape == (3, 4)
    outputs = network.outputs(x)
    assert torch.equal(outputs.features, features)
    assert torch.equal(outputs.logits, network(x))
    torch.testing.assert_close(network.head(features), network(x))
    assert network.has_linear_head
    assert [name for name in names(network) if name.startswith("head.")] == names(network)[-2:]
    theirs = own_nets.Plain()
    theirs.classifier = nn.Linear(4, 3)
    stored = {network.stored_name(name): value for name, value in network.state_dict().items()}
    theirs.load_state_dict(stored)
    torch.testing.assert_close(theirs.eval()(x), network(x))


@pytest.mark.slow
@pytest.mark.parametrize(("held", "executor"), [("dict", "threads"), ("object", "stacked")])
def test_logits_may_be_in_a_mapping_or_an_object(held: str, executor: str) -> None:
    norm, engine = {"norm": "GroupNorm", "num_channels": 4}, {"executor": executor, "workers": 1}
    plain, holder = own("Plain", arguments=norm), own("Holder", arguments={"held": held, **norm})
    states = [run_rounds(fed(model, rounds=1, engine=engine))[0] for model in (plain, holder)]
    assert torch.equal(states[0].w, states[1].w)


@pytest.mark.parametrize(("held", "got"), [("scores", "dict with the keys scores"), ("tuple", "tuple")])
def test_other_outputs_are_one_line(build: Build, held: str, got: str) -> None:
    line = rf"^model\.path = 'own_nets:Holder': forward should return logits, or a mapping or an object with logits, got {got}$"
    with pytest.raises(SettingsError, match=line):
        build("module", GRAY, 3, path="own_nets:Holder", arguments={"held": held})


def test_a_last_layer_with_something_behind_it_is_the_head_of_a_whole_module(build: Build, x: Tensor) -> None:
    network = build("module", GRAY, 3, path="own_nets:squashed").eval()
    outputs = network.outputs(x)
    torch.testing.assert_close(outputs.logits, network.head(outputs.features).log_softmax(-1))
    assert not network.has_linear_head
    with pytest.raises(SettingsError, match=r"algorithm creff requires a single final nn\.Linear; model"):
        fed(own("squashed"), "creff")
    state, _ = run_rounds(fed(own("squashed"), "moon"))
    assert bool(state.w.isfinite().all())


@pytest.mark.parametrize("algorithm", ["moon", "creff", "balancefl", "cfl_regularization", "fedgen"])
def test_algorithms_that_look_at_the_last_layer(algorithm: str) -> None:
    state, records = run_rounds(fed(own("Plain", arguments={"norm": "GroupNorm", "num_channels": 4}), algorithm))
    assert bool(state.w.isfinite().all())
    assert len(records) == 2


@pytest.mark.slow
def test_attention_norms_dropout_and_integer_buffers_are_the_same_in_every_executor() -> None:
    engines = [
        {"executor": name, "workers": workers} for name, workers in (("threads", 1), ("stacked", 1), ("threads", 2))
    ]
    threads, stacked, again = (run_rounds(fed(own("Attentive"), engine=engine))[0] for engine in engines)
    assert_close(threads, stacked, 1e-10)
    assert torch.equal(threads.w, again.w)


def test_dropout_layers_of_a_network_have_masks_of_their_own(build: Build) -> None:
    network = build("module", GRAY, 3, path="own_nets:Attentive").train()
    (drop,) = {part for part in network.modules() if isinstance(part, KeyedDropout)}  # one layer, used twice
    assert network.body.drop is drop
    layers = nn.Sequential(nn.Dropout(0.5), nn.Dropout2d(0.5))
    from fedtide.training.models._foreign import key_dropout

    key_dropout(layers)
    ones = torch.ones(2, 3, 20, 20)
    first, second = layers[0](ones), layers[1](ones)
    assert abs(float(first.mean()) - 1) < 0.1
    assert set(second.flatten(2).mean(2).flatten().tolist()) <= {0.0, 2.0}  # whole channels
    other = copy.deepcopy(layers[0])
    other.salt += 1
    assert not torch.equal(other(ones), first)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (
            own("Plain", path="no_such_module:Net"),
            r"model\.path = 'no_such_module:Net': no module 'no_such_module' in ",
        ),
        (own("Plian"), r"own_nets\.py has no Plian; did you mean 'Plain'\?"),
        (own("Plain", path="own_nets"), r"model\.path = 'own_nets': should be MODULE:NAME"),
        (own("functional"), r"should be a class or function that makes a torch\.nn\.Module, got module"),
        (own("Plain", arguments={"nrom": 1}), r"own_nets\.py:\d+: in __init__: TypeError: .*'nrom'"),
        (own("Plain", path="builtins:dict"), r"no module|makes a torch\.nn\.Module, got the class dict"),
        (
            own("Plain", head="clasifier"),
            r"model\.head = 'clasifier': the module has no such layer; did you mean 'classifier'",
        ),
        (own("Plain", head="body.2"), r"model\.head = 'body\.2': this layer has no parameters"),
        (own("Plain", head="body.0"), r"own_nets\.py:\d+: in forward: RuntimeError"),
        (own("Pyramid"), r"a network with logits \[2, 3\] for 2 samples, got \[2, 3, 6, 6\]"),
        (
            own("Odd", head="classifier", arguments={"what": "weight"}),
            r"'classifier': forward does not call it",
        ),
        (own("Plain", freeze=["boddy"]), r"model\.freeze: 'boddy' matches no parameter before the head"),
        (own("Plain", weights="no.pt"), r"model\.weights = 'no\.pt': no such file"),
        (
            own("Plain", arguments={"norm": "BatchNorm2d", "track_running_stats": False}),
            r"BatchNorm without running statistics",
        ),
        (
            own("Plain", arguments={"norm": "BatchNorm2d", "momentum": None}),
            r"num_batches_tracked, which holds integers.*momentum",
        ),
        (
            own("Odd", arguments={"what": "draw"}),
            r"uses unseeded randomness in training.*: its forward; .* nn\.Dropout layers",
        ),
        (own("Odd", arguments={"what": "drop"}), r"uses unseeded randomness in training.*: its layer noise; "),
        (own("Odd", arguments={"what": "count"}), r"training writes the model's buffer calls, which holds integers"),
        (own("Odd", arguments={"what": "branch"}), r"the model cannot be traced .*should neither depend on values"),
        (own("Odd", arguments={"what": "tuple"}), r"the model fails in training mode"),
        (
            {"name": "torchvision", "architecture": "resnet19"},
            r"model\.architecture = 'resnet19': unknown; did you mean 'resnet1",
        ),
        ({"name": "torchvision", "architecture": "resnet18", "pretrained": "V9"}, r"resnet18 has no weights 'V9'"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(model: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem) as refusal:
        fed(model)
    assert "\n" not in str(refusal.value)


class TestWeights:
    @pytest.fixture
    def saved(self, tmp_path: Path) -> Path:
        torch.manual_seed(5)
        torch.save(own_nets.Plain().state_dict(), tmp_path / "plain.pt")
        return tmp_path / "plain.pt"

    def test_all_but_a_head_that_does_not_fit(self, build: Build, saved: Path) -> None:
        weights = torch.load(saved, weights_only=True)
        ten = build("module", GRAY, 10, path="own_nets:Plain", weights=str(saved))
        three = build("module", GRAY, 3, path="own_nets:Plain", weights=str(saved))
        for network in (ten, three):
            own = {network.stored_name(name): value for name, value in network.state_dict().items()}
            for name, value in weights.items():
                assert torch.equal(own[name], value) or (network is three and name.startswith("classifier."))

    def test_the_final_model_of_a_run_is_such_a_file(self, build: Build, tmp_path: Path) -> None:
        trained = fed(own("Plain"))
        state, _ = run_rounds(trained)
        torch.save(trained.parts.named(state.w, state.b), tmp_path / "model.pt")
        again = fed(own("Plain", weights=str(tmp_path / "model.pt")))
        torch.testing.assert_close(again.parts.w0, state.w)
        torch.testing.assert_close(again.parts.b0, state.b)

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (lambda w: w.pop("body.0.bias"), r"plain\.pt': .*Missing key.*body\.0\.bias"),
            (lambda w: w.update(epoch=3), r"plain\.pt': should hold a state_dict \(tensors by name\)"),
        ],
    )
    def test_what_does_not_fit_is_named(self, build: Build, saved: Path, change: Any, problem: str) -> None:
        weights = dict(torch.load(saved, weights_only=True))
        change(weights)
        torch.save(weights, saved)
        with pytest.raises(SettingsError, match=problem):
            build("module", GRAY, 3, path="own_nets:Plain", weights=str(saved))

    def test_a_file_that_would_run_code_is_not_read(self, build: Build, saved: Path) -> None:
        torch.save(own_nets.Plain(), saved)
        with pytest.raises(SettingsError, match=r"plain\.pt' cannot be read"):
            build("module", GRAY, 3, path="own_nets:Plain", weights=str(saved))

    def test_safetensors_files_are_read_where_the_package_is_there(self, build: Build, saved: Path) -> None:
        file = saved.with_suffix(".safetensors")
        if importlib.util.find_spec("safetensors") is None:
            file.touch()
            with pytest.raises(
                SettingsError, match=r"plain\.safetensors': reading it requires the package safetensors"
            ):
                build("module", GRAY, 10, path="own_nets:Plain", weights=str(file))
            return
        from safetensors.torch import save_file

        save_file(torch.load(saved, weights_only=True), file)
        first, second = (
            build("module", GRAY, 10, path="own_nets:Plain", weights=str(path)).state_dict() for path in (saved, file)
        )
        assert all(torch.equal(value, second[name]) for name, value in first.items())

    def test_published_weights_come_from_the_cache_alone(
        self, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import torchvision

        monkeypatch.setenv("TORCH_HOME", str(tmp_path))
        settings = {"architecture": "squeezenet1_1", "pretrained": "IMAGENET1K_V1"}
        with pytest.raises(
            SettingsError, match=r"checkpoints/squeezenet1_1-\w+\.pth is missing.* download it from https://"
        ):
            build("torchvision", (3, 32, 32), 3, **settings)
        folder = tmp_path / "hub" / "checkpoints"
        folder.mkdir(parents=True)
        theirs = torchvision.models.squeezenet1_1().state_dict()
        torch.save(theirs, folder / "squeezenet1_1-b8a52dc0.pth")
        network = build("torchvision", (3, 32, 32), 3, **settings)
        assert torch.equal(network.state_dict()["body.features.0.weight"], theirs["features.0.weight"])
        assert network.head.out_channels == 3


class Buffers(Network):
    """A constant and three statistics; training writes one with the values it has, one unnoticed by autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.norm = nn.Linear(64, 3), nn.BatchNorm1d(64)
        for name in ("table", "same", "data"):
            self.register_buffer(name, torch.ones(64))

    def features(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.same.mul_(1.0)
            self.data.data.mul_(0.5)
        return self.norm(inputs.flatten(1)) * self.table + self.same * self.data


@pytest.mark.parametrize(("device", "found"), [("cpu", {"same", "data"}), ("meta", {"same"})])
def test_statistics_are_the_buffers_that_training_writes(device: str, found: set[str]) -> None:
    network = Buffers().to(device)
    mark_constants(network, images())
    assert statistics(network).keys() == {"norm.running_mean", "norm.running_var", *found}


@pytest.mark.parametrize(("batch", "sent"), [(False, 0), (True, 8)])
def test_buffers_that_training_does_not_change_are_neither_sent_nor_taken_for_statistics(
    batch: bool, sent: int
) -> None:
    norm = {"norm": "BatchNorm2d"} if batch else {"norm": "GroupNorm", "num_channels": 4}
    model = own("Masked", arguments=norm)
    parts = fed(model).parts
    assert parts.payload().down == 4 * (parts.layout.size + sent)
    assert "mask" in (stored := parts.named(parts.w0, parts.b0))
    assert "scale" not in stored
    if not batch:
        state, _ = run_rounds(fed(model, "ditto"))
        assert bool(state.w.isfinite().all())


class TestFreeze:
    def test_only_the_rest_is_trained_and_sent(self) -> None:
        whole, part = fed(own("Plain"), "scaffold"), fed(own("Plain", freeze=["body.0"]), "scaffold")
        assert whole.parts.layout.size - part.parts.layout.size == 4 * 9 + 4
        state, _ = run_rounds(part)
        assert state.memory["c_k"].shape == (2, part.parts.layout.size)
        assert part.parts.payload().down < whole.parts.payload().down
        before, after = (part.parts.named(w, state.b) for w in (part.parts.w0, state.w))
        changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
        assert {name.rpartition(".")[0] for name in changed} == {"body.1", "classifier"}

    @pytest.mark.parametrize("cached", [True, False])
    @pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "moon", "cfl_regularization"])
    def test_a_frozen_body_is_a_head_on_fixed_features(
        self, algorithm: str, cached: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whether the features are computed once or with every step."""
        if not cached:
            monkeypatch.setattr("fedtide.federation.assembly.parts.on_fixed_features", lambda task, *_: task)
        frozen = fed(own("Plain", freeze=["*"]), algorithm, rounds=3)
        assert (frozen.parts.task.network is not frozen.parts.network) == cached
        assert names(frozen.parts.network) == ["head.weight", "head.bias"]
        assert frozen.parts.layout.buffer_size == 0  # constant statistics are not sent either
        data, body = images(), copy.deepcopy(frozen.parts.network).double().eval()
        with torch.no_grad():
            features = body.features(data.train_inputs)
        chosen = settings(model="softmax_regression", algorithm=light(algorithm), local=LOCAL)
        head = federation(chosen, steady((6, 5), 3), dataset(features, data.train_labels, 3), start=frozen.parts.w0)
        assert_close(run_rounds(frozen)[0], run_rounds(head)[0], 1e-10)

    def test_statistics_of_constant_layers_are_not_recomputed(self) -> None:
        parts = fed(own("Plain", freeze=["body.1"]), engine={"workers": 1}).parts
        recompute_statistics(parts.workers, parts.w0.expand(2, -1), torch.zeros(2, 0), deal((4, 4)), 2)
        (module,) = parts.workers.map(lambda worker, _: worker.frozen("statistics"), [0])
        assert not module.network.get_buffer("body.body.1.running_mean").any()

    def test_constant_layers_stay_in_evaluation_mode(self, build: Build, x: Tensor) -> None:
        network = build("module", GRAY, 3, path="own_nets:Attentive", freeze=("*",)).train()
        assert torch.equal(network.features(x), network.eval().features(x))
        assert network.head.training is False
        assert network.train().head.training

    @pytest.mark.slow
    def test_traces_of_networks_with_other_constants_are_not_shared(self) -> None:
        model = own("Plain", freeze=["body.0"], arguments={"norm": "GroupNorm", "num_channels": 4})
        losses = [run_rounds(fed(model, seed=seed, world_seed=0))[1][0].row["train_loss"] for seed in (0, 1, 0)]
        assert losses[0] == losses[2] != losses[1]


def test_of_a_lightning_module_forward_is_used() -> None:
    run = fed(own("Lit"))
    state, _ = run_rounds(run)
    assert float(functional.mse_loss(state.w, run.parts.w0)) > 0
