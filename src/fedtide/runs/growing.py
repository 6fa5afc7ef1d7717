"""A run on a table to which rows are appended: which of its periods stay, and where it continues."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedtide.core.errors import SettingsError
from fedtide.core.files import fence
from fedtide.records.run_directory import RunDirectory
from fedtide.records.states import generations, state_name
from fedtide.records.summary import Summary
from fedtide.settings.run import RunSettings
from fedtide.world.dataset import Dataset
from fedtide.world.growing import Period, first_change, seen_periods
from fedtide.worlds.files import timeline_for


def periods_of(settings: RunSettings, data: Dataset, worlds: Path | None = None) -> list[Period]:
    """The periods of a run whose table grows, with its rows of today; none of any other run."""
    return seen_periods(timeline_for(settings, data, worlds), data) if settings.grows else []


def ended_summary(directory: RunDirectory, key: str, periods: Sequence[Period]) -> Summary | None:
    """The summary of a run that has ended, as :meth:`RunDirectory.finished`, unless ``periods`` have changed or were added."""
    done = directory.finished(key)
    if done is None or not periods:
        return done
    seen = _seen(directory)
    same = seen == periods[: len(seen)] and (done["state"] != "complete" or len(seen) == len(periods))
    return done if same else None


def refuse_changed(directory: RunDirectory, periods: Sequence[Period]) -> Period | None:
    """Refuse a table whose rows of earlier periods have changed; the first period to train again, None if all stay."""
    if not periods:
        return None
    try:
        return first_change(_seen(directory), periods)
    except SettingsError as error:
        raise SettingsError(
            f"{directory.path}: {error}; put the rows back, or delete the run's folder to start the run again"
        ) from None


def return_to_unchanged(directory: RunDirectory, periods: Sequence[Period]) -> list[str]:
    """Drop the saved states beyond the start of the first period that has changed; what was done."""
    changed = refuse_changed(directory, periods)
    if changed is None:
        return []
    later = [path for path in generations(directory.state) if path.name > state_name(changed.round)]
    fence(directory.state / "state-*.pt")
    for path in later:
        path.unlink()
    return [f"rows were added or changed; {changed.name} is trained again"]


def _seen(directory: RunDirectory) -> list[Period]:
    return [Period(row["period"], int(row["round"]) - 1, row["rows"], row["ahead"]) for row in directory.periods()]
