"""The last period of a search on a calendar.

Runs are cut after it, so that nothing later decides between settings: a run that ends with a period neither trains nor is
scored on anything later. The model of the period before is the last one that is evaluated ahead, on validation samples of the
last period.
"""

from fedtide.core.errors import SettingsError
from fedtide.settings.run import RunSettings
from fedtide.world.building.build import timeline_for
from fedtide.world.dataset import Dataset


def last_period(settings: RunSettings, data: Dataset, wanted: int | None) -> tuple[int | None, str]:
    """The period, counted from 1 as ``scenario.last``, and the same in words; None and empty if sessions are no periods.

    ``wanted``: ``tune.until``, None for the first half of the run's periods, at least two.

    Raises:
        SettingsError: ``wanted`` is none of the run's periods, or sessions are no periods.
    """
    if settings.scenario.name != "calendar":
        if wanted is not None:
            raise SettingsError(f"tune.until = {wanted}: sessions are not periods of the data; use scenario calendar")
        return None, ""
    notes = timeline_for(settings, data).notes
    periods = {int(number): str(name) for number, name in zip(notes["numbers"], notes["periods"], strict=True)}
    numbers = list(periods)
    if wanted is None:
        wanted = numbers[: max(2, len(numbers) // 2)][-1]
    if not numbers[0] <= wanted <= numbers[-1]:
        raise SettingsError(f"tune.until = {wanted} should be a period of the run, {numbers[0]} to {numbers[-1]}")
    used = [name for number, name in periods.items() if number <= wanted]
    words = f"{len(used)} of {len(numbers)} periods, {used[0]} to {used[-1]} (tune.until = {wanted})"
    return wanted, f"the study uses {words}"


def cut(settings: RunSettings, last: int | None) -> RunSettings:
    """The run up to the last period of the search."""
    if last is None:
        return settings
    return settings.model_copy(update={"scenario": settings.scenario.model_copy(update={"last": last})})
