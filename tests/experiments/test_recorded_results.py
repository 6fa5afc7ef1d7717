"""What scripts print and draw from the committed results is what is committed; every script is called by a test."""

import filecmp
import re
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from fedtide.report.charts import style

Script = Callable[..., str]
ROOT = Path(__file__).parents[2]
AWAY = ("away_softmax", "away_softmax_constant", "away_softmax_ungated", "away_softmax_constant_ungated", "away_mlp")
MONTHS = ("flights_logistic", "flights_logistic_reset", "flights_mlp", "flights_days", "flights_minutes")
COMMANDS = {
    "uplink/bytes.py results docs/images/uplink.png": ["docs/images/uplink.png"],
    "uplink/figure.py results/newcomers_fmnist docs/reports/images/newcomers.png": [
        "docs/reports/images/newcomers.png"
    ],
    "drift/figure.py results docs/reports/images": [f"docs/reports/images/{n}.png" for n in ("drift", "drift_planted")],
    "personal/figure.py results docs/reports/images/personal.png": ["docs/reports/images/personal.png"],
    "away/at_seconds.py results/away_seconds": ["results/away_seconds/seconds.png", "docs/images/away_seconds.png"],
    **{f"away/availabilities.py results/{name}": [f"results/{name}/availabilities.png"] for name in AWAY},
    **{f"flights/months.py results/{name}": [f"results/{name}/months.png"] for name in MONTHS},
}
"""Command -> the figures it makes."""
COPIES = {
    "docs/images/away_seconds.png": "results/away_seconds/seconds.png",
    "docs/images/flights_months.png": "results/flights_logistic/months.png",
    "docs/reports/images/flights_mlp_months.png": "results/flights_mlp/months.png",
    "docs/reports/images/away_availabilities.png": "results/away_softmax/availabilities.png",
    "docs/reports/images/away_fixed_points.png": "results/away_fixed_points/fixed_points.png",
}
"""Figures of the pages, which are those of the results."""


@pytest.fixture
def recorded(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The committed tables and pages without any figure, which are drawn at their full resolution."""
    monkeypatch.setattr(style, "DPI", 180)
    for name in ("results", "docs"):
        shutil.copytree(ROOT / name, here / name, ignore=shutil.ignore_patterns("*.png", "_build"))
    for name in ("docs/images", "docs/reports/images"):
        (here / name).mkdir(exist_ok=True)
    return here


@pytest.mark.slow
def test_figures_are_those_of_the_committed_tables(recorded: Path, script: Script) -> None:
    stale = []
    for command, figures in COMMANDS.items():
        script(*command.split())
        stale += [f"{command}: {name}" for name in figures if name not in COPIES and not same(recorded, name)]
    assert not stale
    assert all(filecmp.cmp(ROOT / page, ROOT / result, shallow=False) for page, result in COPIES.items())


def same(folder: Path, name: str) -> bool:
    return filecmp.cmp(folder / name, ROOT / name, shallow=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*AWAY, "flights_logistic_reset", "flights_days", "flights_minutes"])
def test_tables_of_methods_and_of_comparisons_follow_from_the_recorded_runs(name: str) -> None:
    """Up to the six digits that are recorded."""
    folder = ROOT / "results" / name
    kind, table = ("away/availabilities", "runs") if name in AWAY else ("flights/months", "months")
    found, rows = runpy.run_path(str(ROOT / f"experiments/{kind}.py")), pd.read_csv(folder / f"{table}.csv")
    score = () if name in AWAY else ("r2" if "r2_next" in rows else "auroc",)
    for made in ("methods", "comparisons"):
        committed, again = pd.read_csv(folder / f"{made}.csv"), found[made](rows, *score)
        numbers = committed.select_dtypes("number").columns
        texts = committed.columns.difference(numbers)
        assert again[texts].astype(str).to_numpy().tolist() == committed[texts].astype(str).to_numpy().tolist()
        assert again[numbers].to_numpy(float) == pytest.approx(
            committed[numbers].to_numpy(float), rel=2e-3, abs=2e-5, nan_ok=True
        )


@pytest.mark.slow
def test_the_grids_of_single_settings_are_those_of_the_page(recorded: Path, script: Script) -> None:
    printed = script("tuning/grids.py", "results/tuning_grids").splitlines()
    page = (ROOT / "docs/reports/tuning_settings.md").read_text(encoding="utf-8")
    assert len(printed) == 9
    assert "\n".join(printed[2:]) in page
    drawn = recorded / "results/tuning_grids/grids.png"
    assert drawn.read_bytes() == (ROOT / "docs/reports/images/tuning_grids.png").read_bytes()


@pytest.mark.parametrize("name", ["fmnist", "flights"])
def test_the_cost_of_privacy_is_that_of_the_page(name: str) -> None:
    """From the labels that the script gives, which a test of its own compares with these."""
    table = pd.read_csv(ROOT / f"results/privacy_{name}/accuracy.csv", index_col="label")
    page = (ROOT / "docs/privacy.md").read_text(encoding="utf-8")
    for epsilon in (2, 4, 8, 16):
        labels = [f"{kind}_eps{epsilon}" for kind in ("poisson", "uniform", "tree", "cyclic", "cyclic_banded")]
        cells = [f"{row['mean']:.1f} ± {row['std']:.1f}" for _, row in table.loc[labels].iterrows()]
        assert f"| {epsilon} | {' | '.join(cells)} |" in page


@pytest.mark.slow
def test_claims_are_weighed_and_drawn_from_the_committed_tables(recorded: Path, script: Script) -> None:
    script("findings.py", "results", "docs/reports")
    pages = sorted(path.relative_to(ROOT) for path in ROOT.glob("docs/reports/claims_*.md"))
    figures = [f"docs/reports/images/forest_{page.stem.removeprefix('claims_')}.png" for page in pages]
    assert len(pages) == 5
    assert [name for name in (*map(str, pages), *figures) if not same(recorded, name)] == []


def test_every_script_is_called_by_a_test() -> None:
    files = [path for path in (ROOT / "experiments").rglob("*.py") if '__name__ == "__main__"' in path.read_text()]
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    names = {str(path.relative_to(ROOT / "experiments")) for path in files}
    assert len(names) > 20
    assert [name for name in sorted(names) if not re.search(rf'script\(\s*"{name}"|"{name} |"{name}: ', tests)] == []
