"""The noisy quadratic model of CFL: simulations against closed recursions, and who wins."""

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "experiments/cfl/quadratic.py"))
SETTINGS, METHODS, problem, simulate = (SCRIPT[name] for name in ("SETTINGS", "METHODS", "problem", "simulate"))


def recursion(given, method: str, rate: float) -> np.ndarray:
    """Gradients r_t = A w_t + B [T + 1, n] without the noise nu: ``r_{t+1} = (I - P) r_t - P u``.

    ``P = lr A sum_{k<K} (I - lr (A + mu I))^k``; u is the clients' mean of ``delta + xi_t``, for CFL averaged over all
    rounds so far. With mu = 0 ``I - P = (I - lr A)^K``.
    """
    n, steps = len(given.B), given.nu.shape[2]
    mu = SCRIPT["PROXIMAL"] if method == "fedprox" else 0.0
    inner = np.eye(n) - rate * (given.A + mu * np.eye(n))
    P = rate * given.A @ sum(np.linalg.matrix_power(inner, k) for k in range(steps))
    u = (given.delta + given.xi).mean(1)
    if method == "cfl":
        u = u.cumsum(0) / np.arange(1, len(u) + 1)[:, None]
    r = [given.A @ np.full(n, 5.0) + given.B]
    for now in u:
        r.append(r[-1] - P @ (r[-1] + now))
    return np.stack(r)


def test_the_eight_settings_and_their_noises() -> None:
    assert [setting.name for setting in SETTINGS] == [
        f"{drift} {smooth}-{convex}" for drift in ("SRD", "BRD") for convex in ("SC", "GC") for smooth in ("SL", "LL")
    ]
    for setting in SETTINGS:
        given = problem(setting, 0)
        values = np.linalg.eigvalsh(given.A)
        assert (values[0], values[-1]) == pytest.approx((setting.smallest, setting.largest), abs=1e-12)
        assert np.square(given.xi).sum(-1).mean() == pytest.approx(setting.xi, rel=0.05)
        assert np.square(given.delta).sum(-1).mean() == pytest.approx(0.01, rel=0.5)
        assert np.square(given.nu).sum(-1).mean() == pytest.approx(1e-5, rel=0.05)
        assert np.linalg.lstsq(given.A, -given.B, rcond=None)[0] @ given.A == pytest.approx(-given.B)  # a minimizer


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_without_step_noise_the_run_is_the_closed_recursion(setting, method: str) -> None:
    given = problem(setting, 1, nu=0.0)
    rates = np.array([0.01, 1.0 / setting.largest])
    for losses, rate in zip(simulate(given, method, rates), rates, strict=True):
        closed = np.linalg.norm(recursion(given, method, float(rate)), axis=1)
        assert losses == pytest.approx(closed, rel=1e-9, abs=1e-9)


@pytest.mark.slow
def test_bad_arguments_are_refused(script: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--curves", "nowhere/figure2.csv"], "--curves nowhere/figure2.csv: no folder nowhere"),
        (["--seeds", "0"], "--seeds = 0: should be at least 1"),
    ):
        with pytest.raises(SystemExit, match=r"^2$"):
            script("cfl/quadratic.py", *arguments)
        assert message in capsys.readouterr().err
