"""The last period of a search on a calendar."""

from __future__ import annotations

from dataclasses import dataclass

from fedtide.core.errors import SettingsError
from fedtide.settings.run import RunSettings
from fedtide.world.building.build import timeline_for
from fedtide.world.dataset import Dataset


@dataclass(frozen=True)
class Until:
    """Cuts runs after a period, so that nothing later decides between settings.

    A run that ends with a period neither trains nor is scored on anything later: the model of the period before is the last
    one that is evaluated ahead, on validation samples of the last period.

    Attributes:
        last: the period, counted from 1 as ``scenario.last``; None if sessions are no periods. text: the same in words.
    """

    last: int | None = None
    text: str = ""

    @staticmethod
    def of(settings: RunSettings, data: Dataset, wanted: int | None) -> Until:
        """``wanted``: ``tune.until``, None for the first half of the run's periods, at least two.

        Raises:
            SettingsError: ``wanted`` is none of the run's periods, or sessions are no periods.
        """
        if settings.scenario.name != "calendar":
            if wanted is not None:
                raise SettingsError(
                    f"tune.until = {wanted}: sessions are not periods of the data; use scenario calendar"
                )
            return Until()
        notes = timeline_for(settings, data).notes
        periods = {int(number): str(name) for number, name in zip(notes["numbers"], notes["periods"], strict=True)}
        numbers = list(periods)
        if wanted is None:
            wanted = numbers[: max(2, len(numbers) // 2)][-1]
        if not numbers[0] <= wanted <= numbers[-1]:
            raise SettingsError(f"tune.until = {wanted} should be a period of the run, {numbers[0]} to {numbers[-1]}")
        used = [name for number, name in periods.items() if number <= wanted]
        words = f"{len(used)} of {len(numbers)} periods, {used[0]} to {used[-1]} (tune.until = {wanted})"
        return Until(wanted, f"the study uses {words}")

    def cut(self, settings: RunSettings) -> RunSettings:
        """The run up to the last period of the search."""
        if self.last is None:
            return settings
        return settings.model_copy(update={"scenario": settings.scenario.model_copy(update={"last": self.last})})
