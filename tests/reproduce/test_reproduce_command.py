"""``fedtide reproduce`` on an experiment of six runs of six rounds."""

import csv
import json
import re
import statistics

import pytest

from fedtide.studies.reproduce.recipe import Recipe
from fedtide.studies.reproduce.reproduce import count_runs
from small_runs import history


def table(folder, profile="plain"):
    with (folder / f"results/tiny/{profile}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def accuracies(folder, label, start, alpha, seed, session):
    """Test accuracies of a session of the only run of this description, from its own records."""
    runs = folder.glob(f"runs/{label}-{start}-s{seed}-*")
    (run,) = [run for run in runs if f'"alpha": {alpha}' in (run / "settings.json").read_text()]
    return [100 * float(row["test_accuracy"]) for row in history(run) if row["session"] == str(session)]


@pytest.mark.slow
def test_a_part_is_run_then_the_rest_and_finished_runs_stay(fedtide, folder, tiny):
    assert count_runs(Recipe(tiny)) == 4
    part = fedtide("reproduce", "tiny", "--only", "algorithm=fedavg", "-q", "--set", "checkpoint.keep_finished=true")
    assert part.status == 0
    assert part.out[-2:] == [
        "missing: alpha=0.7 algorithm=scaffold method=average (seeds 1, 2)",
        "results: results/tiny/plain.csv and .md",
    ]
    assert [(row["seeds"], row["obtained"] == "") for row in table(folder)] == [("2", False)] * 4 + [("0", True)] * 2
    done = {path: path.read_bytes() for path in folder.rglob("runs/*/*") if path.is_file()}
    assert len({path.parent for path in done}) == 2
    assert len(list(folder.glob("runs/*/state/*.pt"))) == 2

    whole = fedtide("reproduce", "tiny", "-q")
    assert whole.status == 0
    assert not any(line.startswith("missing") for line in whole.out)
    assert {path: path.read_bytes() for path in done} == done
    assert list(folder.glob("runs/*/state/*")) == []
    rows = table(folder)
    assert [row["seeds"] for row in rows] == ["2"] * 6
    cells = (("fedavg", "previous", 2), ("fedavg", "previous", 3), ("scaffold", "average", 3))
    for row, (label, start, session) in zip(rows[::2], cells, strict=True):
        means = [sum(accuracies(folder, label, start, row["alpha"], seed, session)) / 2 for seed in (1, 2)]
        assert float(row["obtained"]) == pytest.approx(sum(means) / 2)
        assert float(row["std"]) == pytest.approx(statistics.stdev(means))
        assert float(row["difference"]) == pytest.approx(sum(means) / 2 - float(row["published"]))
    page = (folder / "results/tiny/plain.md").read_text()
    assert "    fedtide reproduce tiny --profile plain\n" in page
    assert "Seeds 1, 2" in page
    gaps = [abs(float(row["difference"])) for row in rows[::2]]
    assert f"| all | {sum(gaps) / 3:.2f} (3 cells) |" in page
    assert "Missing runs" not in page
    assert sorted(path.name for path in (folder / "results/tiny").iterdir()) == ["plain.csv", "plain.md"]


@pytest.mark.slow
def test_a_target_out_of_reach_is_written_with_the_rounds_run(fedtide, folder, tiny):
    measure = "experiment.measure={name: learning, last: 2, target: 100}"
    published = tiny.parent / "published" / "tiny.csv"
    published.write_text("algorithm,method,quantity,mean\nfedavg,previous,rounds,inf\nfedavg,previous,accuracy,50\n")
    arguments = ("--set", measure, "--set", "experiment.transitions={end: 3}", "--seeds", "1", "-q")
    assert fedtide("reproduce", "tiny", *arguments).status == 0
    page = (folder / "results/tiny/plain.md").read_text()
    (cells,) = {tuple(re.findall(r"\| (>\d+) ", line)) for line in page.splitlines() if line.startswith("| 0.")}
    assert cells == (">2", ">2")
    assert "\n| fedavg | " in page.split("Mean absolute difference")[1]
    assert "; diamonds: published values](plain_rounds.png)" in page
    written = sorted(path.name for path in (folder / "results/tiny").iterdir())
    assert written == ["plain.csv", "plain.md", "plain_rounds.csv", "plain_rounds.png"]


@pytest.mark.slow
def test_what_was_measured_elsewhere_stays_until_it_is_measured_again(fedtide, folder, tiny):
    """Two cells of another machine, the third here: as if all had been played in one place."""
    options = ("--set", "experiment.transitions={end: 3}", "--set", "experiment.published=null", "-q")
    world = ("--only", "alpha=0.7", "--only", "method=average")
    assert fedtide("reproduce", "tiny", *options, *world, "--runs", "others", "--results", "all").status == 0
    files = {path.name: path.read_bytes() for path in (folder / "all/tiny").iterdir()}
    assert fedtide("reproduce", "tiny", *options, *world, "--only", "algorithm=fedavg").status == 0
    (folder / "runs").rename(folder / "gone")
    assert fedtide("reproduce", "tiny", *options, *world, "--only", "algorithm=scaffold").status == 0
    joined = {path.name: path.read_bytes() for path in (folder / "results/tiny").iterdir()}
    for name in ("plain.csv", "plain_rounds.csv"):
        assert joined[name] == files[name]
    page = joined["plain.md"].decode()
    assert "\n1 of the 8 cells was measured by an earlier call" in page
    assert "\n![Test accuracy over rounds](plain_rounds.png)\n" in page
    fedtide("reproduce", "tiny", *options, *world, "--only", "algorithm=fedavg", "--set", "local.lr=0.2")
    assert {row["algorithm"] for row in table(folder) if row["seeds"] == "2"} == {"fedavg"}
    (folder / "results/tiny/plain.csv").write_text("alpha\n0.3\n")
    assert fedtide("reproduce", "tiny", *options).status == 2


def test_the_list_of_experiments_and_of_cells(fedtide, tiny):
    listed = fedtide("reproduce", "--list")
    assert listed.status == 0
    assert listed.out[1].split() == ["tiny", "A", "tiny", "table", "plain,", "fast", "3", "4"]
    cells = fedtide("reproduce", "small/tiny", "--list", "--profile", "fast", "--only", "alpha=0.7")
    assert [line.split() for line in cells.out[1:]] == [["0.7", "scaffold", "third", "average", "fedavg"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("large/tiny",), "unknown experiment 'large/tiny'; did you mean 'tiny'? (known: tiny)"),
        (("tinny",), "unknown experiment 'tinny'; did you mean 'tiny'? (known: tiny)"),
        ((), "name an experiment; `fedtide reproduce --list` lists them"),
        (("tiny", "--seeds", "1,1"), "tiny.yaml, profile plain: compare.seeds: lists 1 twice"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(fedtide, folder, tiny, arguments, message):
    assert fedtide("reproduce", *arguments).refusal == message
    assert not (folder / "results").exists()
    assert not (folder / "runs").exists()


def test_a_folder_without_experiments_has_the_shipped_ones_and_one_name_in_two_families_is_refused(
    fedtide, folder, tiny
):
    other = folder / "experiments" / "other"
    other.mkdir()
    (other / "tiny.yaml").write_text(tiny.read_text())
    assert "have the same name" in fedtide("reproduce", "tiny").refusal
    (folder / "experiments").rename(folder / "elsewhere")
    known = "unknown experiment 'tiny' (known: cfl_figure1_fmnist, "
    assert fedtide("reproduce", "tiny").refusal.startswith(known)
    assert len(fedtide("reproduce", "table10_mnist", "--list").out) == 1 + 128


@pytest.mark.slow
def test_runs_that_fail_leave_a_table_without_them(fedtide, folder, tiny, marks):
    fragile = ("--set", f"algorithms={{scaffold: {{name: fragile, how: raise, marks: {marks}}}}}", "--seeds", "1")
    first = fedtide("reproduce", "tiny", "--json", *fragile)
    assert first.status == 1
    result = json.loads(first.out[-1])
    assert (result["name"], result["profile"]) == ("tiny", "plain")
    assert result["files"] == ["results/tiny/plain.csv", "results/tiny/plain.md"]
    assert result["missing"] == ["alpha=0.7 algorithm=scaffold method=average (seed 1)"]
    assert [row["seeds"] for row in result["rows"]] == [1, 1, 1, 1, 0, 0]
    assert [row["obtained"] is None for row in result["rows"]] == [False] * 4 + [True] * 2
    assert first.err[-2] == "1 of 2 runs diverged or failed:"
    assert "in finish: ZeroDivisionError: the third round is fragile (runs/" in first.err[-1]
    (marks / "0").unlink()
    assert fedtide("reproduce", "tiny", "-q", *fragile, "--allow-failures").status == 0
    assert fedtide("reproduce", "tiny", "-q", *fragile).status == 0  # its third attempt does not fail
    assert table(folder)[-1]["seeds"] == "1"
    listed = json.loads(fedtide("reproduce", "--list", "--json").out[-1])
    assert [(one["name"], one["runs"]) for one in listed] == [("tiny", "4")]


def test_a_dry_run_counts_the_runs_of_the_chosen_cells(fedtide, tiny, folder):
    every, one = (fedtide("reproduce", "tiny", *only, "--dry-run") for only in ([], ["--only", "algorithm=fedavg"]))
    assert (every.status, one.status) == (0, 0)
    counts = [int(called.out[-1].split()[0]) for called in (every, one)]
    assert counts[0] > counts[1] > 0
    (folder / "twice.yaml").write_text("- name: tiny\n- {name: tiny, only: [algorithm=fedavg]}\n")
    found = json.loads(fedtide("reproduce", "--order", "twice.yaml", "--dry-run", "--json").out[-1])
    assert found["runs"] == counts[0]
    assert not (folder / "runs").exists()
    assert not (folder / "results").exists()
