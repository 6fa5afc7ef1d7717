"""Noise for sums of clipped updates: client-level differential privacy."""

import math
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedtide.core.array_types import Floats, Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.methods.accounting.cohorts import Cohorts
from fedtide.methods.accounting.mechanisms import Banded, Blt, Independent, Mechanism, Tree, separation, square_root
from fedtide.methods.accounting.spending import Spending, multiplier, spend
from fedtide.methods.algorithms.base import RunPreview
from fedtide.methods.uplink.base import Link, Sending
from fedtide.methods.uplink.clip import Clip, clip
from fedtide.training.engine.flat import Layout

NotNegative = Annotated[float, Field(ge=0)]

_ONLY: dict[str, tuple[str, ...]] = {
    "coefficients": ("banded",),
    "bands": ("banded",),
    "decay": ("blt",),
    "scale": ("blt",),
    "restart": ("tree", "banded", "blt"),
}
"""Mechanisms that a setting belongs to."""


class Noise(Link):
    """Normal noise in the sum of the clipped updates, which hides whether a client has taken part at all.

    With C the bound of ``clip``, z the ``multiplier``, S the participants and m their number as far as it is public (the
    expected one of Poisson samples)::

        Delta_k <- |S|/m (Delta_k + Z/|S|),   Z = z C x                                                             (1)

    so that the mean that the server takes is ``(sum Delta + Z)/m``. The noise x of a round is standard normal (``independent``:
    DP-FedAvg, McMahan et al. 2018), or cancels in part against that of earlier rounds: ``tree`` (DP-FTRL, Kairouz et al. 2021),
    ``banded`` (Choquette-Choo et al. 2023), ``blt`` (Dvijotham et al. 2024); see ``methods/accounting/mechanisms.py``. With an
    adaptive ``clip`` the count that moves C has noise ``clip.bit_noise``, and (1) takes ``(z^-2 - (2 bit_noise)^-2)^(-1/2)``:
    together they cost what z does. Updates that are not finite count as zero.
    """

    class Settings(PluginSettings):
        name: str = "noise"
        multiplier: float | None = Field(
            None, ge=0, description="noise multiplier z: deviation in clip bounds; null: 1, or what `epsilon` needs"
        )
        epsilon: float | None = Field(
            None, gt=0, description="epsilon of the worst-case client over the run, instead of `multiplier`"
        )
        delta: float | None = Field(
            None, gt=0, lt=1, description="delta of the guarantee; null: N^-1.1 for N clients of the timeline"
        )
        mechanism: Literal["independent", "tree", "banded", "blt"] = Field(
            "independent", description="how the noise of a round depends on that of earlier rounds"
        )
        bands: int | None = Field(
            None,
            ge=1,
            description="banded: rounds with coupled noise; null: smallest gap between a client's participations",
        )
        coefficients: tuple[NotNegative, ...] | None = Field(
            None,
            description="banded: the coefficients themselves; null: those of the square root of the matrix of ones",
        )
        decay: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None = Field(
            None, description="blt: decay of each buffer"
        )
        scale: tuple[NotNegative, ...] | None = Field(None, description="blt: weight of each buffer")
        restart: int | Literal["session"] | None = Field(
            None, description="rounds, or session, after which coupled noise restarts; null: never"
        )

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if self.multiplier is not None and self.epsilon is not None:
                raise SettingsError("multiplier and epsilon exclude each other; give one of them")
            for key, mechanisms in _ONLY.items():
                if getattr(self, key) is not None and self.mechanism not in mechanisms:
                    raise SettingsError(
                        f"{key} is only used with mechanism {' or '.join(mechanisms)}, not with {self.mechanism}"
                    )
            if self.mechanism == "blt" and not (self.decay and self.scale and len(self.decay) == len(self.scale)):
                raise SettingsError("decay and scale: mechanism blt requires both, with one number for each buffer")
            if self.bands is not None and self.coefficients is not None:
                raise SettingsError("bands and coefficients exclude each other; give one of them")
            if self.coefficients is not None and not (self.coefficients and self.coefficients[0]):
                raise SettingsError("coefficients: the first one should be above 0")
            if isinstance(self.restart, int) and self.restart < 1:
                raise SettingsError(f"restart = {self.restart}: should be 1 or more rounds, session or null")
            return self

    settings: Settings

    place = 30
    private = True

    clip: Clip
    mechanism: Mechanism
    cohorts: Cohorts
    starts: Ints
    expected: Floats
    spending: Spending

    def bind(self, links: Sequence[Link], layout: Layout) -> None:
        name, clips = "uplink noise", [link for link in links if isinstance(link, Clip)]
        if links[-1] is not self:
            raise SettingsError(
                f"{name}: link {links[-1].settings.name} would change single updates after the noise; remove it"
            )
        if not clips or clips[0].settings.bound is None:
            raise SettingsError(f"{name} requires clipping; add clip with a bound to uplink")
        if layout.buffer_size:
            raise SettingsError(
                f"{name}: the model has running statistics (BatchNorm), which are sent without noise; use another "
                "normalization, e.g. model.norm: group"
            )
        self.clip = clips[0]
        self._again = len(links) > 2  # compression in between may lengthen updates
        if self.clip.settings.quantile is not None and self.settings.mechanism != "independent":
            raise SettingsError(
                f"{name}: mechanism = {self.settings.mechanism} requires the same bound in all rounds; set "
                "clip.quantile = null, or mechanism = independent"
            )

    def foresee(self, cohorts: Callable[[], Cohorts]) -> None:
        s, self.cohorts = self.settings, cohorts()
        clients, rounds = self.cohorts.drawn.shape
        self.expected = self.cohorts.expected
        t = np.arange(rounds)
        self.starts = {None: np.zeros_like(t), "session": self.cohorts.starts}.get(s.restart, t)  # type: ignore[arg-type]
        if isinstance(s.restart, int):
            self.starts = t - t % s.restart
        self.mechanism = self._mechanism()
        if s.epsilon is not None and (again := self.cohorts.retrained):
            raise SettingsError(
                f"uplink noise: epsilon = {s.epsilon:g} cannot be kept, since erase trains the first {again} rounds again "
                "with their noise and releases the result; use an eraser such as rollback or weight_negation"
            )
        delta = max(clients, 2) ** -1.1 if s.delta is None else s.delta
        self.z = 1.0 if s.multiplier is None else s.multiplier
        if s.epsilon is not None:
            self.z = multiplier(self.cohorts, self.mechanism, self.starts, s.epsilon, delta)
        self._split()
        self.spending = spend(self.cohorts, self.mechanism, self.starts, self.z, delta)

    def _mechanism(self) -> Mechanism:
        s = self.settings
        if s.mechanism == "tree":
            return Tree()
        if s.mechanism == "blt":
            return Blt(s.decay or (), s.scale or ())
        if s.mechanism == "banded":
            return Banded(s.coefficients or square_root(s.bands or self._separation(self.cohorts)))
        return Independent()

    @staticmethod
    def _separation(known: Cohorts) -> int:
        """Fewest rounds between two participations of a client."""
        return int(separation(known.drawn).min())

    def _split(self) -> None:
        """Divide the budget between updates and, with an adaptive clip, the count of those within the bound."""
        self._of_updates = np.full_like(self.expected, self.z)
        if self.clip.settings.quantile is None or not self.z:
            return
        given = self.clip.settings.bit_noise
        sigma = self.expected / 20 if given is None else np.full_like(self.expected, given)
        if (least := float(sigma.min())) <= self.z / 2:
            raise SettingsError(
                f"uplink noise: multiplier = {self.z:g} should be below twice clip.bit_noise = {least:g}, or no "
                "budget is left for the updates; raise bit_noise, let more clients take part, or set clip.quantile = "
                "null"
            )
        self.clip.noisy = (self.expected, sigma)
        self._of_updates = (self.z**-2 - (2 * sigma) ** -2) ** -0.5

    def extra(self, size: int) -> dict[str, Tensor]:
        return {name: torch.from_numpy(value) for name, value in self.mechanism.state(size).items()}

    def vectors(self, cohorts: Callable[[], Cohorts]) -> int:
        s = self.settings
        if s.mechanism != "banded":
            return len(s.decay or ())
        return (len(s.coefficients or ()) or s.bands or self._separation(cohorts())) - 1

    def apply(self, D: Tensor, s: Sending) -> dict[str, Tensor]:
        bound = self.clip.bound(s.extras[self.clip.settings.name])
        D[~D.isfinite().all(1)] = 0.0
        if self._again:
            clip(D, bound)
        m, Z = float(self.expected[s.t]), torch.zeros(D.shape[1], dtype=torch.float64)
        if self.z:
            Z = self._of_updates[s.t] * bound * torch.from_numpy(self._drawn(s, D.shape[1]))
        D.mul_(s.participants / m).add_(Z.to(D) / m)  # (1)
        return {"noise_norm": torch.full_like(D[:, :1], float(torch.linalg.vector_norm(Z)) / m)}

    def _drawn(self, s: Sending, size: int) -> Floats:
        """x of a round, [d]."""
        start = int(self.starts[s.t])
        fresh = self.mechanism.state(size) if s.t == start else None
        state = fresh or {name: value.cpu().numpy() for name, value in s.extra.items()}
        block = int(np.count_nonzero(np.diff(self.starts[: s.t + 1])))
        x = self.mechanism.noise(lambda *keys: s.shared(*keys).standard_normal(size), block, s.t - start, state)
        for name, value in state.items():
            s.extra[name] = torch.from_numpy(value).to(s.extra[name].device)
        return x

    def finish(self, columns: dict[str, Tensor], s: Sending) -> dict[str, Tensor | float]:
        spent = float(self.spending.after[s.t])
        return {"noise_norm": float(columns["noise_norm"][0]), "epsilon": spent if math.isfinite(spent) else math.nan}

    def guarantees(self) -> Mapping[str, Sequence[float]]:
        found, present = self.spending, self.cohorts.present
        first, last = present.argmax(1), present.shape[1] - present[:, ::-1].argmax(1)
        return {
            "arrival": (first + 1).tolist(),
            "departure": last.tolist(),
            "present": present.sum(1).tolist(),
            "participations": found.participations.tolist(),
            "separation": found.separation.tolist(),
            "sensitivity": found.sensitivity.tolist(),
            "epsilon": found.epsilon.tolist(),
            "delta": [found.delta] * len(present),
        }

    def libraries(self) -> dict[str, str]:
        return {"dp-accounting": version("dp-accounting")} if self.spending.amplified and self.z else {}

    def advice(self, run: RunPreview) -> list[str]:
        found, m = self.spending, float(self.expected.min())
        if not self.z:
            return ["uplink noise: multiplier = 0 adds no noise, so the run has no privacy guarantee"]
        how = "amplified by Poisson sampling" if found.amplified else "known cohorts, without amplification"
        last = self.cohorts.retrained
        until = f" until round {last}, and none afterwards, since erase trains these rounds again with their noise"
        lines = [
            f"uplink noise: multiplier {self.z:.4g}; at delta = {found.delta:.2g} the worst-case client has epsilon "
            f"= {found.after[last - 1]:.4g} ({how}){until if last else ''}"
        ]
        if (long := self.z * math.sqrt(run.size)) > m:
            lines.append(
                f"uplink noise: the norm of the noise in a round's mean is {long / m:.1f} times the clipping bound; "
                f"use cohorts of {math.ceil(long)} or more to keep it below the bound"
            )
        if isinstance(self.mechanism, Banded) and len(self.mechanism.coefficients) == 1:
            lines.append(
                "uplink noise: banded with one band is independent noise: a client may take part in every round"
            )
        return lines
