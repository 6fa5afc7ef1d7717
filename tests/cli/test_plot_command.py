"""``fedtide plot``: one figure of the report, as the report has it."""

import shutil
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import fedtide as package
from commands import PARAMS, Fedtide, sets
from fedtide.settings.params import Params

GRID = sets("compare={algorithms: [fedavg], initializers: [previous, average], seeds: [0], workers: 1}")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Path:
    root = tmp_path_factory.mktemp("compared")
    (root / "params.yaml").write_text(PARAMS.format(data=shared_data))
    package.compare(Params.read(root / "params.yaml", GRID[1::2]), root / "runs", workers=1)
    return root / "runs"


@pytest.fixture
def compared(fedtide: Fedtide, folder: Path, runs: Path) -> Fedtide:
    shutil.copytree(runs, folder / "runs")
    return fedtide


@pytest.mark.slow
def test_every_figure_of_the_report_is_listed_and_every_other_is_the_same_alone(
    compared: Fedtide, folder: Path
) -> None:
    assert compared("report", *GRID).status == 0
    listed = [line.split()[0] for line in compared("plot", *GRID).out[1:]]
    files = sorted(file.stem for file in (folder / "report").glob("*.png"))
    assert sorted(listed) == files
    for name in listed[::2]:
        called = compared("plot", name, "--out", f"{name}.png", *GRID)
        assert (called.status, called.out) == (0, [f"{name}.png"])
        if name == "world":  # a picture of the timeline, in the report as `fedtide timeline` writes it
            continue
        assert (folder / f"{name}.png").read_bytes() == (folder / "report" / f"{name}.png").read_bytes()
    assert compared("plot", "accuracy_over_rounds", *GRID).out == ["accuracy_over_rounds.pdf"]
    assert (folder / "accuracy_over_rounds.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_python_has_the_same_figure(compared: Fedtide, folder: Path) -> None:
    params = Params.read("params.yaml", GRID[1::2])
    figure = package.figure("accuracy_over_rounds", params)
    assert isinstance(figure, Figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["previous", "average"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (
            ("accuracy_over_round",),
            "these runs have no figure 'accuracy_over_round'; did you mean 'accuracy_over_rounds'",
        ),
        (("per_class", "--out", "figure.jpg"), "out = 'figure.jpg': should end in .pdf, .png, .svg"),
        (("per_class", "--out", "none/figure.pdf"), "out = 'none/figure.pdf': no folder none"),
        (("per_class", "--set", "seed=no"), "--set seed=no: seed = false: should be a valid integer"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    compared: Fedtide, folder: Path, arguments: tuple[str, ...], wanted: str
) -> None:
    before = sorted(folder.iterdir())
    assert compared("plot", *arguments, *GRID).refusal.startswith(wanted)
    assert sorted(folder.iterdir()) == before


def test_without_runs_there_is_no_figure(fedtide: Fedtide) -> None:
    called = fedtide("plot", *GRID)
    assert called.refusal.startswith("no runs to report: runs has none of the 2 runs of `compare`")
