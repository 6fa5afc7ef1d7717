"""Labels that tell methods apart: followed by the settings in which runs of one label and initializer differ."""

import json
from collections.abc import Collection
from typing import Any

import pandas as pd

from fedtide.core.errors import SettingsError

Settings = dict[str, Any]

METHOD = ["label", "initializer"]
"""Columns that identify a row's method."""

_NOT_A_METHOD = ("label", "initializer_label", "seed", "world_seed", "engine.chunk")


def distinct_labels(runs: pd.DataFrame, settings: dict[str, Settings]) -> dict[str, str]:
    """Label of each run, followed by the settings in which runs of its label and initializer differ."""
    labels = {}
    for _, group in runs.groupby(METHOD, sort=False):
        differ = differing([settings[key] for key in group["key"]])
        for key, label in zip(group["key"], group["label"], strict=True):
            marks = ", ".join(f"{name}={_text(settings[key].get(name, 'absent'))}" for name in differ)
            labels[key] = f"{label} ({marks})" if marks else label
    return labels


def differing(settings: Collection[Settings]) -> list[str]:
    """Names of settings, but for seeds and speed, that not all have, or not all alike."""
    values = {name: {_text(each.get(name, "absent")) for each in settings} for each in settings for name in each}
    return [name for name, found in values.items() if name not in _NOT_A_METHOD and len(found) > 1]


def refuse_duplicates(runs: pd.DataFrame) -> None:
    """Refuse runs of one label, initializer and seed; a SettingsError that names them."""
    for (label, start, seed), group in runs.groupby([*METHOD, "seed"], sort=False):
        if len(group) > 1:
            raise SettingsError(
                f"{label} / {start} / seed {seed} occurs {len(group)} times ({', '.join(group['key'])}) with equal "
                "settings but different data or code; report one of them"
            )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
