"""A run on a table to which rows are appended continues, and is the run on all rows at once."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pandas as pd
import pytest
import torch

from fedtide.core.errors import SettingsError
from fedtide.mirror.check import check_run
from fedtide.records.run_directory import RunDirectory
from fedtide.records.states import state_files
from fedtide.runs import stages
from fedtide.runs.finished_states import free_states
from fedtide.runs.progress import Watch
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from small_runs import execute

MONTHS = 12


def rows(months: int = MONTHS, per_month: int = 60) -> pd.DataFrame:
    """Rows of eight clients: `aaron`, first by name, comes in month 6, `zoe` in month 9; `carl` pauses in months 6 to 8."""
    rng = np.random.default_rng(5)
    names = np.array(["aaron", "bea", "carl", "dora", "emil", "fay", "gus", "zoe"])
    month = np.repeat(np.arange(1, MONTHS + 1), per_month)
    x = rng.normal(size=(len(month), 2))
    label = np.where(x[:, 0] + rng.normal(size=len(month)) > 0, "late", "fine")
    when = [f"2013-{number:02}-{day:02}" for number, day in zip(month, rng.integers(1, 28, len(month)), strict=True)]
    who = names[rng.integers(0, 8, len(month))]
    frame = pd.DataFrame({"who": who, "when": when, "x": x[:, 0], "y": x[:, 1], "label": label, "month": month})
    away = (frame.who == "aaron") & (frame.month < 6) | (frame.who == "carl") & frame.month.between(6, 8)
    away |= (frame.who == "zoe") & (frame.month < 9)
    return frame[~away & (frame.month <= months)]


def settings(root: Path, **changes: Any) -> RunSettings:
    raw: dict[str, Any] = {
        "data": {
            "name": "table",
            "root": str(root),
            "file": str(root / "rows.csv"),
            "client": "who",
            "time": "when",
            "classes": ["fine", "late"],
            "numeric": ["x", "y"],
            "categorical": [],
            "grows": True,
        },
        "scenario": {"name": "calendar", "rounds_per_period": 2},
        "partition": {"name": "natural"},
        "participation": {"name": "fixed", "fraction": 0.5},
        "model": {"name": "logistic"},
        "local": {"amount": 2, "unit": "steps", "batch_size": 8},
        "federation": {"at_session": "keep"},
        "evaluation": {"splits": ["test", "validation"]},
        "engine": {"workers": 1, "accelerator": "cpu"},
    }
    for key, value in changes.items():
        raw[key] = {**raw[key], **value} if isinstance(value, dict) and "name" not in value else value
    return Params(raw).run()


def run(root: Path, frame: pd.DataFrame, *callbacks: L.Callback, **changes: Any) -> tuple[Any, list[str]]:
    """Execute the run on these rows; its summary and what it logs."""
    root.mkdir(exist_ok=True)
    frame.to_csv(root / "rows.csv", index=False)
    lines: list[str] = []
    summary = execute(settings(root, **changes), root / "runs", log=lines.append, callbacks=callbacks)
    return summary, lines


def folder(root: Path) -> Path:
    (found,) = (path for path in (root / "runs").iterdir() if path.is_dir())
    return found


def records(root: Path) -> tuple[dict[str, list[dict[str, str]]], list[str], dict[str, bytes]]:
    """All tables but for the seconds of a round, the starts of sessions, and the bits of the final model."""
    tables = {}
    for path in sorted(folder(root).glob("*.csv")):
        with path.open() as stream:
            tables[path.name] = [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(stream)]
    sessions = [line for line in (folder(root) / "events.jsonl").read_text().splitlines() if '"session"' in line]
    model = {name: tensor.numpy().tobytes() for name, tensor in torch.load(folder(root) / "model.pt").items()}
    return tables, sessions, model


def continued_from(lines: list[str]) -> int:
    return next((int(line.rsplit(" ", 1)[1]) for line in lines if "continuing from round" in line), 0)


KINDS: dict[str, dict[str, Any]] = {
    "fedavg": {"evaluation": {"clients_every": 1, "models": ["cloud", "all"]}},
    "scaffold": {"algorithm": "scaffold", "federation": {"memory": "disk"}},
    "downlink": {"downlink": {"name": "qsgd"}, "participation": "active", "federation": {"at_session": "reset"}},
    "momentum": {"algorithm": "feddyn", "local": {"momentum": 0.5, "momentum_scope": "client"}},
    "labels held so far": {"algorithm": "fedawe", "participation": {"name": "heterogeneous", "shares": "labels"}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_month_by_month_gives_the_records_of_all_months_at_once(tmp_path: Path, kind: str) -> None:
    """Every month with scaffold; with the others some months at a time, among them those in which clients come and return."""
    frame, before = rows(), 1
    run(tmp_path / "once", frame, **KINDS[kind])
    for month in range(1, MONTHS + 1) if kind == "scaffold" else (4, 6, 9, MONTHS):
        _, lines = run(tmp_path / "monthly", frame[frame.month <= month], **KINDS[kind])
        assert continued_from(lines) == 2 * (before - 1)
        before = month
    assert records(tmp_path / "monthly") == records(tmp_path / "once")
    assert check_run(folder(tmp_path / "monthly")).problems == ()


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Records of the run on five months at once."""
    root = tmp_path_factory.mktemp("five") / "once"
    run(root, rows(5), algorithm="scaffold")
    return records(root)


def test_a_month_may_be_appended_in_parts_and_late(tmp_path: Path, five: Any) -> None:
    """The month in progress and the one before may change; the one before that is then evaluated on other rows."""
    frame = rows(5)
    half = (frame.month == 4) & (frame.when > "2013-04-15")
    late = (frame.month == 4) & (frame.who == "bea")
    run(tmp_path, frame[(frame.month <= 4) & ~half & ~late], algorithm="scaffold")
    _, lines = run(tmp_path, frame[(frame.month <= 4) & ~late], algorithm="scaffold")
    assert continued_from(lines) == 4
    run(tmp_path, frame[~late], algorithm="scaffold")
    _, lines = run(tmp_path, frame, algorithm="scaffold")
    assert continued_from(lines) == 4
    assert records(tmp_path) == five


def test_a_complete_run_keeps_what_it_continues_from(tmp_path: Path) -> None:
    run(tmp_path, rows(2))
    directory = RunDirectory(folder(tmp_path))
    states = state_files(directory.state)
    assert states
    assert free_states(directory) == 0
    assert state_files(directory.state) == states


def test_the_order_of_the_file_does_not_matter(tmp_path: Path, five: Any) -> None:
    frame = rows(5)
    run(tmp_path, frame[frame.month <= 4].sample(frac=1, random_state=1), algorithm="scaffold")
    run(tmp_path, frame.sample(frac=1, random_state=2), algorithm="scaffold")
    assert records(tmp_path) == five
    _, lines = run(tmp_path, frame.sample(frac=1, random_state=3), algorithm="scaffold")
    assert [line for line in lines if "already complete, nothing to do" in line] == lines


def test_nothing_is_trained_again_without_a_look_ahead(tmp_path: Path) -> None:
    frame, alone = rows(4), {"scenario": {"ahead": 0}}
    run(tmp_path / "once", frame, **alone)
    run(tmp_path / "monthly", frame[frame.month <= 3], **alone)
    _, lines = run(tmp_path / "monthly", frame, **alone)
    assert continued_from(lines) == 6
    assert records(tmp_path / "monthly") == records(tmp_path / "once")


def changed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(x=np.where(frame.month == 2, -frame.x, frame.x))


OLD = {
    "changed": changed,
    "deleted": lambda frame: frame.drop(frame.index[frame.month == 2][3]),
    "added": lambda frame: pd.concat([frame, frame[frame.month == 2].head(1).assign(who="bea", x=0.5)]),
    "of another client": lambda frame: frame.assign(
        who=frame.who.where(frame.month != 2, frame.who.replace("bea", "carl"))
    ),
}


@pytest.mark.parametrize("how", OLD)
def test_other_old_rows_are_refused_by_their_period(tmp_path: Path, five: Any, how: str) -> None:
    frame = rows(6)
    run(tmp_path, frame[frame.month <= 5], algorithm="scaffold")
    before = {path.name: path.read_bytes() for path in folder(tmp_path).iterdir() if path.is_file()}
    with pytest.raises(
        SettingsError,
        match=r"rows of 2013-02 were changed, added or removed since the run was trained on them; only those of its last 2 "
        r"periods, 2013-04 and 2013-05, may still change; put the rows back",
    ):
        run(tmp_path, OLD[how](frame), algorithm="scaffold")
    assert {path.name: path.read_bytes() for path in folder(tmp_path).iterdir() if path.is_file()} == before
    _, lines = run(tmp_path, frame[frame.month <= 5], algorithm="scaffold")
    assert "nothing to do" in lines[0]
    assert records(tmp_path) == five


def test_a_stop_in_the_middle_of_a_continued_run(tmp_path: Path, five: Any, stop_after: Any) -> None:
    frame = rows(5)
    run(tmp_path, frame[frame.month <= 3], algorithm="scaffold")
    assert run(tmp_path, frame[frame.month <= 4], stop_after(7), algorithm="scaffold")[0]["state"] == "interrupted"
    assert check_run(folder(tmp_path)).problems == ()
    summary, lines = run(tmp_path, frame, algorithm="scaffold")  # rows came while the run was stopped
    assert (continued_from(lines), summary["state"]) == (6, "complete")
    assert records(tmp_path) == five


def test_a_label_that_is_not_listed_is_one_line(tmp_path: Path) -> None:
    frame = rows(3)
    run(tmp_path, frame[frame.month <= 2])
    with pytest.raises(SettingsError, match=r"rows\.csv, line \d+: label is 'lost', expected one of fine, late"):
        run(tmp_path, frame.assign(label=frame.label.where(frame.month < 3, "lost")))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no time": ({"data": {"time": None}}, r"grows = true needs client and time"),
    "no client": ({"data": {"client": None}}, r"grows = true needs client and time"),
    "no classes": ({"data": {"classes": []}}, r"grows = true needs classes: all labels"),
    "split": (
        {"data": {"split": {"period": "all"}}},
        r"data\.split\.period = all should be that of the scenario, month",
    ),
    "scenario": ({"scenario": {"name": "static"}}, r"data\.grows = true needs scenario calendar, not static"),
    "equal": (
        {"scenario": {"period": "equal"}},
        r"scenario\.period = equal: the bounds of equal periods would depend on",
    ),
    "size": ({"partition": {"min_samples": 5}}, r"partition\.min_samples = 5: who has as many samples would depend on"),
    "number": ({"partition": {"max_clients": 5}}, r"partition\.max_clients: who is drawn would depend on rows to come"),
    "rate": (
        {"local": {"schedule": "cosine", "restart": False}},
        r"local\.schedule = cosine with local\.restart = false",
    ),
    "attack": ({"attack": {"name": "sign_flip", "share": 0.2}}, r"attack sign_flip: who attacks would depend on"),
    "drift": ({"drift": {"name": "sudden"}}, r"drift sudden: when it begins would depend on rows to come"),
    "clock": ({"clock": {"name": "events"}}, r"clock = events: which results arrive would depend on rows to come"),
    "synthetic": ({"algorithm": {"name": "cfl_generative"}}, r"algorithm cfl_generative: where its synthetic samples"),
    "privacy": (
        {"uplink": [{"name": "clip", "bound": 1.0}, {"name": "noise", "multiplier": 1.0, "mechanism": "independent"}]},
        r"uplink noise: the noise for a privacy guarantee would depend on rows to come",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_grow_is_one_line(tmp_path: Path, what: str) -> None:
    changes, message = BAD[what]
    with pytest.raises(SettingsError, match=message):
        settings(tmp_path, **changes)


def test_a_comparison_and_its_report_continue(tmp_path: Path) -> None:
    def params() -> Params:
        raw = settings(tmp_path).model_dump(mode="json")
        chosen = {key: raw[key] for key in ("scenario", "participation", "partition", "model", "local", "engine")}
        compared = {"algorithms": ["fedavg", "scaffold"], "initialisers": ["previous"], "seeds": [0], "workers": 1}
        data = raw["data"] | {"split": {"period": "month"}}
        return Params({**chosen, "data": data, "compare": compared, "tracking": {"mlflow": False}})

    frame, lines = rows(4), list[str]()
    for month in (3, 4):
        frame[frame.month <= month].to_csv(tmp_path / "rows.csv", index=False)
        where = stages.workspace(params(), tmp_path / "runs", None, None)
        summaries, stopped = stages.train(params(), where, Watch(lines.append))
        assert stopped is None
        assert [(each["state"], each["rounds"]) for each in summaries] == [("complete", 2 * month)] * 2
    assert len([path for path in (tmp_path / "runs").iterdir() if (path / "summary.json").is_file()]) == 2
    assert len([line for line in lines if "continuing from round 4" in line]) == 2
    drawn = {drawing.name for drawing in stages.figures(params(), tmp_path / "runs", None)}
    assert {"world", "population", "earlier_sessions"} <= drawn
    again, _ = stages.train(params(), where, Watch(lines.append))
    assert again == summaries
