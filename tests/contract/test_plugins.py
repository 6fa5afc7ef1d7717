"""What every plug-in promises by existing: a summary, documented settings, defaults that are valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtide.authoring.contract import is_documented, refuses_bad_settings
from fedtide.authoring.trial import Trial
from fedtide.core import plugins
from fedtide.core.errors import SettingsError

EVERY = [(kind, name) for kind in plugins.KINDS for name in plugins.names(kind)]

REQUIRED = {("aggregation", "krum"): ("aggregation.f=1",)}
REQUIRED |= {("attacks", name): ("attack.share=0.1",) for name in plugins.names("attacks") if name != "none"}
REQUIRED |= {("erasers", name): ("erase.clients=[1]", "erase.at=3") for name in plugins.names("erasers")}
"""Settings that have to be given, since they decide what a result means: how many attackers there are, who is erased when."""


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_a_plugin_is_documented_and_refuses_bad_settings(kind: str, name: str) -> None:
    trial = Trial(kind, name, REQUIRED.get((kind, name), ()))
    assert (
        plugins.summary(kind, name) == str(plugins.load(kind, name).__doc__).split("\n")[0]
    )  # of no other class there
    is_documented(trial)
    refuses_bad_settings(trial)


def test_a_plugin_that_lacks_a_method_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "participation").mkdir()
    (tmp_path / "participation" / "nobody.py").write_text(
        "from fedtide.world.participation.base import Participation\n\n\nclass Nobody(Participation):\n"
        "    def draw(self, present, round_, seed):\n        return present[:1]\n"
    )
    monkeypatch.setenv("FEDTIDE_PLUGINS", str(tmp_path))
    with pytest.raises(
        SettingsError, match=r"participation/nobody\.py:4: Nobody does not define participation_fraction"
    ):
        plugins.load("participation", "nobody")
