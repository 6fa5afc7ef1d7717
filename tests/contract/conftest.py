from collections.abc import Callable
from typing import Any

import pytest

from fedtide.authoring.samples import clusters
from fedtide.core import plugins
from fedtide.methods.algorithms.base import Algorithm
from fedtide.settings.run import RunSettings
from fedtide.world.building.build import build_timeline
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline
from support import light, needs, settings
from traces import fedscale_file, flash_file

World = Callable[..., tuple[RunSettings, Timeline, Dataset]]

SCENARIOS: dict[str, dict[str, Any]] = {
    "static": {"rounds": 4, "num_clients": 10},
    "sessions": {"num_sessions": 4, "rounds_per_session": 2, "num_devices": 5},
    "trace": {"session_at_change": True},
    "incremental_arrival": {"rounds": 8, "initial": 2, "num_clients": 4, "start": 2, "interval": 3},
    "incremental_departure": {"rounds": 8, "num_clients": 4, "start": 2, "interval": 3, "session_at_change": True},
    "fedscale_trace": {"num_clients": 10, "rounds": 8},
    "flash_trace": {"num_clients": 10, "rounds": 8, "start_second": 3600},
    "evolving": {"num_clients": 5, "subsets": 3, "beta": 0.5, "num_sessions": 2, "rounds_per_session": 2},
}
"""Small worlds; any other scenario keeps its defaults."""


@pytest.fixture(scope="session")
def data() -> Dataset:
    """Three hundred samples of four features, ten classes of thirty each."""
    return clusters()


@pytest.fixture(scope="session")
def world(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Settings, timeline and data of a small run: ``world(scenario="sessions", **settings)``."""
    folder = tmp_path_factory.mktemp("traces")
    trace = folder / "trace.csv"
    trace.write_text(
        "client,join,leave\n" + "".join(f"{client},{client % 3},{4 + client % 2}\n" for client in range(10))
    )

    files = {"trace": trace, "fedscale_trace": fedscale_file(folder), "flash_trace": flash_file(folder)}

    def make(scenario: str = "sessions", **values: Any) -> tuple[RunSettings, Timeline, Dataset]:
        chosen = {"name": scenario, **SCENARIOS.get(scenario, {})}
        if scenario in files:
            chosen["file"] = str(files[scenario])
        momentum = 0.5
        if isinstance(values.get("algorithm"), str):
            momentum *= plugins.load(Algorithm, values["algorithm"]).optimizer != "plain_sgd"
            values = {**needs(values["algorithm"]), **values, "algorithm": light(values["algorithm"])}
        base = {
            "partition": "iid",
            "participation": {"name": "fixed", "fraction": 0.6},
            "local": {"steps": 2, "batch_size": 4, "lr": 0.05, "momentum": momentum},
            "engine": {"workers": 1},
        }
        run = settings(**{**base, "scenario": chosen, **values})
        return run, build_timeline(run, data), data

    return make
