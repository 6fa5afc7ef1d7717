"""The contract of every plug-in; add tests of what this one does beyond it, such as values worked out by hand."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("FEDTIDE_PLUGINS", str(Path(__file__).parents[1]))

from fedtide.authoring.contract import CONTRACT
from fedtide.authoring.trial import Trial


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial("KIND", "NAME")


@pytest.mark.parametrize("requirement", CONTRACT)
def test_contract(trial: Trial, requirement: str) -> None:
    CONTRACT[requirement](trial)
