"""Traces: the timeline follows the file, and bad files are refused by line."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.errors import SettingsError
from fedtide.world.scenarios.trace import Interval, read_trace
from worlds import presence, timeline, world


def write(path, rows, header="client,join,leave"):
    file = path / "trace.csv"
    file.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return file


def test_clients_are_present_from_join_to_before_leave(tmp_path):
    file = write(tmp_path, ["17,0,3", "4,1,2", "17,4,6", "4,3,5"])
    given_ = world()
    made = timeline("trace", given_, file=str(file))
    assert presence(made) == [[1], [0, 1], [1], [0], [0, 1], [1]]
    assert made.notes["ids"] == [4, 17]
    assert made.sessions == 1
    assert made.num_clients == 2
    assert np.array_equal(np.sort(np.concatenate(made.shards)), given_.train)
    assert made.labels_at(0).all()


def test_a_session_per_change(tmp_path):
    file = write(tmp_path, ["0,0,6", "1,2,4", "1,4,5"])
    given_ = world(partition="label_halves")
    made = timeline("trace", given_, file=str(file), session_at_change=True)
    assert made.session_of_round.tolist() == [0, 0, 1, 1, 1, 2]
    assert made.labels_at(0).tolist() == [True] * 5 + [False] * 5
    assert made.labels_at(2).all()
    assert np.array_equal(made.labels_at(5), made.labels_at(0))


def test_rounds_may_cut_the_trace(tmp_path):
    file = write(tmp_path, ["0,0,9", "1,5,7"])
    made = timeline("trace", world(), file=str(file), rounds=3)
    assert presence(made) == [[0]] * 3
    assert made.num_clients == 2


def test_seconds_in_rounds_are_those_of_the_first_second(tmp_path):
    """Rounds begin at 0, 10, 20, ...; client 9 is there between two of them."""
    file = str(write(tmp_path, ["4,0,11", "4,20,21", "7,1,31", "9,12,18"]))
    made = timeline("trace", world(), file=file, seconds_per_round=10)
    assert presence(made) == [[0], [0, 1], [0, 1], [1]]
    assert made.visits is None
    assert made.num_clients == 3
    assert presence(timeline("trace", world(), file=file, seconds_per_round=1))[11] == [1]


def test_seconds_with_a_clock_of_events_are_visits(tmp_path):
    file = str(write(tmp_path, ["4,0,11", "4,11,21", "7,5,31", "7,40,41"]))
    given_ = replace(world(), events=True)
    made = timeline("trace", given_, file=file, seconds_per_round=10, rounds=3)
    assert presence(made) == [[0, 1]] * 3
    visits = made.visits
    assert list(zip(visits.client, visits.begin, visits.end, strict=True)) == [(0, 0, 21), (1, 5, 31), (1, 40, 41)]
    assert timeline("trace", given_, file=file, rounds=9).visits is None  # then join and leave are rounds
    for more, message in (
        ({}, r"scenario\.rounds = null"),
        ({"rounds": 3, "session_at_change": True}, "session_at_change"),
    ):
        with pytest.raises(SettingsError, match=message):
            timeline("trace", given_, file=file, seconds_per_round=10, **more)


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_presence_is_what_the_intervals_say(tmp_path_factory, data):
    rounds = data.draw(st.integers(1, 12))
    table = np.array(data.draw(st.lists(st.lists(st.booleans(), min_size=rounds, max_size=rounds), max_size=4)))
    table = np.vstack([table.reshape(-1, rounds), np.ones(rounds, dtype=bool)]).astype(bool)
    rows = [f"{client},{start},{start + 1}" for client, row in enumerate(table) for start in np.flatnonzero(row)]
    file = write(tmp_path_factory.mktemp("trace"), data.draw(st.permutations(rows)))
    made = timeline("trace", world(each=8), file=str(file))
    ever = np.flatnonzero(table.any(axis=1))
    assert presence(made) == [np.flatnonzero(table[ever, round_]).tolist() for round_ in range(rounds)]


def test_the_reader_sorts_ignores_other_columns_and_blank_lines(tmp_path):
    file = write(tmp_path, ["9,west,3,1", "", "4,east,2, 0"], header="leave,region,client,join")
    assert read_trace(file) == [Interval(2, 0, 4, 4), Interval(3, 1, 9, 2)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["0,0,5", "1,x,5"], "line 3: join = 'x' should be an integer from 0"),
        (["0,5,5"], "line 2: leave = 5 should be greater than join = 5"),
        (["0,0,1700000000"], "line 2: leave = '1700000000' should be an integer from 0 to 10000000"),
        (["0,0,5", "1,0,9", "0,4,6"], "line 4: client 0 joins in round 4, but is present until 5 by line 2"),
        ([], "no rows below the header"),
    ],
)
def test_bad_rows_are_refused_by_line(tmp_path, rows, message):
    file = write(tmp_path, rows)
    with pytest.raises(SettingsError, match=re.escape(str(file)) + ".*" + re.escape(message)):
        read_trace(file)


def test_bad_files_are_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"line 1: no column 'join'; the header requires client,join,leave"):
        read_trace(write(tmp_path, ["0,1,2"], header="client,start,leave"))
    with pytest.raises(SettingsError, match=r"^scenario\.file = .*none\.csv' is not a readable"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(SettingsError, match=r"binary\.csv' is not a readable"):
        read_trace(tmp_path / "binary.csv")


@pytest.mark.parametrize(
    ("rows", "chosen", "empty"),
    [(["0,1,3"], {}, 0), (["0,0,2", "1,4,6"], {}, 2), (["0,0,2"], {"rounds": 5}, 2)],
)
def test_rounds_without_anybody_are_refused(tmp_path, rows, chosen, empty):
    with pytest.raises(SettingsError, match=f"^no client is present in round {empty} "):
        timeline("trace", world(), file=str(write(tmp_path, rows)), **chosen)
