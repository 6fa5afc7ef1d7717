"""The cell's path loss, fading and rates against printed values; transfers against closed forms and slot by slot."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from scipy.special import exp1

from fedtide.core.randomness import generator
from fedtide.methods.costs import wireless
from fedtide.methods.costs.wireless import Fading, Link, distance, path_loss, transmission_slots
from fedtide.settings.groups.evaluation import CostSettings

CELL = CostSettings()


def fading(count: int = 1, seed: int = 0, correlation: float = wireless.correlation(CELL)) -> Fading:
    """Independent processes of some devices."""
    return Fading([generator(seed, "test.fading", device) for device in range(count)], correlation)


def link(bits: float | np.ndarray, snr: tuple[float, ...] = (3.0,), bandwidth: float = 1e6) -> Link:
    return Link(bandwidth, np.array(snr), bits)


# Large scale


@pytest.mark.parametrize(
    ("meters", "decibels"),
    [(10, 66.7610328), (50, 79.0896492), (100, 85.3141891), (210, 92.0554309), (250, 95.0800759)],
)
def test_path_loss(meters: float, decibels: float) -> None:
    assert path_loss(meters, CELL) == pytest.approx(decibels, abs=5e-8)


@pytest.mark.parametrize(
    ("u", "meters"), [(0, 10), (0.25, 125.2996409), (0.5, 176.9180601), (0.75, 216.5640783), (1, 250)]
)
def test_places(u: float, meters: float) -> None:
    assert distance(u, CELL) == pytest.approx(meters, abs=5e-8)


# Small scale


def test_the_correlation_of_neighboring_slots() -> None:
    assert wireless.correlation(CELL) == pytest.approx(0.9666968519, abs=5e-11)


def test_fading_has_unit_power_and_the_correlation_of_its_process() -> None:
    """|h|^2 is exponential from the first slot on, and its autocorrelation is rho^2 at lag 1 (3 sigma)."""
    power, rho = fading(400).advance(np.arange(400), 4000), wireless.correlation(CELL)
    samples = power.size * (1 - rho**2) / (1 + rho**2)  # independent samples the correlated ones are worth
    assert power.mean() == pytest.approx(1.0, abs=3 / math.sqrt(samples))
    assert power[:, 0].mean() == pytest.approx(1.0, abs=3 / math.sqrt(400))
    assert power.var() == pytest.approx(1.0, abs=3 * math.sqrt(8 / samples))
    lag = np.mean((power[:, 1:] - 1) * (power[:, :-1] - 1)) / power.var()
    assert lag == pytest.approx(rho**2, abs=3 * math.sqrt(8 / samples))


def test_a_device_fades_alike_in_any_company_and_in_any_pieces() -> None:
    together = fading(3).advance(np.arange(3), 50)
    process = fading(3)
    pieces = [process.advance(np.array([1]), count) for count in (7, 1, 42)]
    assert np.array_equal(np.hstack(pieces)[0], together[1])


def test_without_movement_the_fading_stands_still() -> None:
    still = CostSettings(speed=0.0)
    power = fading(2, correlation=wireless.correlation(still)).advance(np.arange(2), 20)
    assert np.array_equal(power, np.repeat(power[:, :1], 20, axis=1))


# Rates and transfers


@pytest.mark.parametrize(
    ("bandwidth", "watts", "steady", "ergodic"),
    [
        (1e6, 0.2, 17.173086, 16.355532),
        (1e8, 20.0, 1717.30861, 1635.5532),
        (1e6, 20.0, 23.816933, 22.999342),
    ],
)
def test_rates_at_100_meters(bandwidth: float, watts: float, steady: float, ergodic: float) -> None:
    gain = 10 ** (-path_loss(100.0, CELL) / 10)
    found = Link(bandwidth, np.array([watts * gain / (wireless.noise_density(CELL) * bandwidth)]), 0)
    digits = 5e-7 if steady < 100 else 5e-5
    assert found.rate(np.ones(1)).item() / 1e6 == pytest.approx(steady, abs=digits)
    assert found.mean_rate().item() / 1e6 == pytest.approx(ergodic, abs=digits)


def test_the_mean_rate_is_the_mean_over_the_fading() -> None:
    """E log2(1 + g x) = e^(1/g) E1(1/g) / ln 2 for x ~ Exp(1)."""
    snr = np.array([0.5, 3.0, 40.0, 1e6])
    exact = np.exp(1 / snr) * exp1(1 / snr) / math.log(2)
    np.testing.assert_allclose(link(0, tuple(snr), 1.0).mean_rate(), exact, rtol=2e-3)


@given(
    bits=st.lists(st.lists(st.just(0.0) | st.floats(0, 1e5), min_size=3, max_size=3), min_size=1, max_size=6),
    snr=st.lists(st.floats(0.1, 1e4), min_size=1, max_size=3),
    chunk=st.sampled_from([1, 3, 64]),
)
@examples(deadline=None, max_examples=50)
@pytest.mark.slow
def test_slots_are_counted_one_by_one(bits: list[list[float]], snr: list[float], chunk: int) -> None:
    """Against a plain loop over slots: a transfer begins in the slot after the device's previous one is through."""
    links = [link(np.array(each[: len(snr)]), tuple(snr), 1e6 * (1 + number % 2)) for number, each in enumerate(bits)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wireless, "CHUNK", chunk)
        found = transmission_slots(links, fading(len(snr)), CELL)
    slots = int(found.sum(0).max()) + 1
    power = fading(len(snr)).advance(np.arange(len(snr)), slots)
    for device in range(len(snr)):
        at = 0
        for number, each in enumerate(links):
            sent, used = 0.0, 0
            while sent < bits[number][device]:
                sent += each.bandwidth * math.log2(1 + each.snr[device] * power[device, at]) * CELL.slot
                used, at = used + 1, at + 1
            assert found[number, device] == used


def test_long_transfers_take_their_bits_over_the_mean_rate() -> None:
    short = CostSettings(long_transfer=20)
    links = [link(2e3, (3.0, 0.01)), link(0, (3.0, 0.01))]
    expected = 2e3 / (links[0].mean_rate() * short.slot)
    found = transmission_slots(links, fading(2), short)
    assert expected[1] > 20 > expected[0] + 1
    assert found[0, 1] == math.ceil(expected[1])
    assert found[0, 0] == transmission_slots(links, fading(2), CELL)[0, 0]
