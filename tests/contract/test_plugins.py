"""What every plug-in promises by existing: a summary, documented settings, defaults that are valid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedtide import participation
from fedtide.core import plugins
from fedtide.core.errors import SettingsError

EVERY = [(kind, name) for kind in plugins.KINDS for name in plugins.names(kind)]

REQUIRED: dict[tuple[str, str], dict[str, Any]] = {("aggregation", "krum"): {"f": 1}}
REQUIRED |= {("attack", name): {"share": 0.1} for name in plugins.names("attack") if name != "none"}
"""Settings that have to be given, since they decide what a result means: how many attackers there are."""


def settings_of(kind: str, name: str, **values: Any) -> Any:
    """Settings as they are read from a file."""
    cls = plugins.load(kind, name).Settings
    given = {"name": name, **REQUIRED.get((kind, name), {}), **values}
    return cls.model_validate_json(json.dumps(given), strict=True)


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_a_plugin_keeps_its_promises(kind: str, name: str) -> None:
    plugin = plugins.load(kind, name)
    summary = plugins.summary(kind, name)
    assert 0 < len(summary) < 120
    assert summary.endswith(".")
    assert "__doc__" in vars(plugin)  # its own line, not that of its base

    fields = plugin.Settings.model_fields
    defaults = settings_of(kind, name)
    assert defaults.name == name
    assert type(defaults) is plugin.Settings
    assert plugin.Settings.model_validate_json(defaults.model_dump_json(), strict=True) == defaults
    plugin(defaults)
    with pytest.raises(ValueError, match="no_such_setting"):
        settings_of(kind, name, no_such_setting=1)

    for key, field in fields.items():
        assert key == "name" or field.description, key
        if isinstance(field.json_schema_extra, dict) and "tune" in field.json_schema_extra:
            tune: Any = field.json_schema_extra["tune"]  # the range of a search lies within the bounds
            assert tune["low"] < tune["high"], key
            assert tune["low"] > 0 or not tune["log"], key
            assert tune["low"] <= field.default <= tune["high"], key
            for bound in ("low", "high"):
                assert getattr(settings_of(kind, name, **{key: tune[bound]}), key) == tune[bound]


def test_a_plugin_that_lacks_a_method_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "participation").mkdir()
    (tmp_path / "participation" / "nobody.py").write_text(
        "from fedtide.participation.base import Participation\n\n\nclass Nobody(Participation):\n"
        "    def draw(self, present, round_, seed):\n        return present[:1]\n"
    )
    monkeypatch.setenv("FEDTIDE_PLUGINS", str(tmp_path))
    monkeypatch.setattr(participation, "__path__", list(participation.__path__))
    with pytest.raises(
        SettingsError, match=r"participation/nobody\.py:4: Nobody does not define participation_fraction"
    ):
        plugins.load("participation", "nobody")
