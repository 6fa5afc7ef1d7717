"""What of the settings enters a run's key: fields with marks are left out at every depth, also inside tuples."""

from typing import Annotated

from pydantic import Field

from fedtide.core.plugins import INCIDENTAL, OMIT_DEFAULT, SettingsModel


class Item(SettingsModel):
    name: str = Field("a", description="a name")
    note: Annotated[str, INCIDENTAL] = Field("", description="a label")
    later: Annotated[int | None, OMIT_DEFAULT] = Field(None, description="a setting that was added later")


class Owner(SettingsModel):
    one: Item = Field(Item(), description="one")
    several: tuple[Item, ...] = Field((Item(), Item(name="b", note="n", later=2)), description="several")
    numbers: tuple[int, ...] = Field((1, 2), description="numbers")


def test_marks_count_inside_tuples() -> None:
    several = [{"name": "a"}, {"name": "b", "later": 2}]
    assert Owner().canonical() == {"one": {"name": "a"}, "several": several, "numbers": [1, 2]}
