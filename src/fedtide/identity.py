"""The run key: a hash of settings, data and code, so that equal keys mean equal results."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fedtide import plugins
from fedtide.settings import RunSettings
from fedtide.source import closure, fingerprint

_ROOTS = ("fedtide.federation.module", "fedtide.world")


def modules(settings: RunSettings) -> list[str]:
    """Modules whose source a run depends on: the engine, the federation, and just the plug-ins it uses."""
    chosen = {
        "algorithms": settings.algorithm.name,
        "data": settings.data.name,
        "exchange": settings.exchange.name,
        "initialisation": settings.initialiser.name,
        "models": settings.model.name,
        "objectives": settings.objective.name,
        "participation": settings.participation.name,
        "partitions": settings.partition.name,
        "scenarios": settings.scenario.name,
        "weighting": settings.algorithm.weighting.name,  # type: ignore[attr-defined]
    }
    if (selection := getattr(settings.exchange, "selection", None)) is not None:
        chosen["selection"] = selection.name
    return closure([*_ROOTS, *(plugins.load(kind, name).__module__ for kind, name in chosen.items())])


def canonical_json(values: Any) -> str:
    """JSON with sorted keys and no spaces: equal values, equal text."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def short_hash(values: Any) -> str:
    """Twelve hex digits of a JSON-able value."""
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()[:12]


def run_key(settings: RunSettings, data: str, world: str) -> str:
    """``<algorithm>-<initialiser>-s<seed>-<12 hex digits>`` of settings, data, world and code."""
    short = short_hash([settings.canonical(), data, world, fingerprint(modules(settings))])
    return f"{settings.label}-{settings.initialiser_label}-s{settings.seed}-{short}"
