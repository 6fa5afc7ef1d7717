"""``params.yaml`` as typed, immutable settings.

:class:`Experiment` is the whole file; :class:`RunSettings` is what one run depends on. An experiment holds the settings of
many algorithms and initialisers under labels; :mod:`fedtide.params` resolves them into runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    SerializeAsAny,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from fedtide import plugins
from fedtide.costs.settings import CostSettings
from fedtide.data.base import PLACES
from fedtide.errors import SettingsError, one_line
from fedtide.plugins import PluginSettings, SettingsModel
from fedtide.tuning.settings import TuneSettings


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without definitions of its own: it becomes part of a larger one, whose root its references would mean."""
    definitions = {f"#/$defs/{name}": part for name, part in schema.pop("$defs", {}).items()}

    def inline(part: Any) -> Any:
        if isinstance(part, list):
            return [inline(item) for item in part]
        if not isinstance(part, dict):
            return part
        if part.get("$ref") in definitions:
            return inline(definitions[part["$ref"]])
        return {key: inline(value) for key, value in part.items() if key != "discriminator"}

    return inline(schema)  # type: ignore[no-any-return]


class _Choice:
    """Validates ``{name: ..., ...}`` (or just a name) with the settings class of the plug-in it names."""

    def __init__(self, kind: str, default: str) -> None:
        self.kind, self.default = kind, default

    def __call__(self, value: Any) -> Any:
        if isinstance(value, PluginSettings):
            return value
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping):
            raise SettingsError(f"should be a name or a mapping with `name`, got {value!r}")
        name = value.get("name", self.default)
        if not isinstance(name, str):
            raise SettingsError(f"name should be a word, got {name!r}")
        cls = plugins.load(self.kind, name)
        return cls.Settings.model_validate_json(json.dumps({**value, "name": name}), strict=True)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        options = []
        for name in plugins.names(self.kind):
            schema = _inlined(plugins.load(self.kind, name).Settings.model_json_schema())
            schema["properties"]["name"] = {"const": name}
            options.append(schema)
        return {"anyOf": [{"enum": plugins.names(self.kind)}, *options]}


def _choice(kind: str, default: str) -> Any:
    choice = _Choice(kind, default)
    return BeforeValidator(choice), choice


AlgorithmChoice = Annotated[SerializeAsAny[PluginSettings], *_choice("algorithms", "fedavg")]
DataChoice = Annotated[SerializeAsAny[PluginSettings], *_choice("data", "digits")]
ExchangeChoice = Annotated[SerializeAsAny[PluginSettings], *_choice("exchange", "end")]
InitialiserChoice = Annotated[SerializeAsAny[PluginSettings], *_choice("initialisation", "previous")]
ModelChoice = Annotated[SerializeAsAny[PluginSettings], *_choice("models", "mlp")]
ObjectiveChoice = Annotated[SerializeAsAny[PluginSettings], *_choice("objectives", "cross_entropy")]
ParticipationChoice = Annotated[SerializeAsAny[PluginSettings], *_choice("participation", "all")]
PartitionChoice = Annotated[SerializeAsAny[PluginSettings], *_choice("partitions", "dirichlet_equal")]
WeightingChoice = Annotated[SerializeAsAny[PluginSettings], *_choice("weighting", "samples")]
SelectionChoice = Annotated[SerializeAsAny[PluginSettings], *_choice("selection", "dynacomm")]
ScenarioChoice = Annotated[SerializeAsAny[PluginSettings], *_choice("scenarios", "static")]


def plain_name(value: str) -> str:
    """The value, if it can name a file or a folder everywhere.

    Raises:
        SettingsError: it cannot.
    """
    if not re.fullmatch(r"\w[\w.+-]*", value):
        raise SettingsError(f"{value!r} should consist of letters, digits, _ . + -: folders are named after it")
    return value


Label = Annotated[str, AfterValidator(lambda value: value and plain_name(value))]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class LongTail(SettingsModel):
    """Thinning of the training classes before anything else sees them."""

    imbalance: float | None = Field(
        None,
        gt=0,
        le=1,
        description="rarest class over most frequent class, 1: equally frequent; null keeps everything",
    )
    mode: Literal["clip", "feasible"] = Field("clip", description="clip: at most what exists; feasible: exact profile")
    order: tuple[int, ...] | None = Field(None, description="classes from most to least frequent; default 0, 1, 2, ...")


class LocalSettings(SettingsModel):
    """Training on a client."""

    amount: int = Field(5, ge=1, description="how much work a client does in a round, in `unit`")
    unit: Literal["epochs", "steps", "capped_steps", "mean_epochs"] = Field(
        "epochs",
        description="epochs over own data; steps (exactly); capped_steps (at most one epoch); mean_epochs (every client "
        "takes the steps of a client of mean size)",
    )
    batch_size: int = Field(32, ge=1, description="samples per local step; the last batch of a pass may be short")
    order: Literal["shuffled", "stored", "class_balanced"] = Field(
        "shuffled",
        description="samples of each pass: all in a new order; all as stored; as many draws with replacement in which the "
        "client's classes are equally likely",
    )
    straddle: bool = Field(False, description="a batch may straddle two passes, so that none is short")
    lr: float = plugins.Tunable(0.1, low=1e-3, high=1.0, log=True, gt=0, description="learning rate at the start")
    schedule: Literal["constant", "exponential", "cosine", "polynomial"] = Field(
        "constant", description="learning rate over rounds"
    )
    decay: float = Field(0.998, gt=0, le=1, description="factor per round of the exponential schedule")
    floor: float = Field(0.0, ge=0, le=1, description="last rate of cosine and polynomial as a share of lr")
    power: float = Field(0.9, gt=0, description="exponent of the polynomial schedule")
    schedule_rounds: int | None = Field(
        None, ge=1, description="rounds over which cosine and polynomial fall to the floor; null: all there are"
    )
    restart: bool = Field(True, description="the schedule starts again with every session")
    momentum: float = Field(0.0, ge=0, lt=1, description="heavy-ball momentum of the local optimiser")
    nesterov: bool = Field(False, description="look ahead along the momentum")
    momentum_scope: Literal["round", "client"] = Field(
        "round", description="round: starts at zero every round; client: kept until the client's next round"
    )
    weight_decay: float = Field(0.0, ge=0, description="coefficient of the parameters added to the gradient")
    clip: float | None = Field(None, gt=0, description="largest gradient norm per client; null for none")
    clip_scope: Literal["total", "total_with_decay", "loss"] = Field(
        "total",
        description="what is clipped: everything but decay; everything; the loss gradient alone",
    )
    flip: float = Field(0.0, ge=0, le=1, description="probability of a horizontal flip of a training image")
    crop: int = Field(0, ge=0, description="padding in pixels of the random crop of a training image")
    crop_probability: float = Field(1.0, ge=0, le=1, description="probability of the random crop")
    crop_padding: Literal["zeros", "reflect"] = Field("zeros", description="what the crop pads with")

    @model_validator(mode="after")
    def _consistent(self) -> LocalSettings:
        if self.nesterov and self.momentum == 0:
            raise SettingsError("local.nesterov = true needs local.momentum > 0")
        return self


class EvaluationSettings(SettingsModel):
    """Which models are tested, on what, how often."""

    every: int = Field(1, ge=1, description="evaluate after every so many rounds (and always after the last)")
    splits: tuple[Literal["test", "validation"], ...] = Field(
        ("test",), min_length=1, description="data to evaluate on"
    )
    batch_size: int = Field(2000, ge=1, description="samples per forward pass")
    models: tuple[Literal["cloud", "participants", "all", "ensemble"], ...] | None = Field(
        None,
        description="cloud: the model sent next; participants: mean of this round's local models; all: mean of every "
        "client's latest model; ensemble: the local models, logits added up; default: what the algorithm "
        "distinguishes",
    )
    reported: Literal["cloud", "participants", "all", "ensemble"] = Field(
        "cloud", description="the model in test_accuracy"
    )
    neurons: int = Field(
        0,
        ge=0,
        description="test samples of each class on which the concentration of the neurons' activity is measured; 0: it is not",
    )
    boundary_losses: bool = Field(
        True,
        description="record the training loss of four models at every session's start: its first one, the previous "
        "session's last, the mean of the stored ones, the run's first",
    )
    consistency: bool = Field(
        False,
        description="record in every round the training loss of the model sent: on each participant's data and on everybody's",
    )


class FederationSettings(SettingsModel):
    """State of server and clients."""

    memory: Literal["device", "host", "disk"] = Field(
        "device", description="where the clients' memories are kept; disk: a mapped file in the run's folder"
    )
    at_session: Literal["reset", "keep"] = Field(
        "reset",
        description="algorithm memories when a new session begins: cleared, or kept by those who stay; who leaves inside a "
        "session loses its own",
    )
    explode: float = Field(1e6, gt=0, description="training loss above which a run counts as diverged")


class EngineSettings(SettingsModel):
    """How local training is executed: ``workers``, ``allocator`` change no result, the others at most its rounding."""

    executor: Literal["auto", "threads", "stacked"] = Field("auto", description="auto: by model family and device")
    workers: int = Field(0, ge=0, description="worker threads; 0 for all cores")
    chunk: int = Field(0, ge=0, description="clients advanced together by `stacked`; 0 to plan it from memory")
    layout: Literal["auto", "contiguous", "channels_last"] = Field(
        "auto", description="order of image tensors in memory; auto: what the model is fastest with on this device"
    )
    allocator: Literal["keep", "default"] = Field("keep", description="keep: freed memory stays with the process")
    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = Field("auto", description="Lightning's accelerator")
    devices: int = Field(1, ge=1, description="processes (CPU) or cards (GPU) that share the clients of a round")
    precision: Literal["32-true", "64-true", "bf16-mixed", "16-mixed"] = Field(
        "32-true", description="Lightning's precision"
    )


class CheckpointSettings(SettingsModel):
    """Saved state."""

    every: int = Field(10, ge=1, description="save the state after every so many rounds")


class RunSettings(SettingsModel):
    """Everything one run depends on."""

    seed: Seed = Field(0, description="seed of models, cohorts and batches")
    world_seed: Seed | None = Field(None, description="seed of the timeline; default: seed")
    label: Label = Field("", description="how the algorithm is called in tables; default: its name")
    initialiser_label: Label = Field("", description="how the initialiser is called in tables; default: its name")
    data: DataChoice = Field("digits", description="dataset", validate_default=True)
    long_tail: LongTail = Field(LongTail(), description="long-tailed training classes")
    validation: float = Field(0.1, ge=0, lt=1, description="share of the training set held out for tuning")
    scenario: ScenarioChoice = Field("static", description="who is there when")  # type: ignore[assignment]
    partition: PartitionChoice = Field("dirichlet_equal", description="who has what")  # type: ignore[assignment]
    participation: ParticipationChoice = Field("all", description="who is drawn")  # type: ignore[assignment]
    model: ModelChoice = Field("mlp", description="network")  # type: ignore[assignment]
    objective: ObjectiveChoice = Field("cross_entropy", description="loss of a sample")  # type: ignore[assignment]
    algorithm: AlgorithmChoice = Field("fedavg", description="federated algorithm")  # type: ignore[assignment]
    initialiser: InitialiserChoice = Field("previous", description="a session's first model")  # type: ignore[assignment]
    exchange: ExchangeChoice = Field("end", description="when clients average in a round")  # type: ignore[assignment]
    local: LocalSettings = Field(LocalSettings(), description="training on a client")
    federation: FederationSettings = Field(FederationSettings(), description="state of server and clients")
    evaluation: EvaluationSettings = Field(EvaluationSettings(), description="what is tested")
    costs: CostSettings = Field(CostSettings(), description="what a round costs")
    engine: EngineSettings = Field(EngineSettings(), description="how it is executed")
    checkpoint: CheckpointSettings = Field(CheckpointSettings(), description="saved state")

    def canonical(self) -> dict[str, Any]:
        """The settings that determine the trajectory, JSON-able: no labels, no speed, no saving."""
        values: dict[str, Any] = self.model_dump(mode="json")
        for key in ("label", "initialiser_label", "checkpoint"):
            values.pop(key)
        for key in ("workers", "allocator"):
            values["engine"].pop(key)
        values["federation"].pop("memory")
        for key in PLACES:
            values["data"].pop(key, None)
        values["world_seed"] = self.seed if self.world_seed is None else self.world_seed
        return values

    def world(self) -> dict[str, Any]:
        """The settings that determine the timeline, JSON-able."""
        values = self.canonical()
        return {key: values[key] for key in ("data", "long_tail", "validation", "scenario", "partition", "world_seed")}


class CompareSettings(SettingsModel):
    """The grid of ``fedtide compare`` and of the training stage."""

    algorithms: tuple[str, ...] = Field(("fedavg",), min_length=1, description="labels of algorithms")
    initialisers: tuple[str, ...] = Field(("previous",), min_length=1, description="labels of initialisers")
    seeds: tuple[Seed, ...] = Field((0,), min_length=1, description="seeds")
    workers: int = Field(0, ge=0, description="runs at once; 0 for one per core")

    @field_validator("algorithms", "initialisers", "seeds")
    @classmethod
    def _distinct(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(value)) != len(value):
            raise SettingsError(f"lists something twice: {', '.join(map(str, value))}")
        return value


class ReportSettings(SettingsModel):
    """The report."""

    title: str = Field("Comparison", description="headline of the page")
    last: int = Field(10, ge=1, description="rounds averaged in the table")
    target: float | None = Field(
        None, gt=0, le=1, description="accuracy that rounds are counted to; null: nine tenths of the best method's"
    )
    baseline: str = Field("fedavg", description="label of the algorithm that speed-ups are relative to")
    transition_window: int = Field(10, ge=1, description="rounds after a session change that are averaged")
    transition_counting: Literal["stored", "all"] = Field(
        "stored",
        description="sessions that count as transitions: stored: those that return to clients with a stored model (as "
        "published), or as all where there are none; all: every one after the pilot",
    )
    reference: str = Field(
        "dynamic", description="label of the initialiser whose recovery the others are compared with"
    )
    rho: float = Field(0.95, gt=0, le=1, description="share of the reference's peak accuracy that counts as recovered")


class TrackingSettings(SettingsModel):
    """MLflow."""

    mlflow: bool = Field(True, description="mirror runs into MLflow")
    experiment: str = Field("fedtide", min_length=1, description="name of the MLflow experiment")


class Experiment(RunSettings):
    """The whole of ``params.yaml``."""

    algorithms: dict[str, dict[str, Any]] = Field(
        {}, description="settings by label; `name` defaults to the label; `with` overrides other run settings"
    )
    initialisers: dict[str, dict[str, Any]] = Field({}, description="the same for initialisers")
    compare: CompareSettings = Field(CompareSettings(), description="the grid of a comparison")
    tune: TuneSettings = Field(TuneSettings(), description="the study of a search")
    report: ReportSettings = Field(ReportSettings(), description="the report")
    tracking: TrackingSettings = Field(TrackingSettings(), description="MLflow")


RUN_KEYS = tuple(RunSettings.model_fields)


def parse(model: type[SettingsModel], raw: Mapping[str, Any], source: str = "settings") -> Any:
    """Validate a plain mapping.

    Raises:
        SettingsError: one line: which key, which value, what is allowed.
    """
    try:
        return model.model_validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        raise SettingsError(one_line(error, source, lambda place: _keys_at(model, raw, place))) from None
    except TypeError as error:
        raise SettingsError(f"{source}: {error}; use numbers, words, lists and mappings") from None


def _keys_at(model: type[SettingsModel], raw: Any, place: tuple[int | str, ...]) -> list[str]:
    """Keys known at the group that ``place`` (a path to an unknown key) lies in."""
    for part in place[:-1]:
        found = model.model_fields.get(str(part))
        raw = raw.get(part) if isinstance(raw, Mapping) else None
        if found is None:
            return []
        choice = next((item for item in found.metadata if isinstance(item, _Choice)), None)
        if choice is not None:
            name = raw.get("name", choice.default) if isinstance(raw, Mapping) else choice.default
            model = plugins.load(choice.kind, name).Settings
        elif isinstance(found.annotation, type) and issubclass(found.annotation, SettingsModel):
            model = found.annotation
        else:
            return []
    return list(model.model_fields)
