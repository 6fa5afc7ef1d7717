"""DVC stage: write the timelines of the compared seeds."""

from pathlib import Path

from fedtide import stages
from fedtide.cli import PARAMS, guarded, say
from fedtide.params import Params

guarded(lambda: stages.partition(Params.read(PARAMS), Path("worlds"), say))
