"""What the stages in dvc.yaml depend on."""

from pathlib import Path

import pytest
import yaml

from fedtide.core import plugins
from fedtide.core.source import closure, source_file
from fedtide.settings.run import RunSettings

PROJECT = Path(__file__).parents[2]
STAGES = yaml.safe_load((PROJECT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
RUN = set(RunSettings().canonical())
OWN = {"algorithm", "initialiser", "seed"}  # of one run; a grid has lists of them


@pytest.mark.parametrize(
    ("stage", "needed"),
    [
        ("partition", set(RunSettings().world()) | {"compare.seeds"}),
        ("train", RUN - OWN | {"compare.initialisers", "compare.seeds", "initialisers"}),
        ("tune", RUN - OWN | {"algorithm", "initialiser", "tune"}),
    ],
)
def test_a_stage_depends_on_every_setting_that_changes_what_it_makes(stage, needed):
    assert needed <= set(STAGES[stage]["params"])


def every(kind):
    return [plugins.module_of(kind, name) for name in plugins.names(kind)]


@pytest.mark.parametrize(
    ("stage", "modules", "packages"),
    [
        ("download", ["fedtide.world.prepared", *every("data")], {"data", "world"}),
        (
            "partition",
            ["fedtide.world.files", "fedtide.world.picture", *every("partitions"), *every("scenarios")],
            {"world", "partitions", "scenarios"},
        ),
        ("report", ["fedtide.report.build"], {"report"}),
        ("tune", ["fedtide.tuning.study", "fedtide.report.front"], {"tuning"}),
    ],
)
def test_a_stage_depends_on_every_source_that_changes_what_it_makes(stage, modules, packages):
    """The training stage depends on hashes of its sources instead, see the stage ``code``."""
    needed = {source_file(module) for module in closure(modules, lambda name: name.split(".")[1] in packages)}
    given = [PROJECT / path for path in STAGES[stage]["deps"]]
    assert needed
    assert not [file.name for file in needed if not any(file == path or path in file.parents for path in given)]


def test_every_source_in_a_stage_exists():
    paths = [path for stage in STAGES.values() for path in stage["deps"] if path.startswith("src/")]
    assert paths
    assert not [path for path in paths if not (PROJECT / path).exists()]
