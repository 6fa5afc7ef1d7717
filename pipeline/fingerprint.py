"""DVC stage: one small file per compared algorithm, whose content changes when code it depends on changes."""

from pathlib import Path

from fedtide import stages
from fedtide.cli import PARAMS, guarded
from fedtide.params import Params

guarded(lambda: stages.code(Params.read(PARAMS), Path("code")))
