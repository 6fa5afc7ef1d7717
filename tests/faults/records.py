"""What two runs with equal settings must agree on to the bit, however often one of them was interrupted."""

from __future__ import annotations

import csv
from pathlib import Path

import torch

from fedtide.tracking.check import check_run
from fedtide.tracking.run_directory import RunDirectory


def history(run: Path) -> list[dict[str, str]]:
    """Rows of ``history.csv`` but for the seconds each round took."""
    with (run / "history.csv").open(encoding="utf-8", newline="") as stream:
        return [{key: cell for key, cell in row.items() if key != "seconds"} for row in csv.DictReader(stream)]


def same_records(run: Path, whole: Path) -> None:
    """Final parameters, rounds, per-class accuracies, what is kept of clients, and bytes on the wire are identical."""
    assert history(run) == history(whole)
    assert (run / "per_class.csv").read_bytes() == (whole / "per_class.csv").read_bytes()
    kept = [(folder / "clients.csv").read_bytes() for folder in (run, whole) if (folder / "clients.csv").exists()]
    assert len(kept) in (0, 2)
    assert kept[:1] == kept[1:]
    model, expected = (torch.load(folder / "model.pt", weights_only=True) for folder in (run, whole))
    assert model.keys() == expected.keys()
    assert all(torch.equal(model[name], expected[name]) for name in expected)
    summary, other = (RunDirectory(folder).summary() for folder in (run, whole))
    assert summary is not None
    assert other is not None
    assert {**summary, "seconds": 0} == {**other, "seconds": 0}
    assert check_run(run).problems == check_run(whole).problems == ()
    assert not list(run.rglob("*.part"))
