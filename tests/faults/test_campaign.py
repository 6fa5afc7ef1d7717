"""Cases of the fault campaign, which runs all of them: ``make faults``."""

import pytest
from bench import Benches

import campaign

KILLS = [f"kill/run/{number}" for number in range(3)]
OTHERS = [
    *(f"kill/{subject}/{number}" for subject in ("run-mlflow", "compare", "tune-two") for number in range(2)),
    *(f"kill/{subject}/0" for subject in ("compare-mlflow", "tune-mlflow", "reproduce", "train-stage", "tune-stage")),
    *(f"kill/{subject}/1" for subject in ("tune", "prepare", "timeline")),
    *("pair/run-mlflow/1", "pair/compare/0", "pair/tune/0", "pair/prepare/0"),
]


@pytest.fixture(scope="session")
def benches(tmp_path_factory):
    return Benches(tmp_path_factory.mktemp("campaign"))


@pytest.mark.parametrize(
    "case", [KILLS[1], *(pytest.param(case, marks=pytest.mark.slow) for case in (KILLS[0], *KILLS[2:], *OTHERS))]
)
def test_a_fault_changes_nothing(benches, case):
    fault, name, number = case.split("/")
    bench = benches.of(name)
    folder = bench.folder(f"{fault}-{number}")
    verdict = campaign.FAULTS[fault].execute(bench, int(number), 0, folder)
    assert (verdict.changed, verdict.stuck, verdict.false) == ([], [], []), verdict
    assert verdict.resumed or verdict.refused
