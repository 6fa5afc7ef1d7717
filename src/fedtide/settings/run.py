"""The settings of one run."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializeAsAny, model_validator

from fedtide.core import plugins
from fedtide.core.bounds import MOST_THREADS, AtMost, Threads
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import INCIDENTAL, OMIT_DEFAULT, PluginSettings, SettingsModel
from fedtide.settings.choices import AggregationChoice, AttackChoice, Choice, DownlinkChoice, UplinkChoice, choice_field
from fedtide.settings.classes import refuse_without_classes
from fedtide.settings.groups.clock import ClockChoice, Rounds
from fedtide.settings.groups.costs import CostSettings
from fedtide.settings.groups.optimizer import AdamW, OptimiserChoice, Sgd
from fedtide.settings.imported import Imported
from fedtide.settings.kinds import AlgorithmSettings, DatasetSettings, InitialiserSettings
from fedtide.settings.scores import TaskName

AlgorithmChoice = Annotated[SerializeAsAny[AlgorithmSettings], Choice("algorithms", "fedavg")]
DataChoice = Annotated[SerializeAsAny[DatasetSettings], Choice("data", "digits")]
DetectorChoice = Annotated[SerializeAsAny[PluginSettings], Choice("detectors", "none")]
DriftChoice = Annotated[SerializeAsAny[PluginSettings], Choice("drift", "none")]
ExchangeChoice = Annotated[SerializeAsAny[PluginSettings], Choice("communication", "end")]
InitialiserChoice = Annotated[SerializeAsAny[InitialiserSettings], Choice("initializers", "previous")]
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
        None, gt=0, le=1, description="size of the rarest class over that of the most frequent one; null: no thinning"
    )
    mode: Literal["clip", "feasible"] = Field(
        "clip", description="clip: at most what there is; feasible: exact profile"
    )
    order: tuple[int, ...] | None = Field(None, description="classes from most to least frequent; default 0, 1, 2, ...")


class LocalSettings(SettingsModel):
    """Training on a client."""

    amount: Annotated[int, AtMost(10**9, 32, "batches for every client")] = Field(
        5, ge=1, description="how much work a client does in a round, in `unit`"
    )
    unit: Literal["epochs", "steps", "capped_steps", "mean_epochs"] = Field(
        "epochs",
        description="epochs: over the client's own data; steps: exactly; capped_steps: at most one epoch; mean_epochs: every "
        "client takes the steps of a client of mean size",
    )
    batch_size: int = Field(32, ge=1, description="samples per batch and local step; the last of a pass may be short")
    accumulate: int = Field(
        1,
        ge=1,
        description="batches whose gradients make one local step: what a step computes with `accumulate` times `batch_size` "
        "samples, in the memory of one batch (BatchNorm, dropout and losses over a batch see each batch alone)",
    )
    order: Literal["shuffled", "stored", "class_balanced"] = Field(
        "shuffled",
        description="samples of each pass: shuffled: all in a new order; stored: all as stored; class_balanced: as many draws "
        "with replacement, the client's classes equally likely",
    )
    straddle: bool = Field(False, description="batches may straddle consecutive passes, so that none is short")
    lr: float = plugins.Tunable(0.1, low=1e-3, high=1.0, log=True, gt=0, description="learning rate at the start")
    schedule: Literal["constant", "exponential", "cosine", "polynomial"] = Field(
        "constant", description="over the rounds"
    )
    decay: float = Field(0.998, gt=0, le=1, description="factor per round of the exponential schedule")
    floor: float = Field(0.0, ge=0, le=1, description="final rate of cosine and polynomial as a fraction of lr")
    power: float = Field(0.9, gt=0, description="exponent of the polynomial schedule")
    schedule_rounds: int | None = Field(
        None,
        ge=1,
        description="rounds over which cosine and polynomial fall to the floor; null: those of the session, or of the run "
        "without `restart`, after the warm-up",
    )
    warmup: int = Field(0, ge=0, description="rounds before the schedule in which the rate rises linearly to `lr`")
    restart: bool = Field(True, description="restart schedule and warm-up in every session")
    optimizer: OptimiserChoice = Field(
        Sgd(), description="local optimizer, by name or as {name: adam, beta2: 0.99}; most algorithms take any"
    )
    momentum: float = Field(0.0, ge=0, lt=1, description="heavy-ball momentum of `sgd`")
    nesterov: bool = Field(False, description="Nesterov momentum")
    momentum_scope: Literal["round", "client"] = Field(
        "round",
        description="momentum, or the moments of another optimizer: round: start at zero every round; client: kept until the "
        "client's next round",
    )
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="multiple of the parameters that is added to the gradient; with `adamw` the parameters shrink by it, times "
        "the learning rate",
    )
    clip: float | None = Field(None, gt=0, description="largest gradient norm per client; null for none")
    clip_scope: Literal["total", "total_with_decay", "loss"] = Field(
        "total", description="total: everything but decay; total_with_decay: everything; loss: only the loss gradient"
    )
    flip: float = Field(0.0, ge=0, le=1, description="probability of a horizontal flip of a training image")
    crop: int = Field(0, ge=0, description="padding in pixels of the random crop of a training image")
    crop_probability: float = Field(1.0, ge=0, le=1, description="probability of the random crop")
    crop_padding: Literal["zeros", "reflect"] = Field("zeros", description="what the crop pads with")

    @model_validator(mode="after")
    def _consistent(self) -> LocalSettings:
        if self.nesterov and self.momentum == 0:
            raise SettingsError("local.nesterov = true needs local.momentum > 0")
        if self.momentum > 0 and not isinstance(self.optimizer, Sgd):
            raise SettingsError(
                f"local.momentum = {self.momentum:g} is for local.optimizer = sgd; {self.optimizer.name} takes no momentum, "
                "leave it 0"
            )
        if isinstance(self.optimizer, AdamW) and self.clip_scope == "total_with_decay":
            raise SettingsError(
                "local.clip_scope = total_with_decay: the weight decay of local.optimizer = adamw is not part of the gradient; "
                "use total or loss"
            )
        if self.straddle and self.unit == "capped_steps":
            raise SettingsError(
                "local.straddle = true: with local.unit = capped_steps no client begins a second pass; use steps or epochs"
            )
        return self

    @property
    def step_samples(self) -> int:
        """Samples per local step."""
        return self.batch_size * self.accumulate

    @property
    def gradient_decay(self) -> float:
        """The weight decay, as far as it is added to the gradient."""
        return 0.0 if isinstance(self.optimizer, AdamW) else self.weight_decay

    @property
    def keeps_momentum(self) -> bool:
        """Whether every client keeps the local optimizer's momentum or moments from round to round."""
        return self.momentum_scope == "client" and (self.momentum > 0 or not isinstance(self.optimizer, Sgd))


class EvaluationSettings(SettingsModel):
    """Which models are evaluated, on what data, how often."""

    every: int = Field(1, ge=1, description="rounds between evaluations; the last round is always evaluated")
    splits: tuple[Literal["test", "validation"], ...] = Field(
        ("test",), min_length=1, description="what to evaluate on"
    )
    metrics: tuple[Literal["balanced_accuracy", "macro_f1", "auroc", "calibration_error"], ...] = Field(
        (), description="further metrics of a classifier that is reported, one column each; the log loss is test_loss"
    )
    batch_size: int = Field(2000, ge=1, description="samples per forward pass")
    models: tuple[Literal["cloud", "participants", "all", "ensemble"], ...] | None = Field(
        None,
        description="cloud: the global model; participants: mean of this round's local models; all: mean of all clients' "
        "latest models; ensemble: mean logits of this round's local models; null: those that the algorithm distinguishes",
    )
    reported: Literal["cloud", "participants", "all", "ensemble"] = Field(
        "cloud", description="the model that test_accuracy refers to"
    )
    neurons: int = Field(
        0, ge=0, description="test samples per class on which the concentration of neuron activity is measured; 0: off"
    )
    clients_every: int = Field(
        0,
        ge=0,
        description="rounds between evaluations of every client (mean, spread, worst tenth, newcomers, ... in the history, and "
        "a Parquet file with a row per client), a multiple of `every`; 0: off",
    )
    client_threshold: float = Field(
        0.5, ge=0, le=1, description="accuracy of the share of clients that stay below it, client_accuracy_below"
    )
    client_samples: Annotated[int | None, OMIT_DEFAULT] = Field(
        None,
        ge=1,
        description="held-out samples for each client, with its shares of labels, where the data do not know whose they are; "
        "null: all of them",
    )
    departed: Annotated[Literal["global", "last"], OMIT_DEFAULT] = Field(
        "global",
        description="model that clients which have left are evaluated with: global: today's; last: also the one that each was "
        "served when it left",
    )
    personalize: Annotated[int, AtMost(10**9, 32, "batches for every client")] = Field(
        0,
        ge=0,
        description="plain local steps from the model that each client is served, after which it is evaluated, too; 0: off",
    )
    personalize_part: Annotated[Literal["all", "head", "body"], OMIT_DEFAULT] = Field(
        "all", description="parameters that these steps train"
    )
    earlier_sessions: Annotated[bool, OMIT_DEFAULT] = Field(
        True,
        description="at the end of a session, evaluate on the held-out samples of it and of all before it, where sessions have "
        "samples of their own: the cost grows with the square of the number of sessions",
    )
    boundary_losses: bool = Field(
        True,
        description="record the training loss of four models at the start of every session: its initial model, the previous "
        "session's final model, the mean of the final models since the pilot, the run's initial model",
    )
    consistency: bool = Field(
        False,
        description="record every round the broadcast model's training loss, on each participant's data and on all",
    )

    @model_validator(mode="after")
    def _consistent(self) -> EvaluationSettings:
        if self.clients_every % self.every:
            raise SettingsError(
                f"evaluation.clients_every = {self.clients_every} should be a multiple of evaluation.every = {self.every}"
            )
        if self.personalize and not self.clients_every:
            raise SettingsError(f"evaluation.personalize = {self.personalize} needs evaluation.clients_every > 0")
        if self.personalize_part != "all" and not self.personalize:
            raise SettingsError(
                f"evaluation.personalize_part = {self.personalize_part} needs evaluation.personalize > 0"
            )
        for name, used in (("client_samples", self.client_samples), ("departed", self.departed == "last")):
            if used and not self.clients_every:
                raise SettingsError(f"evaluation.{name} = {getattr(self, name)} needs evaluation.clients_every > 0")
        return self


class FederationSettings(SettingsModel):
    """State of server and clients."""

    memory: Annotated[Literal["device", "host", "disk"], INCIDENTAL] = Field(
        "device", description="where the clients' memories are kept; disk: a mapped file in the run's folder"
    )
    at_session: Literal["reset", "keep"] = Field(
        "reset",
        description="algorithm memories when a session begins: reset: cleared; keep: every client keeps its own, also over "
        "sessions in which it is absent; of one that leaves inside a session see `returners`",
    )
    returners: Annotated[Literal["forget", "keep"], OMIT_DEFAULT] = Field(
        "forget",
        description="a client that leaves inside a session: forget: it loses its memories; keep: it keeps the model of its own "
        "that a personalized algorithm gives it, and has it when it returns",
    )
    divergence_threshold: float = Field(1e6, gt=0, description="training loss above which a run counts as diverged")


class EngineSettings(SettingsModel):
    """How local training is executed: ``workers`` and ``allocator`` change no result, the others at most the rounding.

    ``callbacks`` may do anything.
    """

    executor: Literal["auto", "threads", "stacked"] = Field("auto", description="auto: by model family and device")
    workers: Annotated[Threads, INCIDENTAL] = Field(0, ge=0, description="worker threads; 0 for all cores")
    chunk: int = Field(0, ge=0, description="clients advanced together by `stacked`; 0 to plan it from memory")
    layout: Literal["auto", "contiguous", "channels_last"] = Field(
        "auto", description="memory layout of image tensors; auto: the fastest for the model on this device"
    )
    allocator: Annotated[Literal["keep", "default"], INCIDENTAL] = Field(
        "keep", description="keep: freed memory stays with the process"
    )
    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = Field("auto", description="Lightning's accelerator")
    devices: Annotated[int, MOST_THREADS] = Field(
        1, ge=1, description="processes (CPU) or GPUs, on each machine, that share the clients of a round"
    )
    nodes: Annotated[int, OMIT_DEFAULT] = Field(1, ge=1, description="machines that share them, by torchrun or srun")
    precision: Literal["32-true", "64-true", "bf16-mixed", "16-mixed"] = Field(
        "32-true", description="Lightning's precision"
    )
    callbacks: Annotated[tuple[Imported, ...], OMIT_DEFAULT] = Field(
        (), description="Lightning callbacks, each {path: package.module:Name, arguments: {...}}; part of the run key"
    )


class CheckpointSettings(SettingsModel):
    """Saved state."""

    every: int = Field(10, ge=1, description="rounds between saved states")
    keep_finished: bool = Field(False, description="keep the last two saved states of a complete run")


class RunSettings(SettingsModel):
    """Everything one run depends on."""

    seed: Seed = Field(0, description="seed of models, cohorts and batches")
    world_seed: Seed | None = Field(None, description="seed of the timeline; default: seed")
    label: Annotated[Label, INCIDENTAL] = Field("", description="name of the algorithm in tables; default: its name")
    initializer_label: Annotated[Label, INCIDENTAL] = Field("", description="initializer in tables; default: its name")
    data: DataChoice = choice_field("digits", "dataset")
    long_tail: LongTail = Field(LongTail(), description="long-tailed training classes")
    validation: float = Field(0.1, ge=0, lt=1, description="share of the training set held out for tuning")
    scenario: ScenarioChoice = choice_field("static", "which clients are present when")
    partition: PartitionChoice = choice_field("dirichlet_equal", "which client holds which data")
    drift: Annotated[DriftChoice, OMIT_DEFAULT] = choice_field("none", "when what clients see changes its meaning")
    participation: ParticipationChoice = choice_field("all", "which clients are drawn in a round")
    model: ModelChoice = choice_field("mlp", "network")
    objective: ObjectiveChoice = choice_field("cross_entropy", "loss of a sample")
    algorithm: AlgorithmChoice = choice_field("fedavg", "federated algorithm")
    initializer: InitialiserChoice = choice_field("previous", "initial model of each session")
    exchange: ExchangeChoice = choice_field("end", "when clients average inside a round")
    detector: Annotated[DetectorChoice, OMIT_DEFAULT] = choice_field(
        "none", "what looks for change in the training losses, and what follows its alarms"
    )
    clock: Annotated[ClockChoice, OMIT_DEFAULT] = Field(Rounds(), description="what the server waits for")
    uplink: Annotated[tuple[UplinkChoice, ...], OMIT_DEFAULT] = Field(
        (), description="links that an update passes on its way to the server; their order is fixed"
    )
    downlink: Annotated[DownlinkChoice, OMIT_DEFAULT] = Field(
        None, description="compressor of the model that the server sends, as for the uplink; null: none"
    )
    aggregation: Annotated[AggregationChoice, OMIT_DEFAULT] = choice_field("mean", "how the server combines updates")
    attack: Annotated[AttackChoice, OMIT_DEFAULT] = choice_field("none", "what some clients do to harm the model")
    local: LocalSettings = Field(LocalSettings(), description="training on a client")
    federation: FederationSettings = Field(FederationSettings(), description="state of server and clients")
    evaluation: EvaluationSettings = Field(EvaluationSettings(), description="what is evaluated")
    costs: CostSettings = Field(CostSettings(), description="what a round costs")
    engine: EngineSettings = Field(EngineSettings(), description="how it is executed")
    checkpoint: Annotated[CheckpointSettings, INCIDENTAL] = Field(CheckpointSettings(), description="saved state")

    @model_validator(mode="after")
    def _fit_the_task(self) -> RunSettings:
        refuse_without_classes(self)
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
