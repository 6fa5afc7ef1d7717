"""The contract of every plug-in; add what this one promises beyond that, such as values worked out by hand."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("FEDTIDE_PLUGINS", str(Path(__file__).parents[1]))

from fedtide.authoring.contract import PROMISES
from fedtide.authoring.trial import Trial


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial("KIND", "NAME")


@pytest.mark.parametrize("promise", PROMISES)
def test_contract(trial: Trial, promise: str) -> None:
    PROMISES[promise](trial)
