"""What the page leaves out of long lines, and what it keeps."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedtide.report.charts.chart import Axis, Chart, Panel, Series
from fedtide.report.charts.interactive import MOST_POINTS, figure, kept_points, thinned_out


def curves(methods: int, rounds: int) -> Chart:
    """A panel per method with a noisy line and its range."""
    rng = np.random.default_rng(0)
    panels = []
    for number in range(methods):
        x, y = np.arange(1.0, rounds + 1), rng.random(rounds)
        panels.append(Panel(f"method {number}", (Series("mean", x, y, "#0072B2", y - 0.1, y + 0.1),)))
    return Chart(Axis("Round"), Axis("Accuracy", share=True, low=0.0, high=1.0), tuple(panels), 5, 14.0)


values = arrays(np.float64, st.integers(1, 400), elements=st.floats(-1, 1) | st.just(np.nan))


@given(values, st.integers(4, 100))
def test_extremes_ends_and_gaps_are_kept(line, most):
    kept = kept_points(line, most)
    assert np.all(np.diff(kept) > 0)
    assert {0, len(line) - 1} <= set(kept.tolist())
    assert set(np.flatnonzero(np.isnan(line))) <= set(kept.tolist())
    if not np.isnan(line).all():
        assert np.nanmax(line[kept]) == np.nanmax(line)
        assert np.nanmin(line[kept]) == np.nanmin(line)
    if len(line) <= most:
        assert len(kept) == len(line)


@pytest.mark.parametrize(("methods", "rounds", "thinner"), [(9, 210, False), (40, 500, True), (1, 20000, True)])
def test_a_chart_is_small_however_long_the_runs(methods, rounds, thinner):
    chart = curves(methods, rounds)
    assert thinned_out(chart) == thinner
    drawn = figure(chart)
    points = sum(len(trace["y"]) for trace in drawn["data"] if trace.get("fill") is None)
    assert points <= MOST_POINTS + 2 * methods
    assert len(json.dumps(drawn, separators=(",", ":"))) < 250_000


def test_the_same_on_light_and_on_dark_pages():
    series = Series("mean", np.arange(3.0), np.arange(3.0), "#000000")
    (trace,) = figure(Chart(Axis("x"), Axis("y"), (Panel(series=(series,)),), 1, 3.0))["data"]
    assert trace["line"]["color"] not in ("#000000", "#ffffff")
