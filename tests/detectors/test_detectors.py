"""Detectors against river's own objects."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.methods.detectors.base import Detector
from support import settings

NAMES = [name for name in plugins.names("detectors") if name != "none"]
AS_THEY_ARE: dict[str, dict[str, Any]] = {
    "adwin": {"delta": 0.05, "min_window_length": 5},
    "ddm": {"limit": 1.0, "warm_start": 10},
    "kswin": {"window_size": 30, "stat_size": 10},
    "page_hinkley": {"min_instances": 10, "delta": 0.005, "threshold": 1.0},
}
"""Settings for losses that are shown as they are."""


def detector(**chosen: Any) -> Detector:
    return plugins.create(Detector, settings(detector=chosen).detector)


def plain(name: str, **chosen: Any) -> Detector:
    """A detector that is shown the losses as they are."""
    return detector(name=name, reference=None, **{**AS_THEY_ARE[name], **chosen})


def alarms(test: Callable[[float], bool], losses: Iterable[float]) -> list[int]:
    return [t for t, loss in enumerate(losses) if test(float(loss))]


def of_river(test: Any, losses: Iterable[float]) -> list[int]:
    def step(loss: float) -> bool:
        test.update(loss)
        return bool(test.drift_detected)

    return alarms(step, losses)


def noisy(*pieces: tuple[int, float]) -> Any:
    """Losses around some levels, each for some rounds."""
    rng = np.random.default_rng(1)
    return np.concatenate([level + 0.05 * rng.normal(size=count) for count, level in pieces])


@pytest.mark.slow
def test_a_jump_is_found_where_river_finds_it() -> None:
    drift = pytest.importorskip("river.drift")
    binary = pytest.importorskip("river.drift.binary")
    losses = noisy((60, 0.5), (60, 1.5))
    own = {
        "adwin": drift.ADWIN(0.05, clock=1),
        "page_hinkley": drift.PageHinkley(10, 0.005, 1.0, mode="up"),
        "kswin": drift.KSWIN(0.005, 30, 10, seed=7),
        "ddm": binary.DDM(10),
    }
    assert sorted(own) == NAMES
    for name, test in own.items():
        first = of_river(test, losses > 1.0 if name == "ddm" else losses)[0]
        found = alarms(plain(name).begin(7), losses)
        assert 60 <= found[0] == first < 80, name


@pytest.mark.parametrize("name", ["adwin", "page_hinkley", "kswin"])
def test_a_fall_is_an_alarm_only_if_it_is_asked_for(name: str) -> None:
    pytest.importorskip("river")
    losses = noisy((60, 1.5), (60, 0.5))
    assert alarms(plain(name).begin(7), losses) == []
    assert 60 <= alarms(plain(name, direction="both").begin(7), losses)[0] < 80
    assert alarms(detector(name=name).begin(7), losses) == []


def test_the_errors_of_ddm_are_losses_above_its_limit() -> None:
    pytest.importorskip("river")
    losses = noisy((60, 0.5), (60, 1.5))
    for limit in (0.1, 2.0):
        assert alarms(plain("ddm", limit=limit).begin(0), losses) == []


def test_draws_of_kswin_have_the_seed_it_is_given() -> None:
    drift = pytest.importorskip("river.drift")
    losses = noisy((100, 0.5))
    found = {seed: alarms(plain("kswin", alpha=0.3, direction="both").begin(seed), losses) for seed in range(4)}
    assert found == {seed: of_river(drift.KSWIN(0.3, 30, 10, seed=seed), losses) for seed in range(4)}
    assert len(set(map(tuple, found.values()))) > 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", [1.0, 64.0, 1 / 64])
def test_the_defaults_see_a_rise_of_falling_losses_in_any_unit(name: str, unit: float) -> None:
    """From 2 down to 0.53, then 0.81, with noise: seen within six rounds, and nothing before; powers of two change no bit."""
    pytest.importorskip("river")
    falling = 0.53 + 1.47 * np.exp(-np.arange(60) / 6)
    losses = np.append(falling, np.full(10, 0.81)) + 0.02 * np.random.default_rng(3).normal(size=70)
    assert 60 <= alarms(detector(name=name).begin(7), unit * losses)[0] < 66
    assert alarms(detector(name=name).begin(7), unit * losses[:60]) == []


def test_a_loss_is_shown_in_standard_deviations_from_earlier_ones() -> None:
    """Page-Hinkley without a tolerance: it is shown 1, the least, then 11.97 or 4.05, 5.5 or 1.5 above the mean of both."""
    pytest.importorskip("river")
    test = {"name": "page_hinkley", "reference": 3, "gap": 2, "delta": 0.0, "threshold": 4.9}
    earlier = [1.0, 2.0, 3.0, 9.0, 9.0]  # 2 and 1; then 2, 3, 9
    assert alarms(detector(**test).begin(0), [*earlier, 2.0, 50.0]) == [6]
    assert alarms(detector(**test).begin(0), [*earlier, 2.0, 20.0]) == []
    assert alarms(detector(**{**test, "reference": None}).begin(0), [*earlier, 2.0, 20.0])[0] < 6


def test_a_loss_of_another_period_is_shown_in_what_varies_between_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before three periods; in them the means 2, 3, 4 vary by 1, the losses by 0.5. Later ones in those of their own."""
    shown, test = list[float](), detector(name="page_hinkley", reference=2, gap=0, direction="both")
    monkeypatch.setattr(test, "test", lambda seed: lambda loss: bool(shown.append(loss)))
    watch, losses = test.watch(0), [1.5, 2.5, 2.5, 3.5, 3.5, 4.5, 5.0, 6.0, 7.0]
    for place, loss in enumerate(losses):
        watch(loss, min(place // 2, 3))
    expected = [(4.5 - 17 / 6) / math.sqrt(7 / 12 + 0.5), 2 / math.sqrt(1.5), 2 / math.sqrt(1.5), 1.5 / math.sqrt(0.5)]
    assert shown == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_new_samples_in_every_period_are_no_change(name: str) -> None:
    """Of 40 clients ten times in each of 12 months: samples vary between months, batches of them ten times less."""
    pytest.importorskip("river")
    rng = np.random.default_rng(5)
    losses = 0.5 + 0.05 * rng.normal(size=(12, 1, 40)) + 0.005 * rng.normal(size=(12, 10, 40))
    watches = [detector(name=name, watch="clients").watch(seed) for seed in range(40)]
    for period, rounds in enumerate(losses):
        for losses_of_round in rounds.tolist():
            alarmed = [watch(loss, period) for watch, loss in zip(watches, losses_of_round, strict=True)]
            assert sum(alarmed) < 0.1 * len(alarmed)


def test_no_detector_is_the_default_and_enters_no_key() -> None:
    assert "detector" not in settings().canonical()
    assert "detector" not in settings(detector="none").canonical()
    assert settings(detector="adwin").canonical()["detector"]["response"] == "none"
    detector(name="none").require()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"response": "panic"}, "detector.response = 'panic'"),
        ({"share": 0.5}, "share = 0.5 is only used with watch = clients"),
        ({"response": "raise_rate"}, "response = raise_rate requires factor"),
        ({"factor": 2.0}, "factor = 2 is only used with response = raise_rate"),
        ({"name": "none", "response": "reset_model"}, "detector.response = 'reset_model': should be 'none'"),
        ({"name": "none", "watch": "clients"}, "detector.watch = 'clients': should be 'server'"),
        ({"name": "kswin", "stat_size": 16}, "stat_size = 16 should be at most half of window_size = 20"),
        ({"reference": 1}, "detector.reference = 1"),
        ({"gap": -1}, "detector.gap = -1"),
        ({"name": "adwim"}, "adwin"),
    ],
    ids=str,
)
def test_bad_settings_are_one_line(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        settings(detector={"name": "adwin", **chosen})
    assert message in str(error.value)
    assert "\n" not in str(error.value)
