from collections.abc import Callable
from typing import Any

import pytest

from fedtide.settings.params import Params


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A settings file's content: a search of fedprox on the digits, four rounds of two clients."""
    return {
        "data": {"name": "digits", "root": str(tmp_path_factory.mktemp("data"))},
        "scenario": {"name": "static", "rounds": 4, "num_clients": 2},
        "model": "softmax_regression",
        "local": {"steps": 2, "batch_size": 128},
        "algorithm": "fedprox",
        "engine": {"workers": 1},
        "checkpoint": {"every": 2},
        "tune": {"trials": 8, "workers": 1},
    }


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that draw nothing, for tests that look at no figure: drawing takes most of the time of a small search."""
    monkeypatch.setattr("fedtide.studies.tuning.results._draw", lambda plot, path: None)


@pytest.fixture(scope="session")
def params(raw: dict[str, Any]) -> Callable[..., Params]:
    """The settings file; ``tune`` holds replaced keys of the search, other keywords replace top-level keys."""

    def make(tune: dict[str, Any] | None = None, **values: Any) -> Params:
        return Params({**raw, **values, "tune": {**raw["tune"], **(tune or {})}})

    return make
