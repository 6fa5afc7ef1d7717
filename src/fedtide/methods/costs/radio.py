"""Constants of the cell's radio links, derived from the cost settings."""

from __future__ import annotations

import math

import numpy as np

from fedtide.settings.groups.evaluation import CostSettings

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
