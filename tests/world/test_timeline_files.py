"""Timelines in files: bound to what they were made from, and refused in one line where something is wrong."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from fedtide.core.discovery import source
from fedtide.core.errors import SettingsError
from fedtide.core.storage.arrays import write_arrays
from fedtide.settings.params import Params
from fedtide.world.building.build import build_timeline, timeline_for, world_file, world_identity
from support import vectors


@pytest.fixture
def settings():
    return Params({"scenario": {"name": "static", "num_clients": 3, "rounds": 4}, "validation": 0}).run()


@pytest.fixture
def data():
    return vectors()


@pytest.fixture
def path(settings, data, tmp_path):
    """The file of seed 0 in a folder of timelines."""
    identity = world_identity(settings, data)
    path = world_file(tmp_path, settings, identity)
    build_timeline(settings, data).save(path, identity)
    return path


def refusal(settings, data, folder):
    with pytest.raises(SettingsError) as caught:
        timeline_for(settings, data, folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_timeline_of_the_folder_is_the_one_that_would_be_made(settings, data, path):
    assert timeline_for(settings, data, path.parent).digest == build_timeline(settings, data).digest


def test_the_file_of_another_seed_under_this_name_is_refused(settings, data, path):
    other = settings.model_copy(update={"seed": 1})
    identity = world_identity(other, data)
    shutil.copy(path, world_file(path.parent, other, identity))
    assert refusal(other, data, path.parent) == (
        f"{world_file(path.parent, other, identity)} holds another timeline "
        f"({world_identity(settings, data)} instead of {identity}); delete it, or run the timeline stage again"
    )


@pytest.mark.parametrize("damage", ["flipped", "other arrays"])
def test_damage_is_one_line(settings, data, path, damage):
    content = path.read_bytes()
    place = content.index(build_timeline(settings, data).shards[1].tobytes())
    path.unlink()
    if damage == "other arrays":
        write_arrays(path, {"meta": np.array("{}")})
    else:
        path.write_bytes(content[:place] + bytes((content[place] ^ 4,)) + content[place + 1 :])
    what = "does not hold a timeline" if damage == "other arrays" else "is damaged, or an earlier version"
    assert refusal(settings, data, path.parent).startswith(f"{path} {what}")


def test_other_data_have_other_timelines(settings, data):
    assert world_identity(settings, data) != world_identity(settings, replace(data, digest="other"))


@pytest.mark.slow
def test_timelines_made_by_other_sources_are_made_again(settings, data, path, tmp_path, monkeypatch):
    """Of an edited scenario or partition."""
    before, original, edited = world_identity(settings, data), source.source_file, tmp_path / "edited.py"
    for module in ("world.scenarios.static", "world.partitions.dirichlet_equal", "world.splits.longtail"):
        name = f"fedtide.{module}"
        edited.write_text(original(name).read_text() + "\nSOMETHING_NEW = 1\n")
        with monkeypatch.context() as patch:
            patch.setattr(source, "source_file", lambda asked, name=name: edited if asked == name else original(asked))
            source.tree.cache_clear()
            source._meaning.cache_clear()
            assert world_identity(settings, data) != before
    assert world_identity(settings, data) == before


def test_where_one_shard_ends_is_part_of_the_digest(settings, data):
    made = build_timeline(settings, data)
    first, second, *rest = made.shards
    moved = replace(made, shards=[first[:-1], np.concatenate([first[-1:], second]), *rest])
    assert moved.digest != made.digest


def test_the_clock_matters_to_worlds_in_seconds_alone(tmp_path, data):
    trace = tmp_path / "trace.csv"
    trace.write_text("client,join,leave\n0,0,9\n")
    for seconds, differ in ((None, False), (3, True)):
        scenario = {"name": "trace", "file": str(trace), "rounds": 3, "seconds_per_round": seconds}
        clocks = ({}, {"mode": "async"})
        worlds = {
            world_identity(Params({"scenario": scenario, "validation": 0, **clock}).run(), data) for clock in clocks
        }
        assert len(worlds) == 1 + differ
