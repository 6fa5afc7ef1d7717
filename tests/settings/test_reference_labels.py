"""Labels that every settings file knows: what they train, exactly."""

import json

import numpy as np
import pytest
import torch

from commands import fedtide, folder, shared_data
from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params
from fedtide.settings.reading.references import REFERENCES
from fedtide.world.building.build import build_timeline
from fedtide.world.storage.prepared import load_data
from initializers.session_worlds import populations
from support import closest, deal, federation, run_rounds, settings, steady, timeline, vectors, watch

__all__ = ["fedtide", "folder", "shared_data"]

LABELS = [*REFERENCES, "frozen"]
SESSIONS = {"name": "sessions", "num_devices": 3, "num_sessions": 4, "rounds_per_session": 2}
FILE = {"model": "softmax_regression", "scenario": SESSIONS, "partition": {"name": "dirichlet_session", "alpha": 0.3}}


def read(**more):
    return Params({**FILE, "compare": {"algorithms": LABELS}, **more})


def test_they_can_be_compared_in_any_file():
    assert [run.label for run in read().grid()] == LABELS
    assert [run.label for run in Params({"compare": {"algorithms": LABELS}}).grid()] == LABELS


def test_the_data_pooled_so_far_is_all_that_any_client_has_held():
    run, without = read().run("pooled"), read().run("pooled_period")
    data = load_data(run)
    pooled, plain = build_timeline(run, data), build_timeline(without, data)
    seen: set[int] = set()
    for t in range(plain.rounds):
        seen |= set(np.concatenate(plain.shards_at(t)).tolist())
        held = np.concatenate(pooled.shards_at(t))
        assert sorted(held.tolist()) == sorted(seen)
        assert np.ptp(pooled.sizes_at(t)) <= 1
        assert pooled.at(t).clients.tolist() == plain.at(t).clients.tolist()
        assert pooled.labels_at(t).tolist() == plain.labels_at(t).tolist()
    assert set(np.concatenate(plain.shards_at(0)).tolist()) < seen
    assert pooled.digest == build_timeline(run, data).digest


def test_a_calendar_keeps_the_data_of_all_its_periods():
    calendar = {"scenario": {"name": "calendar", "period": "week"}, "partition": "natural"}
    assert read(**calendar).run("pooled").scenario.memory >= 1000
    assert read(**calendar).run("pooled_period").scenario.memory == 0


PRICED = {"wireless": True}
STEPS = {"steps": 3, "lr": 0.3, "momentum": 0.9}


def test_clients_that_are_pooled_are_one_client_with_all_their_data():
    """With full batches of equal clients."""
    run = read().run("pooled")
    local, communication = {**STEPS, "batch_size": 6}, run.communication.model_dump()
    many = federation(
        settings(local=local, communication=communication, algorithm=run.algorithm.name),
        steady((6, 6, 6), 3),
        vectors(),
    )
    one = federation(settings(local={**STEPS, "batch_size": 18}), steady((18,), 3), vectors())
    apart = federation(settings(local=local), steady((6, 6, 6), 3), vectors())
    w, alone, averaged = (run_rounds(fed)[0].w for fed in (many, one, apart))
    assert closest(w, alone) < 1e-6
    assert closest(averaged, alone) > 1e-3


def two_sessions(algorithm, **more):
    world = populations([(0, 1, 2), (0, 1, 3), (0, 2, 3)])
    return federation(settings(algorithm=algorithm, local=STEPS, **more), world, vectors())


def test_a_frozen_model_is_that_of_the_first_session():
    seen, plain = watch(frozen := two_sessions("frozen", costs=PRICED)), watch(fedavg := two_sessions("fedavg"))
    (_, records), _ = run_rounds(frozen), run_rounds(fedavg)
    rounds = frozen.parts.timeline.session_span(0)[1]
    assert all(torch.equal(w, other) for (_, w), (_, other) in zip(seen[:rounds], plain[:rounds], strict=True))
    assert all(torch.equal(w, seen[rounds - 1][1]) for _, w in seen[rounds:])
    assert not torch.equal(plain[-1][1], plain[rounds - 1][1])
    rests, costs = [record.row for record in records[rounds:]], ("latency", "energy", "kappa", "exchanges", "drift")
    assert all((row["selected"], row["completed"]) == (0, 0) and not any(row[name] for name in costs) for row in rests)
    assert {row["bytes_up"] for row in rests} == {records[rounds - 1].row["bytes_up"]}


def test_a_frozen_model_asks_for_no_gradient_rounds():
    state, _ = run_rounds(two_sessions("frozen", initializer="dynamic"))
    assert state.totals["gradient_rounds"] == 0


def test_a_client_that_trains_alone_is_a_federation_of_one():
    run = read().run("local")
    fed = federation(
        settings(algorithm="local", local=STEPS, client_state={"on_session_start": "keep"}),
        steady((5, 7), 3),
        vectors(),
    )
    state, _ = run_rounds(fed)
    assert torch.equal(state.w, fed.parts.w0)
    assert run.client_state.on_session_start == "keep"
    only = timeline(deal((5, 7)), [{1: 1}] * 3, clients=2)
    alone = federation(settings(local=STEPS), only, vectors())
    assert closest(state.memory["own"][1], run_rounds(alone)[0].w) < 1e-6


def test_an_entry_without_a_name_adds_to_the_reference():
    run = read(algorithms={"pooled_period": {"server_lr": 0.5, "with": {"local": {"lr": 0.7}}}}).run("pooled_period")
    assert (run.algorithm.server_lr, run.local.lr, run.communication.intervals) == (0.5, 0.7, "a")


def test_an_entry_with_a_name_takes_its_place_in_a_line():
    params = read(algorithms={"pooled": {"name": "fedprox"}})
    assert params.remarks == [
        "params.yaml: algorithms.pooled of this file is used instead of the built-in reference "
        "(`fedtide show algorithm pooled`)"
    ]
    assert (params.run("pooled").algorithm.name, params.run("pooled").communication.name) == ("fedprox", "per_round")
    assert Params({"algorithms": {"pooled": {"name": "fedprox"}}}).remarks == []  # it is not compared


def test_one_is_run_by_its_name():
    run = Params.read(FILE, ["algorithm.name=pooled_period"]).run()
    assert (run.label, run.communication.name) == ("pooled_period", "intervals")


def test_they_are_listed_and_shown(fedtide):
    rows = {row["name"]: row["summary"] for row in json.loads(fedtide("list", "algorithms", "--json").out[-1])}
    assert set(LABELS) <= set(rows)
    shown = "\n".join(fedtide("show", "algorithm", "pooled").out)
    assert rows["pooled"] in shown
    assert "intervals: a" in shown
    assert json.loads(fedtide("show", "algorithm", "pooled", "--json").out[-1])["entry"]["name"] == "fedavg"
    assert "on_session_start: keep" in "\n".join(fedtide("show", "algorithm", "local").out)


def test_a_scenario_that_shares_all_data_needs_rounds():
    with pytest.raises(SettingsError, match="scenario cumulative requires mode: sync"):
        build_timeline(run := read(mode="async", scenario={"name": "cumulative", "of": SESSIONS}).run(), load_data(run))


@pytest.mark.parametrize(("label", "part"), [("lg_fedavg", "body"), ("fedbn", "norms")])
def test_methods_that_are_settings_of_fedper_are_found_by_name(label, part):
    algorithm = read().run(label).algorithm
    assert (algorithm.name, algorithm.personal) == ("fedper", part)
