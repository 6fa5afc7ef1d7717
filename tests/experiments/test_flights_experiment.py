"""The settings of the flights: the bounds are what they say."""

from pathlib import Path

from fedtide.settings.params import Params

FILE = Path(__file__).parents[2] / "experiments/flights/tuning/flights.yaml"


def test_the_bounds_are_those_of_the_library() -> None:
    params = Params.read(FILE)
    assert params.remarks == []
    assert params.run(algorithm="frozen").algorithm.name == "frozen"
    assert params.run(algorithm="frozen").local == params.run(algorithm="fedavg").local


def test_pooled_models_average_after_every_step() -> None:
    params = Params.read(FILE)
    everything, month = (params.run(algorithm=label) for label in ("pooled", "pooled_period"))
    assert (everything.scenario.memory, month.scenario.memory) == (11, 0)  # type: ignore[attr-defined]
    assert everything.communication == month.communication
    assert everything.communication.intervals == "a"  # type: ignore[attr-defined]


def test_who_flies_today_can_be_drawn() -> None:
    """The same year in 360 rounds; methods have the same population and model as in the monthly comparison."""
    days, months = Params.read(FILE.parents[1] / "days/days.yaml").run(), Params.read(FILE).run()
    assert days.participation.name == "active"
    assert days.scenario.rounds_per_period == 30  # type: ignore[attr-defined]
    for part in ("data", "partition", "model", "local", "client_state", "validation"):
        assert getattr(days, part) == getattr(months, part), part
