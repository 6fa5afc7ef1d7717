"""Settings of training on a client, and of its optimizer."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from fedtide.core import plugins
from fedtide.core.bounds import Steps
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import OMIT_DEFAULT, SettingsModel
from fedtide.settings.choices import Choice

Unit = Literal["epochs", "steps", "capped_steps", "mean_epochs"]

WORK: tuple[Unit, ...] = get_args(Unit)
"""Settings of how much work a client does in a round; exactly one of them is given."""


class Sgd(SettingsModel):
    """Stochastic gradient descent, with ``local.momentum`` and ``local.nesterov``."""

    name: Literal["sgd"] = "sgd"


class Adam(SettingsModel):
    """Adam (Kingma and Ba 2015), with bias correction."""

    name: Literal["adam"] = "adam"
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean gradient")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the mean squared gradient")
    eps: float = Field(1e-8, gt=0, description="added to the root of the mean squared gradient")
    amsgrad: bool = Field(False, description="AMSGrad: divide by the largest mean square so far (Reddi et al. 2018)")


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameters instead of joining the gradient (Loshchilov and Hutter 2019)."""

    name: Literal["adamw"] = "adamw"  # type: ignore[assignment]


class Adagrad(SettingsModel):
    """Adagrad (Duchi et al. 2011)."""

    name: Literal["adagrad"] = "adagrad"
    eps: float = Field(1e-10, gt=0, description="added to the root of the sum of squared gradients")
    initial: float = Field(0.0, ge=0, description="sum of squared gradients before the first step")
    lr_decay: float = Field(0.0, ge=0, description="step k divides the learning rate by 1 + (k - 1) lr_decay")


Optimizer = Sgd | Adam | AdamW | Adagrad
OptimizerChoice = Annotated[Optimizer, Choice(Optimizer)]


class LocalSettings(SettingsModel):
    """Training on a client."""

    epochs: Annotated[Steps | None, OMIT_DEFAULT] = Field(
        None, description="passes over the client's own data per round (default: 5)"
    )
    steps: Annotated[Steps | None, OMIT_DEFAULT] = Field(None, description="instead of `epochs`: local steps per round")
    capped_steps: Annotated[Steps | None, OMIT_DEFAULT] = Field(
        None, description="instead of `epochs`: local steps per round, at most those of one epoch"
    )
    mean_epochs: Annotated[Steps | None, OMIT_DEFAULT] = Field(
        None, description="instead of `epochs`: every client takes the steps of a client of mean size in so many epochs"
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
        description="samples of each pass: shuffled: all in a new order; stored: all as stored; class_balanced: "
        "sampled with replacement, the client's classes equally likely",
    )
    batches_span_epochs: bool = Field(False, description="batches may span consecutive epochs, so that none is short")
    lr: float = plugins.Tunable(0.1, low=1e-3, high=1.0, log=True, gt=0, description="learning rate at the start")
    schedule: Literal["constant", "exponential", "cosine", "polynomial"] = Field(
        "constant", description="over the rounds"
    )
    decay: float = Field(0.998, gt=0, le=1, description="factor per round of the exponential schedule")
    min_lr_ratio: float = Field(
        0.0, ge=0, le=1, description="final learning rate of cosine and polynomial, as a fraction of `lr`"
    )
    power: float = Field(0.9, gt=0, description="exponent of the polynomial schedule")
    schedule_rounds: int | None = Field(
        None,
        ge=1,
        description="rounds over which cosine and polynomial decay; null: those of the session, or of the run "
        "without `restart`, after the warm-up",
    )
    warmup: int = Field(0, ge=0, description="rounds before the schedule in which the rate rises linearly to `lr`")
    restart: bool = Field(True, description="restart schedule and warm-up in every session")
    optimizer: OptimizerChoice = Field(
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
        description="multiple of the parameters added to the gradient; with `adamw` the parameters shrink by it, "
        "times the learning rate",
    )
    clip: float | None = Field(None, gt=0, description="largest gradient norm per client; null for none")
    clip_scope: Literal["total", "total_with_decay", "loss"] = Field(
        "total", description="total: everything but decay; total_with_decay: everything; loss: only the loss gradient"
    )
    flip: float = Field(0.0, ge=0, le=1, description="probability of a horizontal flip of a training image")
    crop: int = Field(0, ge=0, description="padding in pixels of the random crop of a training image")
    crop_probability: float = Field(1.0, ge=0, le=1, description="probability of the random crop")
    crop_padding: Literal["zeros", "reflect"] = Field("zeros", description="fill of the padding")

    @model_validator(mode="before")
    @classmethod
    def _work(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        given = [key for key in WORK if raw.get(key) is not None]
        if len(given) > 1:
            raise SettingsError(
                f"local.{given[0]} and local.{given[1]} exclude each other; give one of {', '.join(WORK)}"
            )
        return raw if given else {**raw, "epochs": 5}

    @model_validator(mode="after")
    def _consistent(self) -> LocalSettings:
        if self.nesterov and self.momentum == 0:
            raise SettingsError("local.nesterov = true requires local.momentum > 0")
        if self.momentum > 0 and not isinstance(self.optimizer, Sgd):
            raise SettingsError(
                f"local.momentum = {self.momentum:g} is not supported with local.optimizer = {self.optimizer.name}; "
                "use 0, or local.optimizer = sgd"
            )
        if isinstance(self.optimizer, AdamW) and self.clip_scope == "total_with_decay":
            raise SettingsError(
                "local.clip_scope = total_with_decay: the weight decay of local.optimizer = adamw is not part of the gradient; "
                "use total or loss"
            )
        if self.batches_span_epochs and self.capped_steps is not None:
            raise SettingsError(
                "local.batches_span_epochs = true: with local.capped_steps no client begins a second epoch; use steps or epochs"
            )
        return self

    @property
    def unit(self) -> Unit:
        """Which of the four settings of a client's work is given."""
        return next(key for key in WORK if getattr(self, key) is not None)

    @property
    def amount(self) -> int:
        value: int = getattr(self, self.unit)
        return value

    def with_work(self, amount: int, unit: Unit | None = None) -> LocalSettings:
        """The same with another amount of work, in its own unit unless another is given."""
        return self.model_copy(update={**dict.fromkeys(WORK), unit or self.unit: amount})

    @property
    def step_samples(self) -> int:
        return self.batch_size * self.accumulate

    @property
    def gradient_decay(self) -> float:
        """The weight decay, as far as it is added to the gradient."""
        return 0.0 if isinstance(self.optimizer, AdamW) else self.weight_decay

    @property
    def keeps_momentum(self) -> bool:
        """Whether every client keeps the local optimizer's momentum or moments from round to round."""
        return self.momentum_scope == "client" and (self.momentum > 0 or not isinstance(self.optimizer, Sgd))
