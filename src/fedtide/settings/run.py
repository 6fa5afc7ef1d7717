"""The settings of one run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializeAsAny, model_validator

from fedtide.core import plugins
from fedtide.core.bounds import MOST_THREADS, Threads
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import INCIDENTAL, OMIT_DEFAULT, PluginSettings, SettingsModel
from fedtide.settings.choices import (
    AggregationChoice,
    AttackChoice,
    Choice,
    DownlinkChoice,
    EraseChoice,
    UplinkChoice,
    WeightingChoice,
    choice_field,
    kind_of,
)
from fedtide.settings.groups.evaluation import CostSettings, EvaluationSettings
from fedtide.settings.groups.local import LocalSettings
from fedtide.settings.scores import TaskName, main_score


class AlgorithmSettings(PluginSettings):
    """Settings every algorithm has."""

    weighting: WeightingChoice = choice_field("samples", "how participants are weighted")


class DatasetSettings(PluginSettings):
    """Settings every dataset has."""

    root: Annotated[str, INCIDENTAL] = Field("data", description="folder for downloaded and prepared files")
    mirror: Annotated[str | None, INCIDENTAL] = Field(
        None, description="folder searched before the network; default: $FEDTIDE_MIRROR"
    )


class InitializerSettings(PluginSettings):
    """Settings every initializer has."""

    post_pilot_start: Literal["carry", "reset"] = Field(
        "carry", description="first session after the pilot: carry: continue; reset: start from the initial model"
    )


AlgorithmChoice = Annotated[SerializeAsAny[AlgorithmSettings], Choice("algorithms", "fedavg")]
DataChoice = Annotated[SerializeAsAny[DatasetSettings], Choice("data", "digits")]
DetectorChoice = Annotated[SerializeAsAny[PluginSettings], Choice("detectors", "none")]
DriftChoice = Annotated[SerializeAsAny[PluginSettings], Choice("drift", "none")]
CommunicationChoice = Annotated[SerializeAsAny[PluginSettings], Choice("communication", "per_round")]
InitializerChoice = Annotated[SerializeAsAny[InitializerSettings], Choice("initializers", "previous")]
ModelChoice = Annotated[SerializeAsAny[PluginSettings], Choice("models", "mlp")]
ObjectiveChoice = Annotated[SerializeAsAny[PluginSettings], Choice("objectives", "cross_entropy")]
ParticipationChoice = Annotated[SerializeAsAny[PluginSettings], Choice("participation", "all")]
PartitionChoice = Annotated[SerializeAsAny[PluginSettings], Choice("partitions", "dirichlet_equal")]
ScenarioChoice = Annotated[SerializeAsAny[PluginSettings], Choice("scenarios", "static")]


def plain_name(value: str) -> str:
    """The value, if it can name a file or a folder everywhere; else a SettingsError."""
    if not re.fullmatch(r"\w[\w.+-]*", value):
        raise SettingsError(f"{value!r} should consist of letters, digits, _ . + -: folders are named after it")
    return value


Label = Annotated[str, AfterValidator(lambda value: value and plain_name(value))]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class LongTail(SettingsModel):
    """Long-tailed thinning of the training set, before anything else."""

    imbalance: float | None = Field(
        None, gt=0, le=1, description="size of the rarest class over that of the most frequent one; null: unchanged"
    )
    mode: Literal["clip", "feasible"] = Field("clip", description="clip: limited by samples; feasible: exact profile")
    order: tuple[int, ...] | None = Field(None, description="classes from most to least frequent; default 0, 1, 2, ...")


class ClientStateSettings(SettingsModel):
    """What clients keep between rounds, where, and when they lose it."""

    storage: Annotated[Literal["device", "host", "disk"], INCIDENTAL] = Field(
        "device", description="where client state is kept; disk: a memory-mapped file in the run directory"
    )
    on_session_start: Literal["reset", "keep"] = Field(
        "reset",
        description="client state when a session begins: reset: cleared; keep: every client keeps its own, including "
        "across sessions in which it is absent; `on_leave` covers leaves inside a session",
    )
    on_leave: Annotated[Literal["discard", "keep"], OMIT_DEFAULT] = Field(
        "discard",
        description="what happens to a personal model when its client leaves inside a session: discard or keep (the client has "
        "it again when it returns)",
    )


class Imported(SettingsModel):
    """An object that a class or function of another package makes."""

    path: str = Field(min_length=1, description="the class as MODULE:NAME or MODULE.NAME")
    arguments: dict[str, Any] = Field({}, description="constructor arguments")


class EngineSettings(SettingsModel):
    """How local training is executed: ``workers`` and ``allocator`` change no result, others rounding, ``callbacks`` any."""

    executor: Literal["auto", "threads", "stacked"] = Field("auto", description="auto: by model family and device")
    workers: Annotated[Threads, INCIDENTAL] = Field(0, ge=0, description="worker threads; 0 for all cores")
    chunk: int = Field(0, ge=0, description="clients trained together by `stacked`; 0: what fits in memory")
    layout: Literal["auto", "contiguous", "channels_last"] = Field(
        "auto", description="memory layout of image tensors; auto: the fastest for the model on this device"
    )
    allocator: Annotated[Literal["keep", "default"], INCIDENTAL] = Field(
        "keep", description="keep: freed memory stays with the process"
    )
    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = Field("auto", description="Lightning's accelerator")
    devices: int = Field(
        1,
        ge=1,
        le=MOST_THREADS,
        description="processes (CPU) or GPUs, on each machine, that share the clients of a round",
    )
    nodes: Annotated[int, OMIT_DEFAULT] = Field(1, ge=1, description="machines that share them, by torchrun or srun")
    precision: Literal["32-true", "64-true", "bf16-mixed", "16-mixed", "tf32"] = Field(
        "32-true",
        description="Lightning's precision; tf32: single, products and convolutions in TensorFloat-32 on a CUDA GPU",
    )
    callbacks: Annotated[tuple[Imported, ...], OMIT_DEFAULT] = Field(
        (), description="Lightning callbacks, each {path: package.module:Name, arguments: {...}}; part of the run key"
    )


class CheckpointSettings(SettingsModel):
    """Saved state."""

    every: int = Field(10, ge=1, description="rounds between checkpoints")
    keep_finished: bool = Field(False, description="keep the last two checkpoints of a complete run")


class StopSettings(SettingsModel):
    """Rules that end a run before its last round: after the first evaluated round in which one of them holds."""

    target: float | None = Field(
        None, description="main score of the task, on the first of `evaluation.splits`, to reach"
    )
    patience: int | None = Field(None, ge=1, description="rounds without a new best value of this score")
    bytes: float | None = Field(None, gt=0, description="traffic so far, in both directions")
    simulated_seconds: float | None = Field(None, gt=0, description="simulated time so far, with `costs.wireless`")


class Sync(SettingsModel):
    """A round ends when all its participants have finished."""

    name: Literal["sync"] = "sync"


class Async(SettingsModel):
    """Clients work at their own pace, and the server updates its model as their results arrive."""

    name: Literal["async"] = "async"
    concurrency: int = Field(10, ge=1, description="most clients that train at once, each on its share of the band")
    max_staleness: int | None = Field(None, ge=0, description="drop results with more staleness; null: none")
    leave: Literal["cancel", "finish"] = Field(
        "cancel",
        description="if a client leaves while it trains: cancel: its work is lost; finish: its result arrives",
    )


ModeChoice = Annotated[Sync | Async, Choice(Sync | Async)]


_WORDS = {"regression": "a regression", "multilabel": "a multilabel task"}


class RunSettings(SettingsModel):
    """Everything one run depends on."""

    seed: Seed = Field(0, description="seed of models, cohorts and batches")
    world_seed: Seed | None = Field(None, description="seed of the timeline; default: seed")
    label: Annotated[Label, INCIDENTAL] = Field("", description="algorithm's label in tables; default: its name")
    initializer_label: Annotated[Label, INCIDENTAL] = Field("", description="its label in tables; default: its name")
    data: DataChoice = choice_field("digits", "dataset")
    long_tail: LongTail = Field(LongTail(), description="long-tailed training classes")
    validation: float = Field(0.1, ge=0, lt=1, description="share of the training set held out for tuning")
    scenario: ScenarioChoice = choice_field("static", "which clients are present when")
    partition: PartitionChoice = choice_field("dirichlet_equal", "which client holds which data")
    drift: Annotated[DriftChoice, OMIT_DEFAULT] = choice_field("none", "concept drift")
    participation: ParticipationChoice = choice_field("all", "which clients are sampled in a round")
    model: ModelChoice = choice_field("mlp", "network")
    objective: ObjectiveChoice = choice_field("cross_entropy", "loss of a sample")
    algorithm: AlgorithmChoice = choice_field("fedavg", "federated algorithm")
    initializer: InitializerChoice = choice_field("previous", "initial model of each session")
    communication: CommunicationChoice = choice_field("per_round", "when clients average inside a round")
    detector: Annotated[DetectorChoice, OMIT_DEFAULT] = choice_field(
        "none", "drift detection from training losses, and the response to alarms"
    )
    mode: Annotated[ModeChoice, OMIT_DEFAULT] = Field(Sync(), description="synchronous rounds or asynchronous updates")
    uplink: Annotated[tuple[UplinkChoice, ...], OMIT_DEFAULT] = Field(
        (), description="compression, clipping and noise of updates, applied in a fixed order"
    )
    downlink: Annotated[DownlinkChoice, OMIT_DEFAULT] = Field(
        None, description="compressor of the model sent by the server, as for uplink; null: none"
    )
    aggregation: Annotated[AggregationChoice, OMIT_DEFAULT] = choice_field("mean", "how the server combines updates")
    attack: Annotated[AttackChoice, OMIT_DEFAULT] = choice_field("none", "malicious clients")
    erase: Annotated[tuple[EraseChoice, ...], OMIT_DEFAULT] = Field(
        (), description="requests to erase clients, in the order of their rounds, each with its eraser"
    )
    local: LocalSettings = Field(LocalSettings(), description="training on a client")
    client_state: ClientStateSettings = Field(ClientStateSettings(), description="client state between rounds")
    divergence_threshold: float = Field(1e6, gt=0, description="training loss above which a run counts as diverged")
    evaluation: EvaluationSettings = Field(EvaluationSettings(), description="what is evaluated")
    costs: CostSettings = Field(CostSettings(), description="what a round costs")
    engine: EngineSettings = Field(EngineSettings(), description="execution")
    stop: Annotated[StopSettings, OMIT_DEFAULT] = Field(StopSettings(), description="rules that end the run early")
    checkpoint: Annotated[CheckpointSettings, INCIDENTAL] = Field(CheckpointSettings(), description="saved state")
    keep: Annotated[Literal["served", "global"], INCIDENTAL] = Field(
        "served",
        description="models that a complete run keeps to predict with: served: those that its clients are served, where they "
        "own the data's samples; global: the global model alone",
    )

    @model_validator(mode="after")
    def _fit_together(self) -> RunSettings:
        chosen: tuple[Any, ...] = (self.attack, self.detector, *self.erase)
        for plugin in chosen:
            if plugin.name != "none":
                plugin.refuse_misfits()
        if self.task != "classification":
            _refuse_without_classes(self)
        _refuse_other_stop(self)
        return self

    @property
    def task(self) -> TaskName:
        """What is learned: that of the objective."""
        objective: Any = plugins.load("objectives", self.objective.name)
        task: TaskName = objective.task
        return task

    def canonical(self) -> dict[str, Any]:
        """The settings that determine the numbers, JSON-able: without labels, paths, speed and saving."""
        return {**super().canonical(), "world_seed": self.seed if self.world_seed is None else self.world_seed}

    def world(self) -> dict[str, Any]:
        """The settings that determine the timeline, JSON-able."""
        values = self.canonical()
        keys = ("data", "long_tail", "validation", "scenario", "partition", "drift", "world_seed")
        return {key: values[key] for key in keys if key in values}


def _refuse_other_stop(run: RunSettings) -> None:
    """Refuse rules that can never hold, and a run that must not end early."""
    stop, score = run.stop, main_score(run.task)
    if stop.target is not None and score.share and not 0 < stop.target <= 1:
        raise SettingsError(f"stop.target = {stop.target:g}: {score.words} is a share, above 0 and at most 1")
    if stop.simulated_seconds is not None and not run.costs.wireless:
        raise SettingsError(f"stop.simulated_seconds = {stop.simulated_seconds:g} requires costs.wireless: true")
    if run.erase and stop != StopSettings():
        raise SettingsError("stop: a run with `erase` is measured after all of its rounds; leave out stop, or erase")


def _refuse_without_classes(run: RunSettings) -> None:
    """Refuse plug-ins and settings of a run that need classes, which its task has not."""
    for key, value in _in_need_of_classes(run):
        hint = "; use natural, or iid without stratified" if key == "partition" else ""
        raise SettingsError(
            f"{key} = {value} requires classes, and {_WORDS[run.task]} (objective = {run.objective.name}) has none{hint}"
        )


def _in_need_of_classes(run: RunSettings) -> Iterator[tuple[str, Any]]:
    """Names and values of these settings."""
    fields = {key: (kind_of(field), getattr(run, key)) for key, field in RunSettings.model_fields.items()}
    fields["algorithm.weighting"] = "weighting", run.algorithm.weighting
    scenario: Any = plugins.load("scenarios", run.scenario.name)(run.scenario)
    deals = scenario.partition_settings()  # None: by all settings of the partition; empty: by none
    if not (deals is None or deals):
        del fields["partition"]
    for key, (kind, settings) in fields.items():
        if kind and isinstance(settings, PluginSettings) and plugins.load(kind, settings.name)(settings).needs_classes:
            yield key, settings.name
    local, evaluation = run.local, run.evaluation
    others = {
        "long_tail.imbalance": run.long_tail.imbalance,
        "local.order": local.order if local.order == "class_balanced" else None,
        "evaluation.metrics": ", ".join(evaluation.metrics) or None,
        "evaluation.finetune_steps": evaluation.finetune_steps or None,
        "evaluation.client_samples": evaluation.client_samples,
        "evaluation.departed_clients": None if (last := evaluation.departed_clients) == "global_model" else last,
        "evaluation.clients_every": None if run.task == "regression" else evaluation.clients_every or None,
    }
    yield from ((key, value) for key, value in others.items() if value is not None)
