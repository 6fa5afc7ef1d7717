"""Concepts by round, against worlds computed by independent programs, and the properties of those that are drawn."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.records.measures.drifts import starts
from fedtide.world.building.drifting import with_drift
from fedtide.world.clients import ClientNames
from fedtide.world.concepts import Concept, under
from fedtide.world.data.base import DatasetPlugin
from fedtide.world.data.two_rules import labels_of
from fedtide.world.dataset import content_digest
from fedtide.world.drift.base import Drift, Population
from fedtide.world.storage.prepared import load
from fedtide.world.timeline import Ints, Timeline
from support import settings, steady, vectors

WORLDS: dict[str, Any] = json.loads((Path(__file__).parent / "drift_worlds.json").read_text(encoding="utf-8"))


def created(**drift: Any) -> Drift:
    return plugins.create(Drift, settings(drift=drift).drift)


def concepts(clients: int, rounds: int, seed: int = 0, **drift: Any) -> Ints:
    """The concept of each client in each round."""
    plugin = created(**drift)
    return plugin.concepts(population(plugin, clients, rounds, seed))


def population(plugin: Drift, clients: int, rounds: int, seed: int = 0) -> Population:
    return Population(steady([1] * clients, rounds), plugin.settings.groups(ClientNames(clients), seed), seed)


def listed(changes: list[Any], rounds: int) -> Ints:
    """The rows of a file: each holds until the next one."""
    starts = [start for start, _ in changes]
    return np.array([changes[np.searchsorted(starts, t, side="right") - 1][1] for t in range(rounds)])


@pytest.mark.parametrize("world", WORLDS["schedules"], ids=lambda world: world["name"])
def test_schedules_are_those_of_the_file(world: dict[str, Any]) -> None:
    own = {key: world[key] for key in ("start", "modulus", "bounds", "stagger", "period", "until") if key in world}
    maps = [{"labels": labels} for labels in world["concepts"][1:]]
    found = concepts(world["clients"], world["rounds"], name=world["kind"], concepts=maps, **own)
    assert np.array_equal(found, listed(world["changes"], world["rounds"]))


@pytest.mark.parametrize("world", WORLDS["tables"], ids=lambda world: world["name"])
def test_tables_are_those_of_the_file(world: dict[str, Any]) -> None:
    steps, length = world["steps"][:-1], world["rounds_per_step"]  # the last step is only tested in the file's source
    maps = [{"labels": [1, 0, 2]}] * max(max(step) for step in steps)
    found = concepts(
        len(steps[0]), len(steps) * length, name="table", concepts=maps, steps=steps, rounds_per_step=length
    )
    assert np.array_equal(found, listed(world["changes"], len(steps) * length))


@pytest.mark.parametrize("case", WORLDS["gradual"], ids=lambda case: f"{case['start']}-{case['length']}")
def test_shares_of_a_gradual_drift_are_those_of_the_file(case: dict[str, Any]) -> None:
    plugin = created(name="gradual", concepts=[{"turns": 1}], start=case["start"], length=case["length"])
    world = population(plugin, 2, len(case["shares"]))
    assert [plugin.share(t, world) for t in range(len(case["shares"]))] == pytest.approx(case["shares"])


@pytest.mark.parametrize("case", WORLDS["labels"])
def test_labels_are_seen_as_in_the_file(case: dict[str, Any]) -> None:
    assert Concept(labels=tuple(case["labels"])).seen(torch.tensor(case["y"]), None).tolist() == case["seen"]


@pytest.mark.parametrize("case", WORLDS["turns"])
def test_pictures_are_turned_as_in_the_file(case: dict[str, Any]) -> None:
    assert Concept(turns=case["turns"]).inputs(torch.tensor([[case["picture"]]]))[0, 0].tolist() == case["seen"]


@pytest.mark.parametrize("case", WORLDS["maps"])
def test_vectors_are_mapped_as_in_the_file(case: dict[str, Any]) -> None:
    matrix, shift = (value and tuple(value) for value in (case["matrix"], case["shift"]))
    assert Concept(matrix=matrix, shift=shift).inputs(torch.tensor(case["x"])).tolist() == case["seen"]


SWAP = [{"swap": [[0, 1]]}]


@given(st.integers(1, 30), st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 5))
def test_a_larger_share_keeps_the_clients_of_a_smaller_one(clients: int, one: float, other: float, seed: int) -> None:
    small, large = (
        concepts(clients, 1, seed, name="sudden", start=0, concepts=SWAP * 2, share=share)[0]
        for share in sorted((one, other))
    )
    assert np.array_equal(large[small > 0], small[small > 0])
    assert (small > 0).sum() == round(min(one, other) * clients)


def test_clients_drawn_one_by_one_do_not_depend_on_the_others() -> None:
    few, many = (
        concepts(clients, 40, name="staggered", start=5, within=20, concepts=SWAP).argmax(0) for clients in (4, 40)
    )
    assert np.array_equal(few, many[:4])
    assert set(many.tolist()) <= set(range(5, 25))
    assert len(set(many.tolist())) > 10


def gradual(sizes: list[int], length: int = 10) -> Timeline:
    drift = created(name="gradual", start=2, length=length, concepts=SWAP)
    return with_drift(steady(sizes, 15), drift, vectors(sum(sizes)), seed=3)


def test_a_gradual_drift_never_turns_back_and_has_its_share() -> None:
    world, before = gradual([600, 300]), set[int]()
    for t in range(15):
        mine = world.shards_at(t)[0]
        moved = set((mine[mine >= 900] - 900).tolist())
        share = min(max((t - 1) / 10, 0), 1)
        assert before <= moved
        assert abs(len(moved) / 600 - share) <= 3 * (share * (1 - share) / 600) ** 0.5
        assert np.array_equal(mine % 900, np.arange(600)), "samples and their order stay"
        before = moved
    assert starts([len(world.changed_at(t)) for t in range(15)]) == [2]


@pytest.mark.parametrize(
    ("drift", "message"),
    [
        ({"name": "sudden", "start": 9, "concepts": SWAP}, "drift.start = 9: the run has 5 rounds"),
        ({"name": "sudden", "start": {"session": 2}, "concepts": SWAP}, "start.session = 2: the run has 1 sessions"),
        ({"name": "sudden", "start": {"period": "may"}, "concepts": SWAP}, "no periods; use scenario calendar"),
        ({"name": "sudden", "start": 1, "concepts": [{"swap": [[0, 7]]}]}, "unknown label 7; labels are 0 to 2"),
        ({"name": "sudden", "start": 1, "concepts": SWAP, "clients": [[4]]}, "unknown client 4; client IDs are 0 to 2"),
        ({"name": "sudden", "start": 1, "concepts": [{"turns": 1}]}, "turns = 1 requires square images"),
        ({"name": "sudden", "start": 1, "concepts": [{"shift": [1.0]}]}, "shift should have 5 numbers"),
        ({"name": "sudden", "start": 1, "concepts": [{"table": 0}]}, "has no label tables"),
        ({"name": "window", "start": 3, "until": 3, "concepts": SWAP}, "drift.until should be later"),
        ({"name": "sudden", "start": 1, "concepts": SWAP, "share": 1.5}, "share"),
        ({"name": "sudden", "start": 1, "concepts": []}, "concepts"),
    ],
)
def test_an_impossible_drift_is_refused_in_one_line(drift: dict[str, Any], message: str) -> None:
    with pytest.raises((SettingsError, ValueError)) as error:
        with_drift(steady([4] * 3, 5), created(**drift), vectors(12), seed=0)
    assert message in str(error.value)


@pytest.mark.parametrize("rule", ["sine", "circle"])
def test_points_have_the_labels_of_the_file_under_both_concepts(rule: str) -> None:
    case = WORLDS["synthetic"]
    assert labels_of(np.array(case["points"]), rule).tolist() == case[rule]


def test_a_table_of_labels_is_part_of_the_data(tmp_path: Path) -> None:
    plugin = plugins.create(DatasetPlugin, settings(data={"name": "two_rules", "samples": 50, "tested": 20}).data)
    data = load(plugin, tmp_path)
    assert data.digest != replace(data, digest=content_digest(replace(data, tables=None))).digest
    drift = created(name="sudden", start=1, concepts=[{"table": 1}])
    world = with_drift(steady([30, 20], 3, 2), drift, data, seed=0)
    seen = under(data, world.concepts)
    positions = torch.from_numpy(world.shards_at(2)[0])
    inputs, labels = seen.read("train", positions)
    assert torch.equal(inputs, data.train_inputs[:30])
    assert torch.equal(labels, 1 - data.train_labels[:30])
    _, tested = seen.read("test", torch.arange(20, 40))
    assert torch.equal(tested, 1 - data.test_labels)
