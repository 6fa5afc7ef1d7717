"""A plug-in that breaks a requirement is found out by the test of that requirement."""

from pathlib import Path

import pytest

from fedtide.authoring.contract import CONTRACT, verdicts
from fedtide.authoring.trial import Trial

HEAD = """import torch
from pydantic import Field

from fedtide import Algorithm, AlgorithmSettings, Local, Tunable
"""
CLASS = """

class Mine(Algorithm):
    '''Averages.'''

    class Settings(AlgorithmSettings):
        name: str = "{name}"
        pull: float = {pull}
"""
PULL = "Field(0.5, ge=0, le=1, description='of nothing')"
CASES = {
    "undescribed": ("Field(0.5, ge=0, le=1)", "", "is documented", "the setting pull has no description"),
    "invalid": ("Field(-1.0, ge=0, description='of nothing')", "", "is documented", "algorithms: pull = -1.0: should be"),
    "outside": (
        "Tunable(0.5, low=0.6, high=1.0, description='of nothing')", "", "is documented",
        "pull = 0.5, its default, is outside its search range",
    ),
    "backwards": (
        "Tunable(0.5, low=0.6, high=0.1, description='of nothing')", "", "is documented", "pull is searched from 0.6 to 0.1",
    ),
    "lenient": (
        f"{PULL}\n        model_config = dict(extra='ignore')", "", "rejects invalid settings", "no_such_setting = 1 is not",
    ),
    "infinite": (PULL, "def finish(self, r):\n        return r.w + float('nan')", "trains", "diverged in round 1"),
    "halving": (
        PULL, "def weights(self, r):\n        return r.weights / 2", "trains", "weights should be nonnegative with sum 1, got",
    ),
    "crashing": (PULL, "def finish(self, r):\n        raise KeyError('no')", "trains", "in finish: KeyError: 'no'"),
    "declaring": (PULL, "server = 5", "trains", "in server_vectors: TypeError: 'int' object is not iterable"),
    "drawing": (PULL, "def finish(self, r):\n        return r.average() + torch.rand(1).double()", "repeats", "w differs"),
    "remembering": (
        PULL,
        "rounds = 0\n    def finish(self, r):\n        self.rounds += 1\n        return r.average() * (1 - self.rounds / 1000)",
        "resumes, on any engine",
        "w differs",
    ),
    "counting": (
        PULL,
        "def direction(self, grad, W, r):\n        return grad(W) * len(W)",
        "resumes, on any engine",
        "w differs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_broken_promise_is_found(own: Path, name: str) -> None:
    pull, body, requirement, problem = CASES[name]
    (own / "algorithms").mkdir(parents=True)
    code = HEAD + CLASS.format(name=name, pull=pull) + f"\n    {body}\n"
    (own / "algorithms" / f"{name}.py").write_text(code)
    found = dict(verdicts(Trial("algorithms", name)))
    broken = {key: why for key, why in found.items() if why}
    assert requirement in broken
    assert problem in broken[requirement]
    assert "\n" not in broken[requirement]
    assert list(found) == list(CONTRACT)[: len(found)]
    before = list(CONTRACT).index(requirement)
    assert not broken.keys() & set(list(CONTRACT)[:before])


def test_a_sentence_is_asked_for(own: Path) -> None:
    (own / "algorithms").mkdir(parents=True)
    (own / "algorithms" / "speechless.py").write_text(f"{HEAD}\n\nclass Mine(Algorithm):\n    pass\n")
    (requirement, problem), *_ = verdicts(Trial("algorithms", "speechless"))
    assert (requirement, problem) == (
        "is documented",
        "its docstring should begin with one sentence of at most 118 letters, got ''",
    )
