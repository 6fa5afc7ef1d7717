"""What a table to which rows are appended does not go with: all that depends on rows, rounds or clients still to come."""

from __future__ import annotations

from typing import Any

from fedtide.core import plugins
from fedtide.core.errors import SettingsError


def refuse_what_cannot_grow(run: Any) -> None:
    """Refuse settings of a run on a table that grows whose past would change with its future, by a SettingsError."""
    if not run.grows:
        return
    scenario, partition, local, split = run.scenario, run.partition, run.local, run.data.split
    if scenario.name != "calendar":
        raise SettingsError(f"data.grows = true needs scenario calendar, not {scenario.name}")
    algorithm: Any = plugins.load("algorithms", run.algorithm.name)(run.algorithm)
    planned = local.schedule in ("cosine", "polynomial") and not local.restart and local.schedule_rounds is None
    links: list[Any] = [plugins.load("uplink", link.name)(link) for link in run.uplink]
    private = [link.settings.name for link in links if link.private]
    refused = {
        "scenario.period = equal: the bounds of equal periods": scenario.period == "equal",
        f"partition.min_samples = {getattr(partition, 'min_samples', 1)}: who has as many samples": (
            getattr(partition, "min_samples", 1) > 1
        ),
        "partition.max_clients: who is drawn": getattr(partition, "max_clients", None) is not None,
        "long_tail.imbalance: which samples are left": run.long_tail.imbalance is not None,
        f"drift {run.drift.name}: when it begins": run.drift.name != "none",
        f"attack {run.attack.name}: who attacks": run.attack.name != "none",
        f"local.schedule = {local.schedule} with local.restart = false: the learning rate": planned,
        f"uplink {', '.join(private)}: the noise for a privacy guarantee": bool(private),
        f"algorithm {run.algorithm.name}: where its synthetic samples are kept": algorithm.synthetic_per_shard > 0,
        "evaluation.departed = last: who leaves": run.evaluation.departed == "last",
        "clock = events: which results arrive": run.clock.name == "events",
    }
    if found := next((what for what, wrong in refused.items() if wrong), None):
        raise SettingsError(f"data.grows = true: {found} would depend on rows to come")
    if split.period != scenario.period:
        raise SettingsError(
            f"data.grows = true: data.split.period = {split.period} should be that of the scenario, {scenario.period}, so that "
            "later rows draw no other test samples"
        )
