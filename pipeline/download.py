"""DVC stage: fetch and prepare the dataset."""

from pathlib import Path

from fedtide import stages
from fedtide.cli import PARAMS, guarded
from fedtide.params import Params

guarded(lambda: stages.download(Params.read(PARAMS), Path("data/dataset.json")))
