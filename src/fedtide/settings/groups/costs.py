"""Settings of the cost model: payload, radio cell and processors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedtide.core.errors import SettingsError
from fedtide.core.plugins import SettingsModel


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
