"""The report on how the clients fare: the table, its comparisons, and the quantiles behind the figure."""

import json

import numpy as np
import pandas as pd
import pytest
from synthetic_runs import changed, finish_again, write_run

from fedtide.core.randomness import generator
from fedtide.records import frames as records
from fedtide.records.files.client_scores import GAINS, encoded, file_name
from fedtide.report import parts
from fedtide.report.build import build
from fedtide.report.parts import Contents, Source
from fedtide.report.sections import clients, fairness
from fedtide.report.sections import own_models as own
from fedtide.report.tables.evaluations import evaluations
from fedtide.settings.experiment import ReportSettings

EVERY, CLIENTS = 4, 20
LEVEL = {"fedavg": 0.6, "scaffold": 0.8}


def write_clients(root, label="fedavg", seed=0, personal=False):
    """A run of three sessions of 12 rounds whose clients are evaluated every fourth round.

    From the second session on, half of the clients are newcomers, five points below the stayers; four more have departed.
    """
    path = write_run(root, label, seed=seed, sessions=3)
    evaluation = {"clients_every": EVERY, "client_threshold": 0.7, "finetune_steps": 3 if personal else 0}
    history = pd.read_csv(path / "history.csv").astype({"round": int})
    (path / "client_scores").mkdir()
    rows = {}
    for round_ in range(EVERY, len(history) + 1, EVERY):
        first = round_ <= 12
        shift = generator(seed, "clients", round_).normal(0, 0.01)
        accuracy = LEVEL[label] + shift + 0.01 * np.arange(CLIENTS) % 0.1
        group = np.array([""] * CLIENTS if first else ["stayers", "newcomers"] * (CLIENTS // 2))
        accuracy = accuracy - 0.05 * (group == "newcomers")
        everyone = [*accuracy, *([] if first else [0.1] * 4)]
        table = {
            "round": [round_] * len(everyone),
            "client": list(range(len(everyone))),
            "group": [*group, *(["departed"] * (len(everyone) - CLIENTS))],
            "samples": [None] * len(everyone),
            "accuracy": everyone,
            "loss": [None] * len(everyone),
        }
        (path / file_name(round_)).write_bytes(encoded(table))
        found = {"mean": accuracy.mean(), "std": accuracy.std(), "worst_decile": np.sort(accuracy)[:2].mean()}
        found["below"] = (accuracy < 0.7).mean()
        if not first:
            found |= {name: accuracy[group == name].mean() for name in ("newcomers", "stayers")} | {"departed": 0.1}
        rows[round_] = {f"client_accuracy_{name}": value for name, value in found.items()}
        if personal:
            rows[round_] |= {"finetuned_accuracy_mean": found["mean"] + 0.1, "finetuned_accuracy_below": 0.0}
    measured = pd.DataFrame.from_dict(rows, orient="index").reindex(history["round"]).reset_index(drop=True)
    return changed(path, {"evaluation": evaluation}, **measured, client_accuracy_returners=np.nan)


@pytest.fixture(scope="module")
def dirs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return [write_clients(root, label, seed) for label in LEVEL for seed in range(3)]


@pytest.fixture(scope="module")
def out(dirs):
    folder = dirs[0].parents[0] / "report"
    build(dirs, folder, Contents(ReportSettings(title="A", last=6), "fedtide report"))
    return folder


def columns(path):
    return pd.read_csv(path / "history.csv").filter(like="client_accuracy_")


@pytest.mark.slow
def test_the_table_averages_the_last_evaluations_and_newcomers_over_the_sessions_that_have_some(dirs, out):
    """Rounds 32 and 36 of the last six; sessions two and three."""
    table = pd.read_csv(out / "fairness.csv").set_index("label")
    for label in LEVEL:
        runs = [columns(path) for path in dirs if path.name.startswith(label)]
        for name in ("mean", "std", "worst_decile", "below"):
            each = [run[f"client_accuracy_{name}"].iloc[[31, 35]].mean() for run in runs]
            assert table[f"client_{name}_mean"][label] == pytest.approx(np.mean(each))
            assert table[f"client_{name}_std"][label] == pytest.approx(np.std(each, ddof=1))
        each = [run["client_accuracy_newcomers"].iloc[12:].mean() for run in runs]
        assert table["client_newcomers_mean"][label] == pytest.approx(np.mean(each))
        gaps = [(run["client_accuracy_newcomers"] - run["client_accuracy_stayers"]).mean() for run in runs]
        assert table["client_gap_mean"][label] == pytest.approx(np.mean(gaps))
    assert not [name for name in table if name.startswith("personal")]


@pytest.mark.slow
def test_methods_are_compared_seed_by_seed(out):
    compared = pd.read_csv(out / "comparison.csv").set_index("metric")
    assert set(compared.index) == {"last", "transition", "client_std", "client_worst_decile", "client_newcomers"}
    worst = compared.loc["client_worst_decile"]
    assert (worst["reference"], worst["pairs"]) == ("scaffold · previous", 3)
    assert worst["reading"] == "same difference on every seed: n/a"
    assert worst["difference"] == pytest.approx(-0.2)
    page = (out / "report.html").read_text()
    assert {"client_accuracy.png", "newcomers.png"} <= {path.name for path in out.iterdir()}
    assert "Fairness over clients" in page
    assert "Below 70 %, % of clients" in page
    assert (
        "Accuracy of newcomers: no difference can be tested between scaffold " in page
    )  # the same difference on every seed
    assert "standard deviation of accuracy over clients in the last 6 rounds: scaffold" not in page
    numbers = json.loads((out / "metrics.json").read_text(), parse_constant=pytest.fail)
    assert numbers["scaffold/previous/client_worst_decile_mean"] - numbers[
        "fedavg/previous/client_worst_decile_mean"
    ] == pytest.approx(0.2)


@pytest.mark.slow
def test_quantiles_are_of_the_clients_present(dirs):
    found = clients.quantiles(evaluations(dirs, records.load(dirs)))
    assert found.groupby("key").size().tolist() == [9] * 6
    row = found[(found["key"] == dirs[0].name) & (found["round"] == 24)].iloc[0]
    scores = pd.read_parquet(dirs[0] / file_name(24))
    present = scores[scores["group"] == "stayers"]["accuracy"].tolist()
    present += scores[scores["group"] == "newcomers"]["accuracy"].tolist()
    assert len(scores) == len(present) + 4
    assert row[list(clients.SHARES)].tolist() == pytest.approx(np.percentile(present, clients.SHARES))


def test_personal_steps_have_columns_of_their_own(tmp_path):
    table = fairness.fairness(records.load([write_clients(tmp_path, personal=True)]), 6)
    assert table is not None
    (shown,) = [column for column in table.columns if column.key.startswith("finetuned")]
    assert shown.title == "Mean after 3 local steps, %"
    row = dict(table.rows())["fedavg", "previous"]
    assert row["finetuned_mean_mean"] == pytest.approx(row["client_mean_mean"] + 0.1)


def test_without_a_later_session_there_are_no_newcomers(tmp_path):
    path = write_run(tmp_path, sessions=1)
    read = records.load([changed(path, client_accuracy_mean=0.5, client_accuracy_newcomers=np.nan)])
    table = fairness.fairness(read, 6)
    assert table is not None
    assert [column.key for column in table.columns] == ["client_mean"]
    assert clients.newcomers(read) is None
    assert fairness.fairness(records.load([write_run(tmp_path, "scaffold")]), 6) is None


def own_models(present, every=2):
    """Evaluations of clients by one run of ``fedavg``: accuracy 0.1 times the client, a tenth more with the model served."""
    rows = [
        {"client": client, "round": every * (place + 1), "group": "", "accuracy": client / 10, "session": 1}
        for place, clients_ in enumerate(present)
        for client in clients_
    ]
    frame = pd.DataFrame(rows).assign(key="a", label="fedavg", initializer="previous", finetuned_accuracy=np.nan)
    frame["served_accuracy"], frame["personalization_gain"] = frame["accuracy"] + 0.1, 0.1 * (frame["client"] % 3 - 1)
    return frame.assign(finetuning_gain=np.nan)


def lines(chart):
    (panel,) = chart.panels
    (line,) = [series for series in panel.series if series.listed]
    return line.x.tolist(), line.y.tolist()


@pytest.mark.slow
def test_gains_are_sorted_and_of_the_last_evaluation(dirs):
    x, y = lines(own.gains(records.load(dirs[:1]), own_models([[0], [0, 1, 2]])))
    assert [y[x.index(place)] for place in (0, 25, 50, 100)] == pytest.approx([-0.1, -0.05, 0.0, 0.1])


@pytest.mark.slow
def test_newcomers_are_followed_from_their_arrival_to_their_first_absence(dirs):
    """Clients 1 and 2 arrive at the second and third evaluation, client 2 leaves; one newcomer of two is half."""
    table = own_models([[0], [0, 1], [1, 2], [1], [0, 1, 2]])
    read = records.load(dirs[:1])
    assert lines(own.since_arrival(read, table)) == ([0, 2, 4, 6], pytest.approx([0.25, 0.2, 0.2, 0.2]))
    assert own.since_arrival(read, own_models([[0, 1], [0]])) is None


def test_what_models_of_their_own_are_worth_is_in_the_table(tmp_path):
    path = write_clients(tmp_path)
    evaluated = pd.read_csv(path / "history.csv")["client_accuracy_mean"].notna()
    values = {"served_accuracy_mean": 0.7, **dict(zip(GAINS["served"], (0.05, 0.25), strict=True))}
    changed(path, **{name: np.where(evaluated, value, np.nan) for name, value in values.items()})
    table = fairness.fairness(records.load([path]), 6)
    assert table is not None
    row = dict(zip([column.title for column in table.columns], fairness.sheet(table, 6).rows[0][1], strict=True))
    assert (row["Mean, %"], row["Gain, points"], row["Hurt, % of clients"]) == ("70.0", "+5.0", "25.0")


def test_clients_far_below_the_others_are_named(tmp_path):
    path = write_clients(tmp_path / "runs")
    for number in (12, 24, 36):
        frame = pd.read_parquet(path / file_name(number)).assign(samples=50.0)
        frame.loc[frame["client"] == 3, "accuracy"] = 0.2
        (path / file_name(number)).write_bytes(encoded({name: frame[name].tolist() for name in frame}))
    finish_again(path)
    sheets = parts.sheets.of(Source.read([path], Contents(ReportSettings(title="A", last=6), "fedtide report")))
    (sheet,) = (each for each in sheets if each.title.startswith("Clients served worst"))
    name, cells = sheet.rows[-1]
    assert (name, cells[0], cells[1], cells[3]) == (("3",), "20.0", "20.0", "50")
