"""Settings of evaluation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedtide.core.bounds import AtMost
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import OMIT_DEFAULT, SettingsModel


class EvaluationSettings(SettingsModel):
    """Which models are evaluated, on what data, how often."""

    every: int = Field(1, ge=1, description="rounds between evaluations; the last round is always evaluated")
    splits: tuple[Literal["test", "validation"], ...] = Field(
        ("test",), min_length=1, description="what to evaluate on"
    )
    metrics: tuple[Literal["balanced_accuracy", "macro_f1", "auroc", "calibration_error"], ...] = Field(
        (), description="further metrics of the reported classifier, one column each; the log loss is test_loss"
    )
    batch_size: int = Field(2000, ge=1, description="samples per forward pass")
    models: tuple[Literal["global", "participants", "all", "ensemble"], ...] | None = Field(
        None,
        description="global: the global model; participants: mean of this round's local models; all: mean of all "
        "clients' latest models; ensemble: mean logits of this round's local models; null: those the "
        "algorithm defines",
    )
    model: Literal["global", "participants", "all", "ensemble"] = Field(
        "global", description="model reported as test_accuracy"
    )
    clients_every: int = Field(
        0,
        ge=0,
        description="rounds between evaluations of every client (mean, spread, worst tenth, newcomers, ... in the history, and "
        "a Parquet file with a row per client), a multiple of `every`; 0: off",
    )
    client_threshold: float = Field(
        0.5, ge=0, le=1, description="threshold of client_accuracy_below: the share of clients under it"
    )
    client_samples: Annotated[int | None, OMIT_DEFAULT] = Field(
        None,
        ge=1,
        description="held-out samples per client with its label distribution, if test samples have no client IDs; "
        "null: all of them",
    )
    departed_clients: Annotated[Literal["global_model", "last_model"], OMIT_DEFAULT] = Field(
        "global_model",
        description="model that evaluates departed clients: global_model: the current one; last_model: also the one "
        "that each was served last",
    )
    finetune_steps: Annotated[int, AtMost(10**9, 32, "batches for every client")] = Field(
        0,
        ge=0,
        description="number of local fine-tuning steps before an additional evaluation of every client; 0 disables it",
    )
    finetune_part: Annotated[Literal["all", "head", "body"], OMIT_DEFAULT] = Field(
        "all", description="parameters that are fine-tuned"
    )
    earlier_sessions: Annotated[bool, OMIT_DEFAULT] = Field(
        True,
        description="at the end of a session, evaluate on the held-out samples of it and of all before it, where sessions have "
        "samples of their own: the cost grows with the square of the number of sessions",
    )
    session_start_losses: bool = Field(
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
                f"evaluation.clients_every = {self.clients_every} must be a multiple of evaluation.every = {self.every}"
            )
        if self.finetune_steps and not self.clients_every:
            raise SettingsError(
                f"evaluation.finetune_steps = {self.finetune_steps} requires evaluation.clients_every > 0"
            )
        if self.finetune_part != "all" and not self.finetune_steps:
            raise SettingsError(
                f"evaluation.finetune_part = {self.finetune_part} requires evaluation.finetune_steps > 0"
            )
        for name, used in (
            ("client_samples", self.client_samples),
            ("departed_clients", self.departed_clients == "last_model"),
        ):
            if used and not self.clients_every:
                raise SettingsError(f"evaluation.{name} = {getattr(self, name)} requires evaluation.clients_every > 0")
        return self
