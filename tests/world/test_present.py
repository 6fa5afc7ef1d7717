"""Evaluation on the samples of the clients that are present."""

import numpy as np
import pandas as pd
import pytest

from fedtide.settings.params import Params
from fedtide.world.building.build import build_timeline
from fedtide.world.storage.prepared import load_data


@pytest.fixture
def world(tmp_path):
    """Six clients, the last of whom has one row, of training."""
    rng = np.random.default_rng(5)
    who = np.repeat(np.arange(6), [40, 40, 40, 40, 40, 1])
    when = [f"2013-{month:02}-05" for month in rng.integers(1, 4, len(who))]
    frame = pd.DataFrame(
        {"who": who, "when": when, "x": rng.normal(size=len(who)), "label": rng.integers(0, 2, len(who))}
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)

    def make(scenario, **partition):
        table = {"name": "table", "root": str(tmp_path), "file": str(tmp_path / "rows.csv")}
        data, partition = {**table, "client": "who", "time": "when"}, {"name": "natural", **partition}
        settings = Params({"data": data, "scenario": scenario, "partition": partition, "validation": 0.2}).run()
        return build_timeline(settings, load_data(settings)), load_data(settings)

    return make


@pytest.mark.parametrize(
    "scenario",
    [
        {"name": "calendar", "rounds_per_period": 2},
        {"name": "incremental_arrival", "num_clients": 6, "initial": 3, "start": 1, "interval": 2, "rounds": 6},
    ],
)
def test_the_samples_of_the_clients_present_and_no_others(world, scenario):
    plain, data = world(scenario)
    timeline, _ = world(scenario, test_on="present")
    assert [shard.tolist() for shard in plain.shards] == [shard.tolist() for shard in timeline.shards]
    assert plain.assignment_of_round.tolist() == timeline.assignment_of_round.tolist()
    assert len({len(timeline.at(t).clients) for t in range(timeline.rounds)}) > 1 or scenario["name"] == "calendar"
    for t in range(timeline.rounds):
        present = set(timeline.origin_of_client[timeline.at(t).clients])
        held, whole = timeline.evaluated_at(t), plain.evaluated_at(t)
        test = np.arange(len(data.test_labels)) if whole is None else whole.test
        validation = timeline.validation if whole is None else whole.validation
        assert held.test.tolist() == [place for place in test if data.origins.test_client[place] in present]
        assert held.validation.tolist() == [p for p in validation if data.origins.train_client[p] in present]
        ahead, other = timeline.evaluated_ahead_at(t), plain.evaluated_ahead_at(t)
        assert (ahead is None) == (other is None)
        assert ahead is None or ahead.test.tolist() == other.test.tolist()
