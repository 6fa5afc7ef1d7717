"""What the stages in dvc.yaml depend on."""

from pathlib import Path

import pytest
import yaml

from fedtide.core import plugins
from fedtide.core.discovery.source import closure, source_file

PROJECT = Path(__file__).parents[2]
STAGES = yaml.safe_load((PROJECT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


def every(kind):
    return [plugins.module_of(kind, name) for name in plugins.names(kind)]


@pytest.mark.parametrize(
    ("stage", "modules", "packages"),
    [
        ("timeline", ["fedtide.world.building.build", "fedtide.report.picture"], {"world"}),
        ("report", ["fedtide.report.build"], {"report"}),
        ("tune", ["fedtide.studies.tuning.study"], {"studies"}),
    ],
)
def test_a_stage_depends_on_every_source_that_changes_what_it_makes(stage, modules, packages):
    """Of plug-ins, stages depend on the hashes that the stage ``inputs`` writes."""
    needed = {source_file(module) for module in closure(modules, lambda name: name.split(".")[1] in packages)}
    given = [PROJECT / path for path in STAGES[stage]["deps"]]
    assert needed
    assert not [file.name for file in needed if not any(file == path or path in file.parents for path in given)]


def test_what_dvc_cannot_know_is_looked_at_every_time():
    """Files of datasets and scenarios and users' plug-ins, which can be anywhere; all else follows from these stages."""
    always = {name for name, stage in STAGES.items() if stage.get("always_changed")}
    assert always == {"download", "inputs"}
    needed = {
        "timeline": {"inputs/worlds.json"},
        "train": {"inputs/algorithms/${item.algorithm}.json", "worlds"},
        "tune": {"inputs/search.json"},
    }
    for stage, paths in needed.items():
        assert paths | {"data/dataset.json"} <= set(STAGES[stage]["deps"])


def test_no_stage_names_a_parameter():
    """Which ones it depends on follows from settings as they are resolved (``test_inputs.py``)."""
    assert not [name for name, stage in STAGES.items() if "params" in stage]
