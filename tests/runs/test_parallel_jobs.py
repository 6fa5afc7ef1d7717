"""Jobs that travel to worker processes."""

from __future__ import annotations

from pathlib import Path

from fedtide.core import plugins
from fedtide.core.plugins import PluginSettings
from fedtide.runs.processes import in_parallel

DROP_IN = Path(__file__).parents[1] / "drop_in"


def test_settings_of_a_users_own_plugin_reach_the_workers(drop_in: None) -> None:
    own = [name for name in plugins.names("algorithms") if (DROP_IN / "algorithms" / f"{name}.py").is_file()]
    job = plugins.load("algorithms", own[0]).Settings(name=own[0])
    results: list[tuple[PluginSettings, str]] = []
    assert in_parallel(repr, [job], 1, lambda job, result: results.append((job, result))) is None
    assert results == [(job, repr(job))]
