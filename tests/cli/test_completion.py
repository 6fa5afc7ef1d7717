"""What the shell proposes: asked as bash does, through the command's own completion."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from commands import Fedtide
from fedtide.core import plugins
from fedtide.settings.experiment import Experiment

Proposed = Callable[[str], list[str]]


@pytest.fixture
def proposed(fedtide: Fedtide, monkeypatch: pytest.MonkeyPatch) -> Proposed:
    def ask(line: str) -> list[str]:
        monkeypatch.setenv("_FEDTIDE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        called = fedtide()
        assert (called.status, called.err) == (0, [])
        return [word for word in called.out if word]

    return ask


def test_kinds_and_names_of_plugins(proposed: Proposed) -> None:
    assert proposed("fedtide list al") == ["algorithms"]
    assert proposed("fedtide list ") == list(plugins.KINDS)
    assert proposed("fedtide new sc") == ["scenarios"]
    assert proposed("fedtide show initializer ") == sorted(plugins.names("initializers"))
    assert proposed("fedtide show algorithms poo") == ["pooled", "pooled_period"]
    assert proposed("fedtide show nothing ") == []
    assert proposed("fedtide test scaf") == ["scaffold", "scaffold_released"]


def test_settings_are_those_of_the_file(proposed: Proposed, folder: Path) -> None:
    assert proposed("fedtide run --set ") == [f"{name}=" for name in Experiment.model_fields]
    assert proposed("fedtide run --set local.l") == ["local.lr="]
    assert "scenario.num_devices=" in proposed("fedtide compare --set scenario.")
    assert proposed("fedtide run --set scenario.name=sta") == ["scenario.name=static"]
    raw = yaml.safe_load((folder / "params.yaml").read_text())
    (folder / "params.yaml").write_text(
        yaml.safe_dump(raw | {"scenario": "static", "algorithms": {"poor": {"name": "fedavg"}}})
    )
    assert "scenario.num_clients=" in proposed("fedtide compare --set scenario.")
    assert proposed("fedtide run --set algorithm=poo") == [
        f"algorithm={name}" for name in ("pooled", "pooled_period", "poor")
    ]
    (folder / "params.yaml").write_text("a: [")
    assert proposed("fedtide run --set local.l") == []
