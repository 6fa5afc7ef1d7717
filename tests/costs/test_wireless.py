"""Rounds in the cell against closed forms and published figures."""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedtide.core import plugins
from fedtide.methods.costs import wireless
from fedtide.methods.costs.wireless import Link, Segment, Wireless, flops_per_parameter
from fedtide.settings.groups.evaluation import CostSettings

SVHN = (667_178, 91.04)
TINY_IMAGENET = (21_730_056, 27.69)


def once(samples: Sequence[int]) -> list[Segment]:
    """A round of devices that exchange models at its end alone."""
    return [Segment(list(range(len(samples))), list(samples))]


def costs(model: tuple[int, float], count: int, **values: Any) -> tuple[float, float]:
    """Mean latency [s] and energy [kJ] of a round of 100 devices over ``count`` placements, 5 x 128 samples each."""
    s = CostSettings(payload="paper", **values)
    rounds = [Wireless(s, seed, *model).round_cost([0], range(100), once([640] * 100), 0, 0) for seed in range(count)]
    latency, energy = np.mean([[cost.latency_s, cost.energy_J] for cost in rounds], axis=0).tolist()
    return latency, energy / 1e3


def printed(number: str) -> Any:
    """What rounds to a printed number."""
    return pytest.approx(float(number), rel=0, abs=0.5 * 10.0 ** Decimal(number).as_tuple().exponent)


@pytest.mark.parametrize(
    ("parameters", "phi", "megabit", "seconds", "joules"),
    [
        (7_850, 2.0, "0.2512", "0.001256", "0.0001256"),
        (*SVHN, "21.349696", "4.859191", "0.485919"),
        (11_573_066, 6.5, "370.338112", "6.017994", "0.601799"),
        (11_596_196, 6.5, "371.078272", "6.030022", "0.603002"),
        (*TINY_IMAGENET, "695.361792", "48.136420", "4.813642"),
        (9_157_804, 2.63e-4, "293.049728", "0.00019268", "1.9268e-5"),
    ],
)
def test_a_round_in_closed_form(parameters: int, phi: float, megabit: str, seconds: str, joules: str) -> None:
    """At mean rates: seconds and joules of both directions and of the computation, to the printed digits."""
    s = CostSettings(payload="paper", long_transfer=0)
    model = Wireless(s, 3, parameters, phi)
    cost = model.round_cost([0], [4, 8], once([1, 1]), 0, 0)
    assert 32 * parameters / 1e6 == float(megabit)
    assert cost.compute_s == printed(seconds)
    for row, device in enumerate((4, 8)):
        snr = model.gain(device, [0]) / wireless.noise_density(s)
        down = Link(s.bandwidth, np.array([20.0 * snr / 1e8]), 0).mean_rate().item()
        up = Link(5e7, np.array([0.2 * snr / 5e7]), 0).mean_rate().item()
        times = [math.ceil(32 * parameters / (rate * 5e-4)) * 5e-4 for rate in (down, up)]
        assert (cost.down_s[row], cost.up_s[row]) == pytest.approx(times)
        assert cost.device_J[row] - 0.1 * cost.down_s[row] - 0.2 * cost.up_s[row] == printed(joules)
    assert cost.latency_s == (cost.down_s + cost.up_s + cost.compute_s).max()
    assert cost.energy_J == pytest.approx(cost.device_J[0] + cost.device_J[1], rel=1e-14)


def test_the_whole_payload_is_the_algorithms_or_the_papers() -> None:
    """4 bytes per parameter each way are the paper's payload."""
    declared, paper = (Wireless(CostSettings(payload=payload), 0, 1_000_000, 1.0) for payload in ("algorithm", "paper"))
    first, second = (
        model.round_cost([2], [0, 1, 2], once([8, 16, 24]), 4_000_000, 4_000_000) for model in (declared, paper)
    )
    assert np.array_equal(first.down_s, second.down_s)
    assert np.array_equal(first.up_s, second.up_s)
    more = [Segment([1], [0]), *once([8, 16, 24])]
    twice = declared.round_cost([2], [0, 1, 2], more, 4_000_000, 4_000_000)
    assert (twice.down_s > first.down_s).tolist() == [False, True, False]
    assert first.compute_s == pytest.approx(np.array([1, 2, 3]) * 8 * 1_000_000 / 8e9)
    assert second.compute_s == pytest.approx(np.full(3, 5 * 128 * 1_000_000 / 8e9))


def test_the_backward_pass_may_be_counted() -> None:
    base, trained = (
        Wireless(CostSettings(**values), 0, 10_000, 2.0).round_cost([0], [0], once([50]), 0, 0).compute_s.item()
        for values in ({}, {"passes": 3.0})
    )
    assert trained / base == pytest.approx(3.0)


def test_slow_and_fast_devices_in_closed_form() -> None:
    """40 samples x 10^6 parameters / 8 FLOPs per cycle are 5 10^6 cycles: 10 ms at 0.5 GHz and 2.5 ms at 2 GHz."""
    s = CostSettings(clock_factors=(0.5, 2.0))
    mixed, alike = Wireless(s, 1, 10**6, 1.0), Wireless(CostSettings(), 1, 10**6, 1.0)
    assert {alike.frequency(device) for device in range(9)} == {1e9}
    speeds = [mixed.frequency(device) for device in range(400)]
    assert speeds == [Wireless(s, 1, 1, 1.0).frequency(device) for device in range(400)]
    assert speeds != [Wireless(s, 2, 1, 1.0).frequency(device) for device in range(400)]
    assert abs(speeds.count(5e8) - 200) < 40  # four standard deviations
    slow, fast = speeds.index(5e8), speeds.index(2e9)
    cost, usual = (model.round_cost([0], [slow, fast], once([40, 40]), 99, 99) for model in (mixed, alike))
    assert cost.compute_s == pytest.approx([0.01, 0.0025])
    assert np.array_equal(cost.up_s, usual.up_s)
    assert cost.device_J - usual.device_J == pytest.approx([5e6 * 1e-28 * (f**2 - 1e18) for f in (5e8, 2e9)])
    jobs, same = (model.job_costs([0, 1], [slow, fast], [40, 40], 99, 99, 2) for model in (mixed, alike))
    assert (jobs.slots - same.slots).tolist() == [20 - 10, 5 - 10]  # slots of half a millisecond
    assert jobs.device_J - same.device_J == pytest.approx(cost.device_J - usual.device_J)


@pytest.mark.parametrize("values", [{}, {"long_transfer": 50}, {"speed": 0.0}])
def test_a_job_costs_the_same_alone_and_among_others(values: dict[str, Any]) -> None:
    """To the bit, also where a transfer needs several chunks of slots, or there is nothing to send."""
    model = Wireless(CostSettings(**values), 0, 200_000, 2.0)
    for down, up in ((800_000, 800_000), (0, 5000), (0, 0), (10**7, 3 * 10**7)):
        many = model.job_costs(range(12), range(12), [30] * 12, down, up, 10)
        for number in range(12):
            alone = model.job_costs([number], [number], [30], down, up, 10)
            assert (alone.slots[0], alone.device_J[0]) == (many.slots[number], many.device_J[number])


def test_places_last_for_the_run_or_a_round_and_fading_for_a_round() -> None:
    model = Wireless(CostSettings(), 5, 1000, 1.0)
    assert model.gain(3, [0]) == model.gain(3, [9])
    assert model.gain(3, [0]) != model.gain(4, [0])
    assert model.gain(3, [0]) != Wireless(CostSettings(), 6, 1000, 1.0).gain(3, [0])
    first, again, later = (model.round_cost([t], [3, 4], once([1, 1]), 10**6, 10**6) for t in (0, 0, 1))
    assert np.array_equal(first.up_s, again.up_s)
    assert not np.array_equal(first.up_s, later.up_s)
    gradient = model.round_cost([0], [3, 4], once([1, 1]), 10**6, 10**6, "gradient")
    assert not np.array_equal(first.up_s, gradient.up_s)
    alone = model.round_cost([0], [4], once([1]), 10**6, 10**6)
    assert alone.down_s[0] == first.down_s[1]
    moving = Wireless(CostSettings(placement="every_round"), 5, 1000, 1.0)
    assert moving.gain(3, [0]) == moving.gain(3, [0])
    assert moving.gain(3, [0]) != moving.gain(3, [1])


# Averages inside a round


MEGABIT = 1e6
STEADY = CostSettings(long_transfer=0, shadowing=0.0)  # mean rates; shares of the band are seen in whole slots


def transfer(model: Wireless, device: int, bandwidth: float, watts: float, megabit: float = 8.0) -> float:
    """Seconds of one transfer at the mean rate."""
    snr = watts * model.gain(device, [0]) / (wireless.noise_density(STEADY) * bandwidth)
    rate = Link(bandwidth, np.array([snr]), 0).mean_rate().item()
    return math.ceil(megabit * MEGABIT / (rate * STEADY.slot)) * STEADY.slot


def test_a_round_with_an_average_inside_in_closed_form() -> None:
    """Devices 0 and 1 average after one step, 2 trains on; then all three. A sample takes a millisecond."""
    model = Wireless(STEADY, 1, 4_000_000, 2.0)
    cost = model.round_cost([0], [0, 1, 2], [Segment([0, 1], [10, 400]), Segment([0, 1, 2], [5, 5, 300])], 10**6, 10**6)
    down = [transfer(model, device, 1e8, 20.0) for device in range(3)]
    inside = [transfer(model, device, 1e8 / 2, 0.2) for device in range(2)]
    last = [transfer(model, device, 1e8 / 3, 0.2) for device in range(3)]
    assert cost.down_s == pytest.approx([2 * down[0], 2 * down[1], down[2]])
    assert cost.up_s == pytest.approx([inside[0] + last[0], inside[1] + last[1], last[2]])
    assert cost.compute_s == pytest.approx([0.015, 0.405, 0.3])
    arrived = [down[0] + 0.010 + inside[0], down[1] + 0.400 + inside[1]]
    assert cost.waited_s == pytest.approx([arrived[1] - arrived[0], 0, 0])
    ends = [arrived[1] + down[row] + 0.005 + last[row] for row in (0, 1)] + [down[2] + 0.3 + last[2]]
    assert cost.latency_s == pytest.approx(max(ends))
    assert cost.device_J == pytest.approx(0.1 * cost.down_s + 0.2 * cost.up_s + 0.1 * cost.compute_s)


def test_a_wait_is_on_the_clock_at_the_next_average() -> None:
    """Two averages inside the round: the fast device waits equally long for the slow one at both."""
    model = Wireless(STEADY, 1, 4_000_000, 2.0)
    together = [Segment([0, 1], [10, 400]), Segment([0, 1], [10, 400]), Segment([0, 1], [5, 5])]
    cost = model.round_cost([0], [0, 1], together, 10**6, 10**6)
    fast, slow = (transfer(model, device, 1e8, 20.0) + transfer(model, device, 1e8 / 2, 0.2) for device in (0, 1))
    assert cost.waited_s == pytest.approx([2 * (slow + 0.400 - fast - 0.010), 0])


def test_alone_in_the_group_there_is_nobody_to_wait_for() -> None:
    model = Wireless(STEADY, 1, 4_000_000, 2.0)
    cost = model.round_cost([0], [0, 1], [Segment([0], [5])] * 3 + [Segment([0, 1], [5, 20])], 10**6, 10**6)
    assert not cost.waited_s.any()
    assert cost.compute_s == pytest.approx([0.02, 0.02])
    assert cost.down_s / [transfer(model, device, 1e8, 20.0) for device in (0, 1)] == pytest.approx([4, 1])


def test_an_idle_client_costs_nothing() -> None:
    model = Wireless(CostSettings(), 1, 4_000_000, 2.0)
    cost = model.round_cost([0], [0, 1], [Segment([1], [5]), Segment([1], [5])], 10**6, 10**6)
    assert cost.device_J[0] == cost.down_s[0] == cost.up_s[0] == cost.compute_s[0] == 0
    alone = model.round_cost([0], [1], [Segment([0], [5]), Segment([0], [5])], 10**6, 10**6)
    assert (alone.latency_s, alone.energy_J) == (cost.latency_s, cost.energy_J)
    nobody = model.round_cost([0], [0, 1], [], 10**6, 10**6)
    assert nobody.latency_s == nobody.energy_J == 0


def test_samples_given_for_a_round_are_spread_over_its_segments() -> None:
    model = Wireless(CostSettings(samples=60), 1, 4_000_000, 2.0)
    cost = model.round_cost([0], [0, 1], [Segment([0], [5]), Segment([0, 1], [7, 12])], 10**6, 10**6)
    assert cost.compute_s == pytest.approx([0.06, 0.06])


# The published round (Monte Carlo)


@pytest.mark.slow
def test_published_round_slot_by_slot() -> None:
    latency, energy = costs(SVHN, 200)
    assert latency == pytest.approx(6.89, abs=0.05)
    assert energy == pytest.approx(0.0778, abs=0.0003)


# Computation


def built(name: str, shape: tuple[int, ...], classes: int, vocabulary: int = 0, **values: Any) -> nn.Module:
    cls = plugins.load("models", name)
    return cls(cls.Settings(**values)).build(shape, classes, vocabulary)  # type: ignore[attr-defined,no-any-return]


PROJECTED = {"norm": "batch", "stem": "imagenet", "projection": True}


@pytest.mark.parametrize(
    ("name", "inputs", "classes", "values", "multiply_adds", "phi"),
    [
        ("softmax_regression", (1, 28, 28), 10, {}, 7_840, 1.997),
        ("cnn_svhn", (3, 32, 32), 10, {}, 29_723_136, 89.10),
        ("resnet18", (3, 32, 32), 10, PROJECTED, 37_407_232, 6.464),
        ("resnet18", (3, 32, 32), 100, PROJECTED, 37_430_272, 6.456),
        ("resnet34", (3, 64, 64), 200, PROJECTED, 299_485_184, 27.564),
    ],
)
def test_flops_per_parameter(
    name: str, inputs: tuple[int, ...], classes: int, values: dict[str, Any], multiply_adds: int, phi: float
) -> None:
    with torch.device("meta"):
        network = built(name, inputs, classes, **values)
        found = flops_per_parameter(network, torch.zeros(2, *inputs))
    assert found == pytest.approx(phi, abs=1e-3 if phi < 50 else 5e-3)
    assert found * sum(p.numel() for p in network.parameters()) == pytest.approx(2 * multiply_adds, rel=1e-12)


def test_flops_per_parameter_on_text() -> None:
    with torch.device("meta"):
        network = built("embedding_bag", (64,), 4, 30_522)
        found = flops_per_parameter(network, torch.zeros(1, 64, dtype=torch.int64))
    assert found == pytest.approx(2 * 300 * 4 / 9_157_804, rel=1e-12)


def test_counting_leaves_the_network_alone() -> None:
    network = built("cnn_svhn", (1, 8, 8), 3)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    flops_per_parameter(network, torch.ones(2, 1, 8, 8))
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


# Refusals


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"min_distance": 300.0}, "min_distance = 300 exceeds cell_radius = 250"),
        ({"environment_height": 1.5}, "environment_height = 1.5 must be below"),
        ({"clock_factors": ()}, "clock_factors"),
    ],
)
def test_impossible_cells_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CostSettings(**values)
