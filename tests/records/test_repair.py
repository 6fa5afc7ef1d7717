"""Records into which two processes have written."""

import hashlib

import pytest

from fedtide.records.repair import restored

HEADER = b"round,session,seconds\n"


def mark(content):
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def rows(owner, *rounds):
    return [b"%d,1,%s\n" % (number, owner) for number in rounds]


OURS = b"".join([HEADER, *rows(b"a", 1, 2, 3), *rows(b"b", 4, 5, 6)])


@pytest.mark.parametrize(
    "written",
    [
        [*rows(b"a", 1, 2, 3), *rows(b"b", 4), *rows(b"a", 6), *rows(b"b", 5, 6)],  # the old owner was ahead
        [*rows(b"a", 1, 2, 3), *rows(b"b", 4, 5), *rows(b"a", 4), *rows(b"b", 6)],  # or behind
        [*rows(b"a", 1, 2, 3), *rows(b"a", 5), *rows(b"b", 4, 5, 6, 7), b"8,1"],
    ],
)
def test_the_rows_that_the_mark_proves_are_kept(written):
    assert restored("history.csv", b"".join([HEADER, *written]), mark(OURS)) == OURS


def test_rows_of_a_round_are_told_apart_by_their_second_column():
    ours = b"round,split,class_0\n1,test,0.1\n1,validation,0.2\n2,test,0.3\n2,validation,0.4\n"
    content = ours.replace(b"2,test,0.3\n", b"2,test,0.9\n2,validation,0.9\n2,test,0.3\n")
    assert restored("per_class.csv", content, mark(ours)) == ours


def test_events_that_are_there_twice():
    ours = b'{"event": "session", "round": 1}\n{"event": "resumed", "round": 2}\n{"event": "session", "round": 3}\n'
    first, second, third = ours.splitlines(keepends=True)
    assert restored("events.jsonl", first + third + second + third, mark(ours)) == ours


@pytest.mark.parametrize("content", [b"", HEADER, OURS.replace(b"3,1,a", b"3,1,c"), OURS.replace(b"2,1,a\n", b"")])
def test_what_is_lost_is_not_restored(content):
    assert restored("history.csv", content, mark(OURS)) is None
