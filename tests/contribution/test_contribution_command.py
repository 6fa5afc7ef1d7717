"""``fedtide contribution``: its table, which an interrupted command completes, and what it refuses."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from commands import Fedtide
from fedtide.runs.display.progress import Watch
from fedtide.studies.contribution import contributions, ranked
from small_runs import Small

SET = ("--set", "scenario={name: static, num_clients: 3, rounds: 3}")


def rows(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_the_table_is_written_and_printed_with_the_most_valuable_client_first(fedtide: Fedtide, folder: Path) -> None:
    called = fedtide("contribution", *SET)
    assert called.status == 0
    assert called.out[0].split()[:3] == ["client", "accuracy", "loss"]
    found = rows(folder / "contribution" / "contribution.csv")
    assert [line.split()[0] for line in called.out[1:4]] == [row["client"] for row in found]
    values = [float(row["accuracy"]) for row in found]
    assert values == sorted(values, reverse=True)
    assert [line[:3] for line in called.err if "/3  client" in line] == ["1/3", "2/3", "3/3"]
    again = json.loads(fedtide("contribution", *SET, "--json", "--quiet", "--clients", "2,0").out[-1])
    kept = {int(row["client"]): float(row["own_loss"]) for row in found}
    assert {each["client"]: each["values"]["own_loss"] for each in again} == {client: kept[client] for client in (0, 2)}


@pytest.mark.slow
def test_an_interrupted_command_goes_on_with_the_other_clients(small: Small, tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        if line.startswith("2/4"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        contributions(small(), tmp_path / "cut", watch=Watch(interrupt))
    assert len(rows(tmp_path / "cut" / "contribution.csv")) == 2
    told = list[str]()
    found = contributions(small(), tmp_path / "cut", watch=Watch(told.append))
    assert [line[:3] for line in told[1:]] == ["3/4", "4/4"]
    assert found == ranked(found) == contributions(small(), tmp_path / "whole")
    texts = [(tmp_path / name / "contribution.csv").read_text() for name in ("cut", "whole")]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--clients", "1,7"), "--clients: unknown client '7'; client IDs are 0 to 2"),
        (("--clients", "one"), "--clients: unknown client 'one'; client IDs are 0 to 2"),
        (
            ("--set", "erase=[{name: retrain, clients: [1], at: 2}]"),
            "erase: retrain: contributions are those of a run that erases nobody; remove erase",
        ),
        (
            ("--set", "mode=async"),
            "mode: async: a client that is left out would move all later results; use mode: sync",
        ),
        (("--set", "algorithm=local"), "algorithm local trains no global model to compare; use one like fedavg"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_what_has_no_contributions_is_refused(
    fedtide: Fedtide, folder: Path, arguments: tuple[str, ...], line: str
) -> None:
    called = fedtide("contribution", *SET, *arguments)
    assert (called.status, called.err) == (2, [f"fedtide: {line}"])
    assert not (folder / "contribution").exists()


def test_the_table_of_another_run_is_left_alone_and_a_damaged_one_named(fedtide: Fedtide, folder: Path) -> None:
    file = folder / "contribution" / "contribution.csv"
    assert fedtide("contribution", *SET, "--clients", "1").status == 0
    before, lines = file.read_text(), file.read_text().splitlines()
    called = fedtide("contribution", *SET, "--set", "seed=1")
    assert called.status == 2
    assert called.err[-1].startswith("fedtide: contribution/contribution.csv: of the run fedavg-previous-s0-")
    assert called.err[-1].endswith("; choose another folder with --out")
    assert file.read_text() == before
    for damaged in (lines[1].replace(",1,", ",x,", 1), lines[1][: lines[1].index(",") + 3]):
        file.write_text(f"{lines[0]}\n{damaged}\n")
        called = fedtide("contribution", *SET)
        assert called.status == 2
        assert called.err[-1].startswith("fedtide: contribution/contribution.csv: line 2 is damaged; delete the file")


def test_a_run_that_diverges_has_no_contributions(fedtide: Fedtide, folder: Path) -> None:
    called = fedtide("contribution", *SET, "--set", "divergence_threshold=0.001")
    assert called.status == 1
    assert called.err[-1].startswith("the run with all clients diverged in round 1: training loss")
    assert not (folder / "contribution" / "contribution.csv").exists()
