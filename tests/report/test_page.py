"""The page for every reader: by mouse, keyboard and screen reader, on a telephone and on paper, without a network."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic_runs import finish_again, write_run
from synthetic_sessions import ENERGY, LATENCY, write_sessions

from fedtide.records.frames import load
from fedtide.report import parts
from fedtide.report.build import build
from fedtide.report.charts.chart import Axis, Cells, Chart, Panel, Series
from fedtide.report.charts.interactive import div, figure
from fedtide.report.parts import Contents, Source
from fedtide.report.sections.curves import score_over_rounds
from fedtide.settings.experiment import ReportSettings

Tags = list[tuple[str, dict[str, str | None]]]


class Reader(HTMLParser):
    """Tags of a page in order, with their attributes; fails on a tag that is closed out of order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Tags = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two algorithms with two initializers, one with two seeds, and of a run that diverged."""
    root = tmp_path_factory.mktemp("page")
    dirs = [write_sessions(root, a, i, 0) for a in ("fedavg", "a <b>") for i in ("dynamic", "previous")]
    dirs.append(write_sessions(root, "fedavg", "dynamic", 1))
    for path in dirs:
        history = pd.read_csv(path / "history.csv")
        groups = {f"client_accuracy_{group}": history["test_accuracy"] for group in ("stayers", "newcomers")}
        kept = history["round"] % 4 == 0
        measured = {name: values.where(kept) for name, values in groups.items()}
        history.assign(**measured).to_csv(path / "history.csv", index=False)
        finish_again(path)
    dirs.append(write_run(root, "fedavg", "average", state="diverged", sessions=7, until=20))
    build(dirs, root / "out", Contents(ReportSettings(title="A title", last=5), "fedtide report"))
    return root / "out"


@pytest.fixture(scope="module")
def page(out: Path) -> str:
    return (out / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def curves(out: Path) -> list[Any]:
    """The lines of the first figure."""
    chart = score_over_rounds(load(sorted(path.parent for path in out.parent.glob("*/settings.json"))))
    assert chart is not None
    return [trace for trace in figure(chart).data if trace.hoverinfo != "skip"]


@pytest.mark.parametrize("of", ["cells", "bars", "bands"])
def test_the_last_bit_of_a_number_is_not_on_the_page(of: str) -> None:
    """Processors differ there, and the report is compared by its bytes."""
    values = np.random.default_rng(0).random(50)

    def drawn(values: np.ndarray) -> str:
        series = Series("fedavg", np.arange(50.0), values, "#000000", values - 0.1, values + 0.1, bars=of == "bars")
        panel = (
            Panel(cells=Cells(values.reshape(5, 10), "Blues", "Weight")) if of == "cells" else Panel(series=(series,))
        )
        return div(Chart(Axis("Round"), Axis("Loss"), (panel,), 1, 3.0), "figure")

    assert drawn(values) == drawn(np.nextafter(values, 1)) != drawn(values + 1e-6)


@pytest.mark.slow
def test_the_page_draws_every_chart_and_needs_nothing_else(page: str) -> None:
    tags = Reader(page)
    drawn = {each["id"] for each in tags.named("div") if each.get("class") == "plotly-graph-div"}
    assert drawn == {
        *("accuracy_over_rounds", "accuracy_over_bytes", "transition_accuracy", "per_class"),
        *("weights", "session_start_losses", "newcomers"),
    }
    assert not [attributes for tag in ("script", "link") for attributes in tags.named(tag) if "src" in attributes]
    assert tags.named("link") == []
    assert "plotly.js v" in page
    assert len(page.encode()) < 6_000_000
    plots = [each for each in tags.named("div") if each.get("role") == "img"]
    assert len(plots) == 7
    assert all(each["aria-label"] for each in plots)
    assert all(each.get("alt") for each in tags.named("img"))
    assert "a <b>" not in page
    assert "a &lt;b&gt;" in page


@pytest.mark.slow
def test_values_and_ranges_are_those_of_the_runs(curves: list[Any], out: Path) -> None:
    (line,) = (trace for trace in curves if trace.legendgroup == "dynamic" and trace.customdata is not None)
    histories = [
        pd.read_csv(out.parent / f"fedavg-dynamic-s{seed}" / "history.csv")["test_accuracy"] for seed in (0, 1)
    ]
    frame = pd.concat(histories, axis=1)
    assert line.x.tolist() == list(range(1, 85))
    assert line.y == pytest.approx(frame.mean(axis=1).tolist(), rel=1e-6)
    assert line.customdata[-1] == pytest.approx([frame.min(axis=1).iloc[-1], frame.max(axis=1).iloc[-1]], rel=1e-6)


@pytest.mark.slow
def test_tables_and_figures_of_the_changes(page: str, out: Path) -> None:
    assert [int(number) for number in re.findall(r"<b>Table (\d+)", page)] == [1, 2, 3, 4, 5]
    assert "Accuracy in the first 10 rounds after a session change, %" in page
    assert "Sessions 4 to 7. Mean" in page
    assert "Recovery after a session change, compared with dynamic" in page
    assert ">1 (2)<" in page, "a round until recovery, two with the gradient round"
    assert {"weights.png", "session_start_losses.png", "transitions.csv"} <= {path.name for path in out.iterdir()}
    frame = pd.read_csv(out / "transitions.csv").set_index("initializer").loc[["dynamic", "previous"]]
    assert len(frame) == 2 * 2 * 4
    assert frame["rounds_median"].notna().all()


@pytest.mark.slow
def test_costs_of_a_run_are_those_of_all_its_rounds(out: Path) -> None:
    table = pd.read_csv(out / "table.csv").set_index(["label", "initializer"])
    assert table.loc[("fedavg", "previous"), "latency_mean"] == pytest.approx(84 * LATENCY)
    assert table.loc[("fedavg", "dynamic"), "energy_mean"] == pytest.approx((84 + 6) * ENERGY)


def parts_of(dirs: list[Path], settings: ReportSettings) -> tuple[str, set[str]]:
    """Titles and captions of the tables, and names of the figures, none of them drawn."""
    source = Source.read(dirs, Contents(settings, "fedtide report"))
    sheets = [f"{each.title} {each.caption}" for each in parts.sheets.of(source)]
    return "\n".join(sheets), {drawing.name for drawing in parts.figures.of(source)}


def test_window_counting_and_reference_are_settings(tmp_path: Path) -> None:
    settings = ReportSettings(transition_window=3, transition_counting="all", reference="average", rho=0.5)
    text, drawn = parts_of([write_sessions(tmp_path, "fedavg", i, 0) for i in ("average", "previous")], settings)
    assert "Sessions 2 to 7. Mean" in text
    assert "first 3 rounds" in text
    assert "compared with average" in text
    assert not {"weights", "session_start_losses"} & drawn


@pytest.mark.slow
def test_files_for_papers_are_written_twice_the_same(tmp_path: Path) -> None:
    dirs = [write_run(tmp_path / "runs", sessions=1, rounds=3)]
    for name in ("one", "two"):
        build(
            dirs, tmp_path / name, Contents(ReportSettings(title="A", last=2, formats=("svg", "pdf")), "fedtide report")
        )
    pictures = {path.stem for path in (tmp_path / "one").glob("*.png")}
    assert pictures == {"accuracy_over_rounds", "accuracy_over_bytes", "per_class"}
    for form, start in (("svg", b"<?xml"), ("pdf", b"%PDF")):
        written = {path.stem: path.read_bytes() for path in (tmp_path / "one").glob(f"*.{form}")}
        assert set(written) == pictures
        assert all(content.startswith(start) for content in written.values())
        assert {path.stem: path.read_bytes() for path in (tmp_path / "two").glob(f"*.{form}")} == written
        assert not [name for name, content in written.items() if b"CreationDate" in content or b"dc:date" in content]
    assert (tmp_path / "one" / "report.html").read_bytes() == (tmp_path / "two" / "report.html").read_bytes()
