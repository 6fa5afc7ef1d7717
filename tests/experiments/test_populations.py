"""Settings of natural populations that return: they are valid, and the gate of FedSSG is that of all rounds."""

from pathlib import Path

import numpy as np
import pytest

from fedtide.settings.params import Params
from fedtide.world.presence.calendar import periods

ROOT = Path(__file__).parents[2] / "experiments"


@pytest.mark.parametrize("name", ["flights/weekends/weekends", "baseball/years/years"])
def test_every_run_is_valid(name: str) -> None:
    params = Params.read(ROOT / f"{name}.yaml")
    chosen = params.experiment.compare
    assert params.remarks == []
    for label in chosen.algorithms:
        for initializer in chosen.initializers:
            settings = params.run(algorithm=label, initializer=initializer)
            assert (settings.scenario.name, settings.partition.name) == ("calendar", "natural")


def test_fedssg_counts_all_rounds_of_the_years() -> None:
    settings = Params.read(ROOT / "baseball/years/years.yaml").run(algorithm="fedssg")
    assert settings.algorithm.horizon == (2020 - 1901) * settings.scenario.rounds_per_period  # type: ignore[attr-defined]


def test_weekdays_and_weekends_of_2013() -> None:
    year = np.array(["2013-01-01", "2013-12-31"], dtype="datetime64[s]").astype(np.int64)
    settings = Params.read(ROOT / "flights/weekends/weekends.yaml").run()
    made = periods(year, settings.scenario.period)  # type: ignore[attr-defined]
    assert len(made.names) == 105
    assert made.names[:2] == ("2012-12-31 weekdays", "2013-01-05 weekend")
