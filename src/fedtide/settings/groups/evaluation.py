"""Settings of what a run measures: scores, and what a round costs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedtide.core.errors import SettingsError
from fedtide.core.plugins import OMIT_DEFAULT, SettingsModel


class EvaluationSettings(SettingsModel):
    """Which models are evaluated, on what data, how often."""

    every: int = Field(1, ge=1, description="rounds between evaluations; the last round is always evaluated")
    splits: tuple[Literal["test", "validation"], ...] = Field(
        ("test",), min_length=1, description="what to evaluate on"
    )
    metrics: tuple[Literal["balanced_accuracy", "macro_f1", "auroc", "average_precision", "calibration_error"], ...] = (
        Field((), description="further metrics of the reported classifier, one column each; the log loss is test_loss")
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
    finetune_steps: int = Field(
        0,
        ge=0,
        le=10**9,
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

    erased: Annotated[bool, OMIT_DEFAULT] = Field(
        True,
        description="with `erase`, compare with the run in which the clients never took part and the one that erases "
        "nothing; both are trained as well",
    )
    relearn_epochs: Annotated[int, OMIT_DEFAULT] = Field(
        0,
        ge=0,
        description="with `erased`, at the end of the run: at most so many epochs of training by the erased clients until "
        "their loss is that before the request; 0: not measured",
    )

    @model_validator(mode="after")
    def _consistent(self) -> EvaluationSettings:
        if self.clients_every % self.every:
            raise SettingsError(
                f"evaluation.clients_every = {self.clients_every} must be a multiple of evaluation.every = {self.every}"
            )
        for name, needed in (
            ("finetune_steps", "clients_every"),
            ("finetune_part", "finetune_steps"),
            ("client_samples", "clients_every"),
            ("departed_clients", "clients_every"),
            ("relearn_epochs", "erased"),
        ):
            value = getattr(self, name)
            if value != type(self).model_fields[name].default and not getattr(self, needed):
                how = ": true" if needed == "erased" else " > 0"
                raise SettingsError(f"evaluation.{name} = {value} requires evaluation.{needed}{how}")
        return self


class CostSettings(SettingsModel):
    """What a round costs: the cell, its radios and the devices' processors; the defaults are the published constants."""

    wireless: bool = Field(
        True, description="simulate seconds and joules of every round; only `mode: async` trains differently by them"
    )
    payload: Literal["algorithm", "paper"] = Field(
        "algorithm",
        description="algorithm: the bytes it declares per exchange; paper: 32 bits per parameter, no buffers",
    )
    samples: int | None = Field(
        None, ge=0, description="samples e B of a device per round; null: of its batches, or 5 x 128 with payload paper"
    )
    carrier: float = Field(3.5, gt=0, description="carrier frequency f_c [GHz]")
    cell_radius: float = Field(250.0, gt=0, description="largest horizontal distance R_cell of a device [m]")
    min_distance: float = Field(10.0, gt=0, description="smallest horizontal distance d_min [m]")
    base_height: float = Field(10.0, gt=0, description="height of the base station h_BS [m]")
    device_height: float = Field(1.5, gt=0, description="height of the devices h_UT [m]")
    environment_height: float = Field(1.0, ge=0, description="effective height of the environment h_E [m]")
    shadowing: float = Field(4.0, ge=0, description="standard deviation of the shadowing [dB]")
    speed: float = Field(10.0, ge=0, description="speed of the devices v [m/s]")
    bandwidth: float = Field(1e8, gt=0, description="bandwidth W of the cell [Hz], shared by the uploads")
    noise: float = Field(-174.0, description="noise density N_0 [dBm/Hz]")
    server_power: float = Field(20.0, gt=0, description="transmission power of the server [W]")
    send_power: float = Field(0.2, gt=0, description="power of a device that transmits [W]")
    receive_power: float = Field(0.1, ge=0, description="power of a device that receives [W]")
    slot: float = Field(5e-4, gt=0, description="length of a slot tau, in which the fading is constant [s]")
    long_transfer: int = Field(
        20_000, ge=0, description="transfers expected to take more slots use their mean rate instead of slots"
    )
    clock: float = Field(1e9, gt=0, description="processor frequency f of a device [cycles/s]")
    clock_factors: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (1.0,),
        min_length=1,
        description="multiples of `clock`, one per device, sampled uniformly: [0.2, 1] for slow and fast devices; "
        "repeat a value for twice as many",
    )
    flops_per_cycle: float = Field(8.0, gt=0, description="FLOPs per cycle chi")
    capacitance: float = Field(1e-28, ge=0, description="energy per cycle divided by f squared, xi [J s^2 / cycle^3]")
    phi: float | None = Field(
        None, gt=0, description="FLOPs of a forward pass per parameter and sample; null: counted on the network"
    )
    passes: float = Field(
        1.0, gt=0, description="work of a step in forward passes: 1 forward only (published), 3 with the backward pass"
    )
    placement: Literal["once", "every_round"] = Field("once", description="when devices are placed in the cell")

    @model_validator(mode="after")
    def _possible(self) -> CostSettings:
        if self.min_distance > self.cell_radius:
            raise SettingsError(
                f"min_distance = {self.min_distance:g} exceeds cell_radius = {self.cell_radius:g}: no room for a device"
            )
        if self.environment_height >= min(self.base_height, self.device_height):
            raise SettingsError(
                f"environment_height = {self.environment_height:g} must be below base_height and device_height"
            )
        return self
