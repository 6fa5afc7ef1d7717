"""Upper bounds of numbers that cost memory or time: the error says what a larger value would take."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from fedtide.core.errors import SettingsError, shortened


@dataclass(frozen=True)
class AtMost:
    """Bound ``le`` of a whole number; every unit takes ``each`` bytes of ``what``."""

    le: int
    each: int
    what: str

    def check(self, value: int) -> int:
        if value > self.le:
            taken = f"{min(value, 10**30) * self.each // 10**9:,} GB of {self.what}"
            raise SettingsError(
                f"{shortened(str(value))} should be less than or equal to {self.le}; it would take {taken}"
            )
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), "maximum": self.le}


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise SettingsError(f"{value} should be a number")
    return value


WHOLE = BeforeValidator(_no_truth_value)
"""For a choice of several numbers: pydantic takes ``true`` for 1."""

MOST_ROUNDS = AtMost(10_000_000, 300, "records")
Rounds = Annotated[int, Field(ge=1), MOST_ROUNDS]
Clients = Annotated[int, Field(ge=1), AtMost(10_000_000, 1000, "timeline and records")]

MOST_THREADS = AtMost(1024, 8 << 20, "stacks of threads or processes")
Threads = Annotated[int, Field(ge=0), MOST_THREADS]
"""A number of threads or processes; 0 for all cores."""

LARGEST = 2**31 - 1
"""Largest whole number without a bound of its own."""
