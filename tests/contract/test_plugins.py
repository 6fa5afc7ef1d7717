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


def settings_of(kind: str, name: str, **values: Any) -> Any:
    """Settings as they are read from a file."""
    cls = plugins.load(kind, name).Settings
    return cls.model_validate_json(json.dumps({"name": name, **values}), strict=True)


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_the_docstring_begins_with_a_summary(kind: str, name: str) -> None:
    summary = plugins.summary(kind, name)
    assert 0 < len(summary) < 120
    assert summary.endswith(".")
    assert "__doc__" in vars(plugins.load(kind, name))  # its own line, not that of its base


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_settings_are_documented_and_their_defaults_valid(kind: str, name: str) -> None:
    cls = plugins.load(kind, name).Settings
    for key, field in cls.model_fields.items():
        assert key == "name" or field.description, key
    defaults = settings_of(kind, name)
    assert defaults.name == name
    assert type(defaults) is cls
    again = cls.model_validate_json(defaults.model_dump_json(), strict=True)
    assert again == defaults
    plugins.load(kind, name)(defaults)


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_search_ranges_lie_within_the_bounds(kind: str, name: str) -> None:
    for key, field in plugins.load(kind, name).Settings.model_fields.items():
        extra = field.json_schema_extra
        if not isinstance(extra, dict) or "tune" not in extra:
            continue
        tune: Any = extra["tune"]
        assert tune["low"] < tune["high"]
        assert tune["low"] > 0 or not tune["log"]
        assert tune["low"] <= field.default <= tune["high"]
        for bound in ("low", "high"):
            assert getattr(settings_of(kind, name, **{key: tune[bound]}), key) == tune[bound]


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_an_unknown_setting_is_refused(kind: str, name: str) -> None:
    with pytest.raises(ValueError, match="no_such_setting"):
        settings_of(kind, name, no_such_setting=1)


def test_a_plugin_that_lacks_a_method_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "participation").mkdir()
    (tmp_path / "participation" / "nobody.py").write_text(
        "from fedtide.participation.base import Participation\n\n\nclass Nobody(Participation):\n"
        "    def draw(self, present, round_, seed):\n        return present[:1]\n"
    )
    monkeypatch.setenv("FEDTIDE_PLUGINS", str(tmp_path))
    monkeypatch.setattr(participation, "__path__", list(participation.__path__))
    with pytest.raises(SettingsError, match=r"participation/nobody\.py: Nobody has to define participation_fraction"):
        plugins.load("participation", "nobody")
