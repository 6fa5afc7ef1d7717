"""How much work a client does: exactly one of four settings, also after overrides and a label's own settings."""

import pytest

from fedtide.settings.groups.local import WORK, LocalSettings
from fedtide.settings.params import Params


def given(local: LocalSettings) -> dict[str, int]:
    return {key: value for key in WORK if (value := getattr(local, key)) is not None}


def test_by_default_it_is_five_epochs() -> None:
    assert given(LocalSettings()) == given(Params({"seed": 1}).run().local) == {"epochs": 5}


@pytest.mark.parametrize("unit", WORK)
def test_one_of_them_is_all_that_is_recorded(unit: str) -> None:
    local = LocalSettings(**{unit: 3})  # type: ignore[arg-type]
    assert (local.unit, local.amount) == (unit, 3)
    assert set(WORK) & set(local.canonical()) == {unit}


def test_another_amount_takes_the_place_of_the_one_before() -> None:
    """Given on the command line, or by a label, on top of a file's."""
    file = {
        "local": {"epochs": 2, "lr": 0.3},
        "algorithms": {"long": {"name": "fedavg", "with": {"local": {"steps": 90}}}},
    }
    assert given(Params.read(file, ["local.steps=7"]).run().local) == {"steps": 7}
    assert given(Params.read(file, ["local={mean_epochs: 4}"]).run().local) == {"mean_epochs": 4}
    labeled = Params(file | {"compare": {"algorithms": ["fedavg", "long"]}})
    assert [given(run.local) for run in labeled.grid()] == [{"epochs": 2}, {"steps": 90}]
    assert labeled.run("long").local.lr == 0.3


def test_a_copy_with_other_work_has_no_more_than_that() -> None:
    local = LocalSettings(epochs=2)
    assert given(local.with_work(9)) == {"epochs": 9}
    assert given(local.with_work(9, "steps")) == {"steps": 9}
