"""Runs and trials whose process is killed, or that raise, in commands that do several."""

import csv
import json

import pytest

from commands import sets

SEARCH = ("algorithm=fragile", "validation=0.2")
LINE = "fragile.py:31: in finish: ZeroDivisionError: the third round is fragile"


def algorithms(marks, **entries):
    named = {name: {"name": "fragile", "marks": str(marks), **entry} for name, entry in entries.items()}
    return sets(f"algorithms={json.dumps({'fedavg': {}, **named})}")


def states(called):
    return {summary["label"]: summary["state"] for summary in json.loads(called.out[-1])}


def accuracies(folder, key):
    rows = csv.DictReader((folder / "runs" / key / "history.csv").open())
    return [(row["round"], row["test_accuracy"], row["train_loss"]) for row in rows]


@pytest.mark.slow
def test_a_run_whose_process_dies_is_begun_again_and_the_others_go_on(fedtide, folder, marks):
    grid = sets("compare={algorithms: [fragile, fedavg], workers: 2}", "checkpoint.every=2")
    called = fedtide("compare", "--json", *algorithms(marks, fragile={}), *grid)
    assert called.status == 0
    assert states(called) == {"fragile": "complete", "fedavg": "complete"}
    again = [line for line in called.err if "resuming" in line]
    assert again == [
        "fragile / previous / seed 0: its process was killed (SIGKILL, perhaps for lack of memory); "
        "resuming from its checkpoint"
    ]
    keys = [summary["run_key"] for summary in json.loads(called.out[-1])]
    assert accuracies(folder, keys[0]) == accuracies(folder, keys[1])  # which differ in what they survived alone
    assert '"resumed", "round": 2' in (folder / "runs" / keys[0] / "events.jsonl").read_text()


@pytest.mark.slow
def test_runs_that_fail_are_listed_at_the_end_and_tried_again_by_the_next_command(fedtide, folder, marks):
    bad = algorithms(marks, dies={"times": 2}, raises={"how": "raise", "times": 3})
    grid = [*bad, *sets("compare={algorithms: [dies, raises, fedavg], workers: 1}")]
    first = fedtide("compare", "--json", *grid)
    assert first.status == 1
    assert states(first) == {"dies": "failed", "raises": "failed", "fedavg": "complete"}
    keys = [summary["run_key"] for summary in json.loads(first.out[-1])]
    assert first.err[-3:-1] == [
        "2 of 3 runs diverged or failed:",
        "  dies / previous / seed 0: its process was killed (SIGKILL, perhaps for lack of memory), at each of 2 attempts",
    ]
    assert first.err[-1].startswith("  raises / previous / seed 0: ")
    assert first.err[-1].endswith(f"{LINE} (runs/{keys[1]}/error.txt)")
    assert not any("Traceback" in line for line in first.err)
    kept = folder / "runs" / keys[1] / "error.txt"
    assert "in finish\n" in kept.read_text()

    assert fedtide("compare", "--json", *grid).status == 0
    assert not kept.exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", [("--allow-failures",), ("--set", "compare.allow_failures=true")])
def test_failures_can_be_allowed_and_are_listed_all_the_same(fedtide, marks, how):
    wild = sets("local={steps: 2, lr: 1e+30}", "compare.workers=1")
    called = fedtide("compare", "--json", *wild, *how)
    assert called.status == 0
    assert states(called) == {"fedavg": "diverged"}
    assert called.err[-2] == "1 of 1 runs diverged or failed:"
    assert "fedavg / previous / seed 0: diverged in round" in called.err[-1]
    assert fedtide("compare", "--json", *wild).status == 1  # also when there is nothing left to do


@pytest.mark.slow
def test_bad_input_that_shows_only_when_runs_begin_is_one_line(fedtide, folder):
    """Of all runs: exit status 2. Beside a run that can be done it is a failed one."""
    short = sets("algorithms={fedavg: {}, fedwcm: {target: [0.5, 0.5]}}", "compare.workers=1")
    message = "algorithm.target: 2 frequencies, but the data have 10 classes"
    assert fedtide("compare", *short, "--set", "compare.algorithms=[fedwcm]").refusal == message
    assert not (folder / "runs").exists()
    called = fedtide("compare", "--json", *short, "--set", "compare.algorithms=[fedwcm, fedavg]")
    assert called.status == 1
    assert states(called) == {"fedwcm": "failed", "fedavg": "complete"}
    assert called.err[-2:] == ["1 of 2 runs diverged or failed:", f"  fedwcm / previous / seed 0: {message}"]


@pytest.mark.slow
def test_trials_that_fail_do_not_end_the_search(fedtide, folder, marks):
    """One process of two dies while the other one waits for its next trial."""
    settings = [*algorithms(marks, fragile={"times": 3}), *sets(*SEARCH, "tune={trials: 3, workers: 2, prune: false}")]
    first = fedtide("tune", "--json", *settings)
    result = json.loads(first.out[-1])
    died = [line for line in first.err if "resuming" in line]
    assert len(died) + len(result["failed"]) == 3  # each kill is a second attempt or the end of a trial
    assert result["trials"] == 3 - len(result["failed"])
    assert first.status == (1 if result["failed"] else 0)
    second = fedtide("tune", "-q", "--json", *settings)
    assert (second.status, second.err) == (0, [])
    whole = json.loads(second.out[-1])
    assert (whole["trials"], whole["failed"], whole["stopped"]) == (3, [], None)
    with (folder / "tuning/trials.csv").open() as stream:
        assert {row["run"][-4:] for row in csv.DictReader(stream)} == {"0000", "0001", "0002"}


@pytest.mark.slow
def test_a_trial_that_raises_is_listed_and_the_same_command_tries_it_again(fedtide, folder, marks):
    search = sets(*SEARCH, "tune={trials: 2, workers: 1, prune: false}")
    settings = [*algorithms(marks, fragile={"how": "raise"}), *search]
    first = fedtide("tune", *settings)
    assert first.status == 1
    assert "1 trials, 1 of them complete" in "\n".join(first.out)
    head, line = first.err[-2:]
    assert head == "1 of 2 trials failed; re-run the same command to retry them:"
    assert "-0000: " in line
    assert f"{LINE} (runs/" in line
    second = fedtide("tune", *settings)
    assert second.status == 0
    assert "2 trials, 2 of them complete" in "\n".join(second.out)
