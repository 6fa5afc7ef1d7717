"""Seconds and joules of a round over one cell, and of the computation on its devices (Chang et al.).

The server broadcasts on the whole band W; K participants upload at once on W/K each. Path loss and shadowing are those of a
street canyon in line of sight (3GPP TR 38.901, table 7.4.1-1, UMi), fading is a first-order Gauss-Markov process with the
correlation of Jakes' spectrum. Nothing here changes what is learned.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.signal import lfilter
from scipy.special import j0
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fedtide.errors import SettingsError
from fedtide.plugins import SettingsModel
from fedtide.randomness import generator

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LIGHT = 3e8
"""Speed of light [m/s], rounded as in the path-loss model."""

CHUNK = 1024
"""Slots simulated at a time; no result depends on it."""

_FADES, _SHARES = np.polynomial.laguerre.laggauss(60)


class WirelessSettings(SettingsModel):
    """The cell, its radios and the devices' processors; the defaults are the published constants."""

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
        200_000,
        ge=0,
        description="a transfer expected to need more slots is computed at its mean rate, not slot by slot",
    )
    clock: float = Field(1e9, gt=0, description="processor frequency f of a device [cycles/s]")
    flops_per_cycle: float = Field(8.0, gt=0, description="work of a cycle chi [FLOPs]")
    capacitance: float = Field(1e-28, ge=0, description="energy of a cycle over f squared xi [J s^2 / cycle^3]")
    phi: float | None = Field(
        None, gt=0, description="FLOPs of a forward pass per parameter and sample; default: counted on the network"
    )
    counted: Literal["forward", "forward_backward"] = Field(
        "forward", description="forward: phi FLOPs per parameter and sample (published); forward_backward: 3 phi"
    )
    payload: Literal["ledger", "paper"] = Field(
        "ledger", description="ledger: bytes the algorithm declares; paper: 32 bits per parameter each way, no buffers"
    )
    redraw_per_round: bool = Field(False, description="place the devices anew in every round, not once per run")

    @model_validator(mode="after")
    def _possible(self) -> WirelessSettings:
        if self.min_distance > self.cell_radius:
            raise SettingsError(
                f"min_distance = {self.min_distance:g} exceeds cell_radius = {self.cell_radius:g}: nowhere to put a device"
            )
        if self.environment_height >= min(self.base_height, self.device_height):
            raise SettingsError(
                f"environment_height = {self.environment_height:g} must be below base_height and device_height"
            )
        return self

    @property
    def break_point(self) -> float:
        """Horizontal distance d_BP beyond which the path loss grows with the fourth power [m]."""
        heights = (self.base_height - self.environment_height) * (self.device_height - self.environment_height)
        return 4 * heights * self.carrier * 1e9 / LIGHT

    @property
    def noise_density(self) -> float:
        """N_0 [W/Hz]."""
        return float(10 ** ((self.noise - 30) / 10))

    @property
    def correlation(self) -> float:
        """rho = J_0(2 pi f_d tau) of the fading of neighbouring slots, f_d = v f_c / c."""
        return float(j0(2 * math.pi * self.speed * self.carrier * 1e9 / LIGHT * self.slot))


def distance(u: Floats | float, s: WirelessSettings) -> Floats:
    """Horizontal distance d_2D [m] at quantile ``u`` of a uniform density over the ring from d_min to R_cell."""
    inner, outer = s.min_distance**2, s.cell_radius**2
    return np.sqrt(inner + np.asarray(u) * (outer - inner))


def path_loss(d: Floats | float, s: WirelessSettings) -> Floats:
    """Mean attenuation [dB] at horizontal distance ``d`` [m]; continuous at the break point."""
    d = np.asarray(d, dtype=np.float64)
    square = d**2 + (s.base_height - s.device_height) ** 2
    common = 32.4 + 20 * math.log10(s.carrier)
    corner = s.break_point**2 + (s.base_height - s.device_height) ** 2
    near = common + 10.5 * np.log10(square)
    far = common + 20 * np.log10(square) - 9.5 * math.log10(corner)
    return np.where(d <= s.break_point, near, far)


@dataclass(frozen=True)
class Link:
    """One direction of K transfers.

    Attributes:
        bandwidth: of each transfer [Hz]. snr: [K] signal over noise where |h| = 1. bits: of each transfer.
    """

    bandwidth: float
    snr: Floats
    bits: float

    def rate(self, fade: Floats, rows: Ints | slice = slice(None)) -> Floats:
        """Rates [K, n] in bit/s for |h|^2 ``fade`` [K, n] (or [n]) of the transfers ``rows``."""
        rates: Floats = self.bandwidth * np.log2(1 + self.snr[rows, None] * fade)
        return rates

    def mean_rate(self) -> Floats:
        """Rate [K] in bit/s averaged over |h|^2 ~ Exp(1), by Gauss-Laguerre quadrature."""
        mean: Floats = self.rate(_FADES) @ _SHARES
        return mean


class Fading:
    """|h|^2 of K independent stationary processes h[n] = rho h[n-1] + sqrt(1 - rho^2) e[n], e ~ CN(0, 1).

    Each device draws from its own generator, in the order of its slots: who else is simulated changes nothing.
    """

    def __init__(self, generators: Sequence[np.random.Generator], correlation: float) -> None:
        self._generators, self._correlation = generators, correlation
        self._carried = correlation * np.stack([_complex_normal(rng, 1) for rng in generators])

    def advance(self, rows: Ints, count: int) -> Floats:
        """The next ``count`` slots of the devices ``rows``: [len(rows), count]."""
        rho = self._correlation
        e = np.stack([_complex_normal(self._generators[row], count) for row in rows])
        h, self._carried[rows] = lfilter([math.sqrt(1 - rho**2)], [1.0, -rho], e, zi=self._carried[rows])
        power: Floats = h.real**2 + h.imag**2
        return power


def _complex_normal(rng: np.random.Generator, count: int) -> NDArray[np.complex128]:
    return (rng.standard_normal(2 * count) * math.sqrt(0.5)).view(np.complex128)


def transmission_slots(links: Sequence[Link], fading: Fading, s: WirelessSettings) -> Ints:
    """Slots that transfers take which follow one another on the same fading process.

    A transfer takes the slots from the end of the one before it until its bits are through. Transfers expected to need more
    than ``s.long_transfer`` slots take their bits over the mean rate, in whole slots; fading averages out over so many (the
    error is below 0.5 % from 20 Mbit on).

    Args:
        links: the transfers of K devices, one entry per direction, in order.
        fading: of the K devices; it is advanced.
        s: the settings.

    Returns:
        int64 [len(links), K].
    """
    expected = np.stack([np.ceil(link.bits / (link.mean_rate() * s.slot)) for link in links])
    long = expected > s.long_transfer
    used = np.where(long, expected, 0).astype(np.int64)
    sent = np.where(long, np.inf, np.zeros_like(expected))
    bits = np.array([[link.bits] for link in links])
    while (rows := np.flatnonzero((sent < bits).any(0))).size:
        fade = fading.advance(rows, CHUNK)
        free = np.ones(fade.shape, dtype=np.bool_)
        for number, link in enumerate(links):
            before = sent[number, rows]
            if (before >= link.bits).all():
                continue
            through = np.where(free, link.rate(fade, rows) * s.slot, 0.0)
            through[:, 0] += before
            through = np.cumsum(through, axis=1)
            busy = free & (np.column_stack([before, through[:, :-1]]) < link.bits)
            used[number, rows] += busy.sum(1)
            sent[number, rows] = through[:, -1]
            free &= ~busy
    return used


@dataclass(frozen=True)
class RoundCost:
    """What one round costs; arrays [K] in the order of the participants.

    Attributes:
        down_s, up_s, compute_s: seconds each device receives, sends and computes. device_J: its energy [J].
    """

    down_s: Floats
    up_s: Floats
    compute_s: Floats
    device_J: Floats  # noqa: N815 - joules

    @property
    def latency_s(self) -> float:
        """Seconds until the slowest participant is done."""
        return float((self.down_s + self.up_s + self.compute_s).max())

    @property
    def energy_J(self) -> float:  # noqa: N802 - joules
        """Energy of all participants [J]."""
        return float(self.device_J.sum())


def total(rounds: float, costs: Sequence[RoundCost]) -> tuple[float, float]:
    """Latency [s] and energy [J] of ``rounds`` rounds at the mean cost of those seen; both infinite if ``rounds`` is."""
    latency, energy = (np.mean([[cost.latency_s, cost.energy_J] for cost in costs], axis=0) * rounds).tolist()
    return latency, energy


class Wireless:
    """The cost model of a run.

    Args:
        settings: constants.
        seed: of the run; a device's place and fading depend on nothing but (seed, device) and (seed, round, device).
        parameters: trainable parameters N_p.
        phi: FLOPs of a forward pass per parameter and sample, as :func:`flops_per_parameter` counts them; ``settings.phi``
            goes before it.
    """

    def __init__(self, settings: WirelessSettings, seed: int, parameters: int, phi: float) -> None:
        self.settings, self.seed, self.parameters = settings, seed, parameters
        self.phi = phi if settings.phi is None else settings.phi

    def gain(self, device: int, round_: int) -> float:
        """psi: attenuation of a device's place with its shadowing, as a factor on the power."""
        s = self.settings
        rng = generator(self.seed, "wireless.place", device, *((round_,) if s.redraw_per_round else ()))
        loss = path_loss(distance(rng.random(), s), s) + s.shadowing * rng.standard_normal()
        return float(10 ** (-loss / 10))

    def round_cost(
        self, round_: int, devices: Sequence[int], bytes_down: int, bytes_up: int, steps: Sequence[int], batch: int
    ) -> RoundCost:
        """Cost of one round.

        Args:
            round_: number of the round, key of its fading.
            devices: ids of the participants, at least one.
            bytes_down, bytes_up: payload of each of them; not looked at with ``payload: paper``.
            steps: local steps e of each.
            batch: samples per step B.
        """
        s = self.settings
        gains = np.array([self.gain(device, round_) for device in devices])
        published = 32 * self.parameters
        down, up = (published, published) if s.payload == "paper" else (8 * bytes_down, 8 * bytes_up)
        links = [
            self._link(s.bandwidth, s.server_power, gains, down),
            self._link(s.bandwidth / len(devices), s.send_power, gains, up),
        ]
        keyed = [generator(self.seed, "wireless.fading", round_, device) for device in devices]
        down_s, up_s = transmission_slots(links, Fading(keyed, s.correlation), s) * s.slot
        passes = {"forward": 1, "forward_backward": 3}[s.counted]
        work = np.array(steps, dtype=np.float64) * batch * self.parameters * self.phi * passes
        cycles = work / s.flops_per_cycle
        energy = s.receive_power * down_s + s.send_power * up_s + s.capacitance * cycles * s.clock**2
        return RoundCost(down_s, up_s, cycles / s.clock, energy)

    def _link(self, bandwidth: float, power: float, gains: Floats, bits: int) -> Link:
        return Link(bandwidth, power * gains / (self.settings.noise_density * bandwidth), bits)


def flops_per_parameter(network: nn.Module, inputs: Tensor) -> float:
    """phi: FLOPs of a forward pass per parameter and sample, two for each multiply-add of a weight.

    Element-wise layers and products of activations (a mean over words) are left out; the published values, from an unknown
    counter, are up to 2.2 % higher.

    Args:
        network: left as it is.
        inputs: any batch [B, ...] it accepts.
    """
    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.bmm: lambda *args, **kwargs: 0})
    with torch.no_grad(), counter:
        copy.deepcopy(network).eval()(inputs)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return float(counter.get_total_flops()) / len(inputs) / parameters
