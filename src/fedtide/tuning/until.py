"""The last period of a search on a calendar."""

from __future__ import annotations

from fedtide.core.errors import SettingsError
from fedtide.settings.run import RunSettings
from fedtide.world.timeline import Timeline


class Until:
    """Cuts runs after a period, so that nothing later decides between settings.

    A period's validation samples, and those on which the model of the period before is evaluated ahead, belong to the search
    up to and including that period; the next one, and all after it, are neither trained nor scored on.

    Args:
        timeline: of a whole run. wanted: ``tune.until``, null for the first half of the periods, at least two.

    Raises:
        SettingsError: ``wanted`` is none of the run's periods, or sessions are no periods.
    """

    def __init__(self, timeline: Timeline, wanted: int | None) -> None:
        if not timeline.has_periods:
            if wanted is not None:
                raise SettingsError(
                    f"tune.until = {wanted}: sessions are no periods of the data's time; use scenario calendar"
                )
            self.last: int | None = None
            self.text = ""
            return
        names, numbers = map(str, timeline.notes["periods"]), [int(number) for number in timeline.notes["numbers"]]
        if wanted is None:
            wanted = numbers[min(max(2, len(numbers) // 2), len(numbers)) - 1]
        if not numbers[0] <= wanted <= numbers[-1]:
            raise SettingsError(f"tune.until = {wanted} should be a period of the run, {numbers[0]} to {numbers[-1]}")
        self.last = wanted
        used = [name for name, number in zip(names, numbers, strict=True) if number <= wanted]
        self.text = f"search on periods {used[0]} to {used[-1]}, {len(used)} of {len(numbers)} (tune.until = {wanted})"

    def cut(self, settings: RunSettings) -> RunSettings:
        """The run up to the last period of the search."""
        if self.last is None:
            return settings
        return settings.model_copy(update={"scenario": settings.scenario.model_copy(update={"last": self.last})})
