"""What dvc.yaml says its stages depend on."""

from pathlib import Path

import pytest
import yaml

from fedtide.settings.run import RunSettings

STAGES = yaml.safe_load((Path(__file__).parents[2] / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
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
