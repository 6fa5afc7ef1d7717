"""Types of numbers in settings, bounded where larger ones would cost memory or time that nobody has."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from fedtide.core.errors import SettingsError


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise SettingsError(f"{value} should be a number")
    return value


WHOLE = BeforeValidator(_no_truth_value)
"""For a choice of several numbers: pydantic takes ``true`` for 1."""

MOST_ROUNDS = 10_000_000
Rounds = Annotated[int, Field(ge=1, le=MOST_ROUNDS)]
Clients = Annotated[int, Field(ge=1, le=10_000_000)]
Steps = Annotated[int, Field(ge=1, le=10**9)]

MOST_THREADS = 1024
Threads = Annotated[int, Field(ge=0, le=MOST_THREADS)]
"""A number of threads or processes; 0 for all cores."""

LARGEST = 2**31 - 1
"""Largest whole number without a bound of its own."""
