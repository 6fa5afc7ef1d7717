"""Seconds and joules of a round in one cell: communication and the devices' computation (Chang et al.).

In a round the server broadcasts on the whole band W, and K participants upload at once on W/K each; jobs that overlap
arbitrarily have a fixed share of the band and of the server's power each. Path loss and shadowing are those of a street
canyon in line of sight (3GPP TR 38.901, table 7.4.1-1, UMi); fading is a first-order Gauss-Markov process with the correlation
of Jakes' spectrum. Training depends on it with ``mode: async`` alone.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.core.randomness import generator
from fedtide.settings.groups.evaluation import CostSettings

CHUNK = 4096
"""Most slots simulated at a time; no result depends on it."""

_ROUNDING = 1e-9  # a duration of whole slots is not rounded up because its binary form is a little above

PAPER_SAMPLES = 5 * 128
"""Samples that a device processes in every published round."""

_FADES, _SHARES = np.polynomial.laguerre.laggauss(60)


LIGHT = 3e8
"""Speed of light [m/s], rounded as in the path-loss model."""


def break_point(s: CostSettings) -> float:
    """Horizontal distance d_BP beyond which the path loss grows with the fourth power [m]."""
    heights = (s.base_height - s.environment_height) * (s.device_height - s.environment_height)
    return 4 * heights * s.carrier * 1e9 / LIGHT


def noise_density(s: CostSettings) -> float:
    """N_0 [W/Hz]."""
    return float(10 ** ((s.noise - 30) / 10))


def correlation(s: CostSettings) -> float:
    """rho = J_0(2 pi f_d tau), the correlation of the fading in neighboring slots, with f_d = v f_c / c."""
    x = 2 * math.pi * s.speed * s.carrier * 1e9 / LIGHT * s.slot
    theta = np.arange(4096) * (math.pi / 4096)  # equal steps over a period of Bessel's integral converge fast
    return float(np.cos(x * np.sin(theta)).mean())


def distance(u: Floats | float, s: CostSettings) -> Floats:
    """Horizontal distance d_2D [m] at quantile ``u`` of a uniform density over the ring from d_min to R_cell."""
    inner, outer = s.min_distance**2, s.cell_radius**2
    return np.sqrt(inner + np.asarray(u) * (outer - inner))


def path_loss(d: Floats | float, s: CostSettings) -> Floats:
    """Mean attenuation [dB] at horizontal distance ``d`` [m]; continuous at the break point."""
    d = np.asarray(d, dtype=np.float64)
    square = d**2 + (s.base_height - s.device_height) ** 2
    common = 32.4 + 20 * math.log10(s.carrier)
    corner = break_point(s) ** 2 + (s.base_height - s.device_height) ** 2
    near = common + 10.5 * np.log10(square)
    far = common + 20 * np.log10(square) - 9.5 * math.log10(corner)
    return np.where(d <= break_point(s), near, far)


@dataclass(frozen=True)
class Link:
    """One direction of K transfers: ``bandwidth`` [Hz] and ``bits`` ([K] or a number) of each, and ``snr`` [K] at |h| = 1."""

    bandwidth: float
    snr: Floats
    bits: Floats | Ints | float

    def rate(self, fade: Floats, rows: Ints | slice = slice(None)) -> Floats:
        """Rates [K, n] in bit/s for |h|^2 ``fade`` [K, n] (or [n]) of the transfers ``rows``."""
        rates: Floats = self.bandwidth * np.log2(1 + self.snr[rows, None] * fade)
        return rates

    def mean_rate(self) -> Floats:
        """Rate [K] averaged over |h|^2 ~ Exp(1), by Gauss-Laguerre quadrature."""
        mean: Floats = self.rate(_FADES) @ _SHARES
        return mean


class Fading:
    """|h|^2 of K independent stationary processes h[n] = rho h[n-1] + sqrt(1 - rho^2) e[n], e ~ CN(0, 1).

    Each device draws from its own generator, in the order of its slots, independently of the other devices.
    """

    def __init__(self, generators: Sequence[np.random.Generator], correlation: float) -> None:
        self._generators, self._correlation = generators, correlation
        self._h = _complex_normals(generators, 1)[:, 0]

    def advance(self, rows: Ints, count: int) -> Floats:
        """The next ``count`` slots of the devices ``rows``: [len(rows), count]."""
        from scipy.signal import lfilter

        rho = self._correlation
        e = _complex_normals([self._generators[row] for row in rows.tolist()], count)
        h, _ = lfilter([1.0], [1.0, -rho], e * math.sqrt(1 - rho**2), zi=rho * self._h[rows, None])
        self._h[rows] = h[:, -1]
        power: Floats = h.real**2 + h.imag**2
        return power


def _complex_normals(generators: Sequence[np.random.Generator], count: int) -> NDArray[np.complex128]:
    """The next ``count`` draws of CN(0, 1) of each generator, [len(generators), count]."""
    normals = np.empty((len(generators), 2 * count))
    for rng, row in zip(generators, normals, strict=True):
        rng.standard_normal(out=row)
    return (normals * math.sqrt(0.5)).view(np.complex128)


def transmission_slots(links: Sequence[Link], fading: Fading, s: CostSettings) -> Ints:
    """Slots int64 [links, K] of consecutive transfers of K devices on the same fading process, which is advanced.

    A transfer starts at the end of the previous one and lasts until its bits are sent. Transfers expected to need more than
    ``s.long_transfer`` slots are computed at the mean rate, in whole slots, since fading averages out (the error is below
    0.5 % from 20 Mbit on).
    """
    per_slot = np.stack([link.mean_rate() * s.slot for link in links])
    bits = np.stack([np.broadcast_to(link.bits, rates.shape) for link, rates in zip(links, per_slot, strict=True)])
    expected = np.ceil(bits / per_slot)
    long = expected > s.long_transfer
    used = np.where(long, expected, 0).astype(np.int64)
    sent = np.where(long, np.inf, np.zeros_like(expected))
    while (rows := np.flatnonzero((sent < bits).any(0))).size:
        left = ((bits - sent).clip(min=0) / per_slot).sum(0).max()
        fade = fading.advance(rows, min(CHUNK, _enough(left)))
        end = fade.shape[1]
        at = np.zeros(len(rows), dtype=np.int64)  # the next slot of each device, up to ``end``
        for number in np.flatnonzero((sent < bits).any(1)).tolist():
            wanted = bits[number, rows]
            while (who := np.flatnonzero((sent[number, rows] < wanted) & (at < end))).size:
                devices, begun = rows[who], at[who]
                left = ((wanted[who] - sent[number, devices]) / per_slot[number, devices]).max()
                columns = begun[:, None] + np.arange(min(_enough(left), end))
                through = links[number].rate(fade[who[:, None], np.minimum(columns, end - 1)], devices) * s.slot
                through[:, 0] += sent[number, devices]
                through = np.cumsum(through, axis=1)
                took = np.minimum(1 + (through[:, :-1] < wanted[who, None]).sum(1), end - begun)
                sent[number, devices] = through[np.arange(len(who)), took - 1]
                used[number, devices] += took
                at[who] += took
    return used


def _enough(expected: float) -> int:
    """Slots that most likely suffice for transfers expected to take so many."""
    return int(1.2 * expected) + 8


@dataclass(frozen=True)
class Segment:
    """Local work up to an exchange: ``rows`` of the devices that take part, one or more, and the ``samples`` of each."""

    rows: list[int]
    samples: Sequence[float]


@dataclass(frozen=True)
class RoundCost:
    """What a round costs, arrays [K] in the order of the participants.

    Seconds each receives, sends, computes, and waits for others at averages inside the round; its energy [J], waiting free.
    """

    down_s: Floats
    up_s: Floats
    compute_s: Floats
    waited_s: Floats
    device_J: Floats  # noqa: N815 - joules

    @property
    def latency_s(self) -> float:
        """Seconds until the slowest participant is done."""
        return float((self.down_s + self.up_s + self.compute_s + self.waited_s).max())

    @property
    def energy_J(self) -> float:  # noqa: N802 - joules
        """Energy of all participants [J]."""
        return float(self.device_J.sum())


class JobCosts(NamedTuple):
    """What jobs cost, arrays [K]: slots, with computation rounded up to whole ones, and the device's energy [J]."""

    slots: Ints
    device_J: Floats  # noqa: N815 - joules


class Wireless:
    """The cost model of a run with N_p trainable ``parameters``; ``phi`` as :func:`flops_per_parameter` counts it.

    A device's place and processor depend only on (seed, device), its fading on (seed, round, device).
    """

    def __init__(self, settings: CostSettings, seed: int, parameters: int, phi: float) -> None:
        self.settings, self.seed, self.parameters, self.phi = settings, seed, parameters, phi
        self._correlation = correlation(settings)
        self._gain_once = cache(self._gain)

    def gain(self, device: int, keys: Sequence[int]) -> float:
        """psi: path loss and shadowing at a device's place, as a factor of the power."""
        return self._gain(device, *keys) if self.settings.placement == "every_round" else self._gain_once(device)

    def _gain(self, *keys: int) -> float:
        s, rng = self.settings, generator(self.seed, "wireless.place", *keys)
        loss = path_loss(distance(rng.random(), s), s) + s.shadowing * rng.standard_normal()
        return float(10 ** (-loss / 10))

    def frequency(self, device: int) -> float:
        """f: cycles per second of a device's processor."""
        factors = self.settings.clock_factors
        drawn = generator(self.seed, "wireless.processor", device).integers(len(factors)) if len(factors) > 1 else 0
        return self.settings.clock * factors[drawn]

    def _processors(self, devices: Sequence[int]) -> tuple[Floats, Floats]:
        f = [self.frequency(device) for device in devices]
        return np.array(f), np.array([each**2 for each in f])

    def round_cost(
        self,
        keys: Sequence[int],
        devices: Sequence[int],
        segments: Sequence[Segment],
        bytes_down: Ints | int,
        bytes_up: int,
        purpose: str = "batches",
    ) -> RoundCost:
        """Cost of one round of K devices.

        Devices that take part in any segment receive the model once at the beginning. At the end of every segment its members
        upload at once and share the band evenly; after all but the last they wait for the slowest member and receive the
        average.

        Args:
            keys: of the round (its number), with ``purpose`` those of its fading. devices: ids of the K devices.
            segments: of the round, in order; none if no device trains.
            bytes_down, bytes_up: what a device receives ([K], or all the same) and sends in one exchange; ignored with
                ``payload: paper``.
        """
        s = self.settings
        gains = np.array([self.gain(device, keys) for device in devices])
        bytes_down, bytes_up = self._payload(bytes_down, bytes_up)
        member = np.zeros((len(segments), len(devices)))
        for row, segment in zip(member, segments, strict=True):
            row[segment.rows] = 1
        links = [self._link(s.bandwidth, s.server_power, gains, 8 * bytes_down * member.max(0, initial=0))]
        for row in member:
            links.append(self._link(s.bandwidth / row.sum(), s.send_power, gains, 8 * bytes_up * row))
            links.append(self._link(s.bandwidth, s.server_power, gains, 8 * bytes_down * row))
        del links[max(1, 2 * len(segments)) :]  # no device receives at the end
        keyed = [generator(self.seed, f"wireless.{purpose}", *keys, device) for device in devices]
        slots = transmission_slots(links, Fading(keyed, self._correlation), s)
        took = slots.astype(np.float64) * s.slot
        down, up = took[0::2], took[1::2]
        cycles, (f, square) = self._cycles(self._samples(segments, member)), self._processors(devices)
        compute: Floats = cycles / f
        down_s, up_s = down.sum(0), up.sum(0)
        energy = s.receive_power * down_s + s.send_power * up_s + s.capacitance * cycles.sum(0) * square
        return RoundCost(down_s, up_s, compute.sum(0), _waits(member > 0, down, up, compute), energy)

    def job_costs(
        self,
        numbers: Sequence[int],
        devices: Sequence[int],
        samples: Sequence[int],
        down: Ints | int,
        up: int,
        places: int,
    ) -> JobCosts:
        """Costs of K jobs of one device each: a download, computation and an upload, independent of all other jobs.

        Args:
            numbers: of the jobs; with the devices' ids, the keys of their fading. devices: ids.
            samples: that each processes. down, up: bytes that it receives ([K], or all the same) and sends; ignored with
                ``payload: paper``.
            places: jobs at once; each has this fraction of the band, and of the server's power in it.
        """
        s, fixed = self.settings, self._fixed_samples()
        down, up = self._payload(down, up)
        gains = np.array([self.gain(device, (number,)) for number, device in zip(numbers, devices, strict=True)])
        links = [
            self._link(s.bandwidth / places, s.server_power / places, gains, 8 * down),
            self._link(s.bandwidth / places, s.send_power, gains, 8 * up),
        ]
        keyed = [generator(self.seed, "wireless.jobs", *key) for key in zip(numbers, devices, strict=True)]
        slots = transmission_slots(links, Fading(keyed, self._correlation), s)
        cycles = self._cycles(np.array(samples if fixed is None else [fixed] * len(samples), dtype=np.float64))
        f, square = self._processors(devices)
        computing = np.ceil(cycles / f / s.slot - _ROUNDING).astype(np.int64)
        seconds = slots * s.slot
        energy = s.receive_power * seconds[0] + s.send_power * seconds[1] + s.capacitance * cycles * square
        return JobCosts(slots.sum(0) + computing, energy)

    def _payload(self, down: Ints | int, up: int) -> tuple[Ints | int, int]:
        return (4 * self.parameters,) * 2 if self.settings.payload == "paper" else (down, up)

    def _cycles(self, samples: Floats) -> Floats:
        """Processor cycles for numbers of samples."""
        cycles: Floats = samples * self.parameters * self.phi * self.settings.passes / self.settings.flops_per_cycle
        return cycles

    def _fixed_samples(self) -> int | None:
        """Samples processed per round or job, if not those of the batches."""
        s = self.settings
        return PAPER_SAMPLES if s.payload == "paper" and s.samples is None else s.samples

    def _samples(self, segments: Sequence[Segment], member: Floats) -> Floats:
        """Samples processed, [segments, K]; a fixed number per round is spread evenly over a device's segments."""
        fixed = self._fixed_samples()
        if fixed is not None:
            share: Floats = member / member.sum(0).clip(min=1)
            return fixed * share
        samples = np.zeros_like(member)
        for row, segment in zip(samples, segments, strict=True):
            row[segment.rows] = segment.samples
        return samples

    def _link(self, bandwidth: float, power: float, gains: Floats, bits: Floats | Ints | float) -> Link:
        return Link(bandwidth, power * gains / (noise_density(self.settings) * bandwidth), bits)


def _waits(member: Bools, down: Floats, up: Floats, compute: Floats) -> Floats:
    """Seconds [K] that devices wait for the slowest member at the end of each segment but the last; from [segments, K]."""
    clock, waited = np.zeros(member.shape[1]), np.zeros(member.shape[1])
    for rows, received, sent, computed in zip(member[:-1], down, up, compute, strict=False):
        clock += received + computed + sent
        wait = clock[rows].max() - clock[rows]
        waited[rows] += wait
        clock[rows] += wait
    return waited


def flops_per_parameter(network: nn.Module, inputs: Tensor) -> float:
    """phi: FLOPs of a forward pass on a batch [B, ...] per trained parameter and sample, two for each multiply-add of a weight.

    Element-wise layers and products of activations (a mean over words) are left out; the published values, from an unknown
    counter, are up to 2.2 % higher.
    """
    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.bmm: lambda *args, **kwargs: 0})
    frozen = copy.deepcopy(network).eval().requires_grad_(False)  # the counter fails on parameters with gradients
    with counter:
        frozen(inputs)
    parameters = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    return float(counter.get_total_flops()) / len(inputs) / parameters
