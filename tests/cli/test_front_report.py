"""From a search with two aims to the page that shows its front."""

from __future__ import annotations

import base64
import csv
import re
from html import unescape
from pathlib import Path

from commands import Fedtide

SEARCH = (
    "--set", "tune={trials: 4, workers: 1, cost: kappa, space: {local.epochs: {choices: [1, 3]}}}",
    "--set", "compare.workers=1",
)  # fmt: skip


def test_the_page_shows_the_front(fedtide: Fedtide, folder: Path) -> None:
    searched = fedtide("tune", *SEARCH)
    assert searched.status == 0, searched.err
    assert any("Pareto front" in line for line in searched.out)
    assert fedtide("compare", *SEARCH).status == 0
    assert fedtide("report", *SEARCH, "--tuning", "tuning").status == 0

    page = unescape((folder / "report" / "report.html").read_text(encoding="utf-8"))
    picture = (folder / "tuning" / "front.png").read_bytes()
    assert base64.b64encode(picture).decode() in page
    assert (folder / "report" / "search_front.png").read_bytes() == picture
    with (folder / "tuning" / "front.csv").open(encoding="utf-8") as stream:
        on_it = [row for row in csv.DictReader(stream) if row["front"] == "true"]
    rows = list({row["kappa"]: row for row in reversed(on_it)}.values())
    (table,) = re.findall(r"<table>\s*<caption><b>Table \d+\. Search for .*?</table>", page, re.DOTALL)
    assert table.count('<th scope="col">Trial</th><th scope="col">Settings</th>') == 1
    cells = [
        re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line) for line in re.findall(r"<tr.*?</tr>", table, re.DOTALL)[1:]
    ]
    wanted = [
        [
            str(int(row["run"][-4:])),
            f"local.epochs = {row['local.epochs']}",
            f"{float(row['kappa']):.4g}",
            f"{100 * float(row['validation_accuracy']):.1f}",
        ]
        for row in rows
    ]
    assert sorted(cells) == sorted(wanted)
    assert [float(row[2]) for row in cells] == sorted(float(row[2]) for row in cells)
    assert "fedtide tune" in page
    assert "over the rounds of tune.over" in table


def test_a_folder_without_a_front_is_refused(fedtide: Fedtide, folder: Path) -> None:
    assert fedtide("compare").status == 0
    called = fedtide("report", "--tuning", "tuning")
    assert (called.status, called.out) == (2, [])
    assert called.err == [
        "fedtide: tuning: no front.csv and front.png; `fedtide tune` with tune.cost = kappa writes them"
    ]
    assert not (folder / "report" / "report.html").exists()
