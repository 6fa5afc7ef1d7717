"""``fedtide diagnose``: a real run, measured."""

import json

import pytest
import torch

from fedtide.core.errors import SettingsError
from fedtide.diagnostics.trace import Options, diagnose, remarks
from fedtide.settings.params import Params
from fedtide.worlds.build import build_timeline
from fedtide.worlds.prepared import load_data

FULL_BATCH = {
    "algorithm": "fedavg",
    "validation": 0.0,
    "scenario": {"name": "sessions", "num_devices": 4, "num_sessions": 4, "rounds_per_session": 6},
    "partition": "dirichlet_session",
    "model": "logistic",
    "local": {"amount": 1, "unit": "epochs", "batch_size": 2000, "lr": 0.05},
    "engine": {"workers": 1},
    "tracking": {"mlflow": False},
}


def measured(shared_data, **changes):
    settings = Params({**FULL_BATCH, "data": {"name": "digits", "root": str(shared_data)}, **changes}).run()
    data = load_data(settings)
    return diagnose(settings, data, build_timeline(settings, data), Options(pairs=20), lambda _: None)


def test_gradient_descent_obeys_the_bound(shared_data):
    """e = 1, full batches, no momentum, eta <= 1/(2 beta): sum_t |grad F|^2 <= (2/eta)(F_1 - F_{T+1})."""
    rows = measured(shared_data)
    assert [row.session for row in rows] == [1, 2, 3, 4]
    for row in rows:
        assert 0.05 < 1 / (2 * row.beta) == row.largest_rate
        assert row.drift == row.b == row.c == row.d == 0
        assert 0 < row.rounds * row.gradient <= (2 / 0.05) * (row.F_init - row.F_end)
        assert row.bound == pytest.approx((2 / 0.05) * (row.F_init - row.F_end) / row.rounds)


def test_losses_at_the_start_of_a_session(shared_data):
    previous, restart, average = (
        measured(shared_data, initialiser=name) for name in ("previous", "restart", "average")
    )
    assert all(row.F_init == row.F_previous for row in previous)
    assert all(row.F_init == row.F_first for row in restart[2:])
    assert all(row.F_init == pytest.approx(row.F_average, abs=1e-12) for row in average[2:])
    assert [torch.isnan(torch.tensor(row.F_average)).item() for row in previous] == [True, True, False, False]


def test_several_steps_on_small_batches_have_all_terms(shared_data):
    local = {"amount": 2, "unit": "steps", "batch_size": 16, "lr": 0.005}
    for row in measured(shared_data, local=local):
        assert 0 < row.drift < 1
        assert min(row.b, row.b_tight, row.c, row.d) > 0
        assert row.b == pytest.approx(4 * row.b_tight, rel=0.05)  # four clients of nearly one size
        assert row.gradient <= row.a + row.b_tight + row.c + row.d


def test_remarks_name_what_the_analysis_leaves_out():
    assert remarks(Params(FULL_BATCH).run()) == []
    loose = Params({**FULL_BATCH, "algorithm": "fedprox", "local": {"momentum": 0.9}, "participation": "bernoulli"})
    assert len(remarks(loose.run())) == 3
    other = {"amount": 6, "clip": 0.1, "flip": 0.5, "lr": 0.05}
    algorithm = {"name": "fedavg", "weighting": "uniform"}
    found = remarks(Params({**FULL_BATCH, "algorithm": algorithm, "local": other, "exchange": "intervals"}).run())
    assert [line.split()[0].rstrip(":,") for line in found] == [
        "algorithm.weighting",
        "exchange",
        "local.clip",
        "local.flip",
    ]


def test_clients_that_change_inside_a_session_are_refused(shared_data, tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("client,join,leave\n0,0,4\n1,2,4\n")
    with pytest.raises(
        SettingsError, match=r"^scenario trace: in round 3 clients or their data change inside a session"
    ):
        measured(shared_data, scenario={"name": "trace", "file": str(file)}, partition="iid")
    rows = measured(
        shared_data, scenario={"name": "trace", "file": str(file), "session_at_change": True}, partition="iid"
    )
    assert [row.rounds for row in rows] == [2, 2]


def test_the_command(fedtide, folder):
    called = fedtide("diagnose", "--json", "--pairs", "5", "--theta-power", "1", "--spread", "variance")
    assert called.status == 0
    rows = json.loads(called.out[-1])
    assert [row["session"] for row in rows] == [1, 2]
    assert rows[0]["F_average"] is None
    assert len(called.err) == 2
    assert not (folder / "runs").exists()
    shown = fedtide("diagnose", "--pairs", "5", "-q")
    assert shown.err == []
    assert any(line.split()[:2] == ["(a)", "descent"] for line in shown.out)


def test_other_models_are_refused(fedtide):
    called = fedtide("diagnose", "--set", "model=mlp")
    assert called.status == 2
    assert called.err == [
        "fedtide: model mlp with objective cross_entropy: the constants are known only for model logistic with objective "
        "cross_entropy"
    ]
