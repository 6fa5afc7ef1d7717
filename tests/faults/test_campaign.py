"""Cases of the fault campaign, which runs all of them: ``make faults``."""

import pytest
from bench import Benches

import campaign

CASES = {
    "run": ("kill/0", "kill/1", "kill/2"),
    "run-mlflow": ("kill/0", "kill/1", "pair/1"),
    "compare": ("kill/0", "kill/1", "pair/0"),
    "compare-mlflow": ("kill/0",),
    "tune": ("kill/1", "pair/0"),
    "tune-mlflow": ("kill/0",),
    "tune-two": ("kill/0", "kill/1"),
    "reproduce": ("kill/0",),
    "train-stage": ("kill/0",),
    "tune-stage": ("kill/0",),
    "prepare": ("kill/1", "pair/0"),
    "timeline": ("kill/1",),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_fault_changes_nothing(tmp_path, name):
    bench = Benches(tmp_path).of(name)
    for case in CASES[name]:
        fault, number = case.split("/")
        verdict = campaign.FAULTS[fault].execute(bench, int(number), 0, bench.folder(f"{fault}-{number}"))
        assert (verdict.changed, verdict.stuck, verdict.false) == ([], [], []), (case, verdict)
        assert verdict.resumed or verdict.refused
