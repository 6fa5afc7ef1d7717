"""Plug-ins and settings that need classes, refused for runs whose task has none."""

from __future__ import annotations

from typing import Any

from fedtide.core import plugins
from fedtide.core.errors import SettingsError


def refuse_without_classes(run: Any) -> None:
    """Refuse plug-ins and settings of a run that need classes, by a SettingsError; its task is another than classification."""
    for key, name in (*_plugins(run), *_settings(run)):
        hint = "; use natural, or iid without stratified" if key == "partition" else ""
        raise SettingsError(
            f"{key} = {name} requires classes, and {_WORDS[run.task]} (objective = {run.objective.name}) has none{hint}"
        )


_WORDS = {"regression": "a regression", "multilabel": "a multilabel task"}


def _plugins(run: Any) -> list[tuple[str, str]]:
    scenario = _made("scenarios", run.scenario)
    deals = scenario.partition_settings() is None or bool(scenario.partition_settings())
    chosen = {
        "scenario": scenario,
        **({"partition": _made("partitions", run.partition)} if deals else {}),
        "participation": _made("participation", run.participation),
        "algorithm": _made("algorithms", run.algorithm),
        "attack": _made("attacks", run.attack),
        "algorithm.weighting": _made("weighting", run.algorithm.weighting),
        "initializer": _made("initializers", run.initializer),
        "communication": _made("communication", run.communication),
    }
    return [(kind, plugin.settings.name) for kind, plugin in chosen.items() if plugin.needs_classes]


def _made(kind: str, settings: Any) -> Any:
    return plugins.load(kind, settings.name)(settings)


def _settings(run: Any) -> list[tuple[str, Any]]:
    """Other settings that need classes, and their values."""
    local, evaluation = run.local, run.evaluation
    found = {
        "long_tail.imbalance": run.long_tail.imbalance,
        "local.order": local.order if local.order == "class_balanced" else None,
        "evaluation.metrics": ", ".join(evaluation.metrics) or None,
        "evaluation.finetune_steps": evaluation.finetune_steps or None,
        "evaluation.client_samples": evaluation.client_samples,
        "evaluation.departed_clients": None if (last := evaluation.departed_clients) == "global_model" else last,
        "evaluation.clients_every": None if run.task == "regression" else evaluation.clients_every or None,
    }
    return [(key, value) for key, value in found.items() if value is not None]
