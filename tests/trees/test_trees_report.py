"""``report.trees``: the baselines of ``fedtide trees`` as rows of the report, and which files it refuses."""

import re
import shutil
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedtide as package
from commands import PARAMS, Fedtide
from fedtide.report.formats import NOTHING
from fedtide.settings.params import Params
from fedtide.studies.trees import trees

TABLE = "data={name: table, file: visits.csv, label: late, client: shop, time: date}"
SET = (TABLE, "scenario={name: calendar, rounds_per_period: 2}", "partition=natural",
       "compare.algorithms=[fedavg, pooled]", "compare.seeds=[0, 1, 2]", "validation=0.2", "local.lr=0.02")  # fmt: skip
GIVEN = [word for item in (*SET, "report.trees=trees/trees.csv") for word in ("--set", item)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Path:
    """Runs and trees on four months of three shops; validation rows depend on the seed, so trees differ by seed."""
    root, rng, lines = tmp_path_factory.mktemp("finished"), np.random.default_rng(0), ["date,shop,price,late"]
    for n in range(600):
        price = int(rng.integers(0, 50))
        late = ("no", "yes")[int(price + rng.integers(0, 20) > 30)]
        lines.append(f"2024-{1 + n // 150:02}-{1 + n % 28:02},shop {n % 3},{price},{late}")
    (root / "visits.csv").write_text("\n".join([*lines, ""]))
    (root / "params.yaml").write_text(PARAMS.format(data=shared_data))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        params = Params.read("params.yaml", SET)
        package.compare(params, workers=1)
        trees(params, Path("trees"))
    return root


@pytest.fixture
def compared(fedtide: Fedtide, folder: Path, finished: Path) -> Fedtide:
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    return fedtide


def shown(folder: Path) -> dict[str, list[str]]:
    """The cells of the table by the name of the row; the headings by ``Method``."""
    page = (folder / "report" / "report.html").read_text(encoding="utf-8")
    (table,) = re.findall(r"<caption><b>[^<]*Gradient-boosted trees\.</b>.*?</table>", page, re.DOTALL)
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in table.split("<tr>")[1:]]
    return {unescape(first).strip(): [unescape(cell).strip() for cell in cells] for first, *cells in rows}


def history_of(folder: Path, label: str, seed: int) -> pd.DataFrame:
    (path,) = (folder / "runs").glob(f"{label}-*-s{seed}-*")
    return pd.read_csv(path / "history.csv")


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["served_accuracy_next", "loss"])
def test_rows_are_means_over_sessions_and_differences_are_paired_by_seed(
    compared: Fedtide, folder: Path, metric: str
) -> None:
    called = compared("report", *GIVEN, "--set", f"report.metric={metric}")
    assert called.status == 0, called.err
    cells, frame = shown(folder), pd.read_csv(folder / "trees" / "trees.csv")
    column = f"test_{metric.removeprefix('served_')}"
    values = frame.groupby(["baseline", "seed"])[column].mean().unstack("baseline")
    for label in ("fedavg", "pooled"):
        histories = [history_of(folder, label, seed) for seed in values.index]
        values[f"{label} · previous"] = [each.groupby("session").last()[f"test_{metric}"].mean() for each in histories]
    best = getattr(values[["local_trees", "pooled_trees"]].mean(), "idxmin" if metric == "loss" else "idxmax")()
    scale, digits = (1, 4) if metric == "loss" else (100, 1)
    assert [*cells] == ["Method", "fedavg · previous", "pooled · previous", "local_trees", "pooled_trees"]
    assert cells["Method"][2].startswith(f"Difference from {best}")
    for name, own in (scale * values).items():
        assert cells[str(name)][:2] == ["3", f"{own.mean():.{digits}f} ± {own.std():.{digits}f}"]
        gap = own - scale * values[best]
        if name == best:
            assert cells[str(name)][2:] == [NOTHING] * 2
            continue
        half = stats.t.ppf(0.975, 2) * gap.sem()
        numbers = [
            float(text.replace("\N{MINUS SIGN}", "-"))
            for text in (cells[str(name)][2], *cells[str(name)][3].split(" to "))
        ]
        assert numbers == pytest.approx([gap.mean(), gap.mean() - half, gap.mean() + half], abs=0.51 * 10**-digits)


@pytest.mark.slow
def test_seeds_that_only_one_side_has_do_not_count(compared: Fedtide, folder: Path) -> None:
    file = folder / "trees" / "trees.csv"
    frame = pd.read_csv(file)
    frame[frame["seed"] > 0].replace({"seed": {2: 9}}).to_csv(file, index=False)
    assert compared("report", *GIVEN).status == 0
    cells = shown(folder)
    assert [cells[name][0] for name in ("fedavg · previous", "pooled_trees")] == ["1", "1"]
    assert cells["fedavg · previous"][3] == "n/a"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda frame: frame.assign(data="0" * 64), "it has other seeds, data or timelines than the runs"),
        (lambda frame: frame.drop(columns="test_accuracy_next"), "no column 'test_accuracy_next'"),
        (lambda frame: pd.concat([frame, frame]), ""),
    ],
    ids=["data", "no-score", "twice"],
)
def test_another_file_is_refused(
    compared: Fedtide, folder: Path, change: Callable[[pd.DataFrame], pd.DataFrame], problem: str
) -> None:
    file = folder / "trees" / "trees.csv"
    frame = pd.read_csv(file)
    change(frame).to_csv(file, index=False)
    called = compared("report", *GIVEN)
    (line,) = called.err
    assert called.status == 2
    assert line.startswith(f"fedtide: report.trees = trees/trees.csv: {problem}")
    assert line.endswith("; run `fedtide trees` with the settings of the runs")
    assert not (folder / "report").exists()
