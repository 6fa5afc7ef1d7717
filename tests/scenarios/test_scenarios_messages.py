"""Settings that contradict each other and worlds that cannot be: the line that says why."""

import pytest
from pydantic import ValidationError

from fedtide.core.errors import SettingsError
from worlds import timeline, world

EVOLVING = {"num_clients": 4, "subsets": 5, "rounds_per_session": 12, "beta": 0.5}


@pytest.mark.parametrize(
    ("scenario", "chosen", "message"),
    [
        *(
            ("sessions", {"label_overlap": overlap}, "label_overlap should be .*from 0 to below 1")
            for overlap in ("1", -0.1, "a fifth", "nan")
        ),
        ("sessions", {"pilot_sessions": 8}, "pilot_sessions = 8 should be at most num_sessions = 7"),
        ("sessions", {"groups": 3}, "groups = 3: pattern alternate has 2 groups; use pattern cycle"),
        ("sessions", {"pattern": "markov", "min_devices": 11}, "min_devices = 11 should be at most num_devices = 10"),
        ("sessions", {"pattern": "explicit"}, "explicit lists 0 sessions with pattern explicit"),
        ("sessions", {"explicit": ((0,),)}, "explicit lists 1 sessions with pattern alternate"),
        ("sessions", {"pattern": "explicit", "explicit": ((0,),)}, "explicit lists 1 sessions, num_sessions = 7"),
        ("sessions", {"pattern": "explicit", "num_sessions": 1, "explicit": ((20,),)}, "1: .20. should be different dev"),
        ("sessions", {"pattern": "explicit", "num_sessions": 1, "explicit": ((3, 3),)}, "1: .3, 3. should be different d"),
        ("sessions", {"pattern": "explicit", "num_sessions": 2, "explicit": ((0,), ())}, "^no client is present in round 10 "),
        ("sessions", {"num_devices": 200}, r"^group 0 \(labels 0 to 4\).*num_clients = 200 .*largest feasible value is \d+$"),
        ("sessions", {"pattern": "cycle", "groups": 11}, r"^groups = 11 .*largest feasible value is 10$"),
        ("evolving", EVOLVING | {"subsets": 1000}, "subsets = 1000 .* 280 samples for 4 clients; the .* value is 70"),
        ("evolving", EVOLVING | {"drift": "pointer", "window": 71}, "window = 71 is too large: client 0 has 70 samples"),
        ("evolving", EVOLVING | {"drift": "fresh", "window": 71}, "4 parts of 71 samples exceed the 280 samples"),
        ("evolving", EVOLVING | {"beta": None}, "beta = null: partition iid has no alpha; give a number"),
        ("evolving", EVOLVING | {"overlap": 0.5}, "overlap = 0.5 has no effect with drift visits"),
        ("evolving", EVOLVING | {"window": 5}, "window = 5 has no effect with drift visits"),
        ("evolving", EVOLVING | {"first_clients": 9}, "first_clients = 9 should be at most num_clients = 4"),
        ("evolving", EVOLVING | {"min_clients": 5}, "min_clients = 5 should be at most first_clients = 4"),
        ("incremental_departure", {"num_clients": 3, "start": 2, "interval": 1, "rounds": 20}, r"rounds = 20 .* is 4$"),
        ("incremental_arrival", {"num_clients": 3}, "initial = 5 should be at most num_clients = 3"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(scenario, chosen, message):
    with pytest.raises((SettingsError, ValidationError), match=message):
        timeline(scenario, world(), **chosen)


@pytest.mark.parametrize("partition", ["label_halves", "partial_overlap"])
def test_overlap_is_refused_where_a_partition_chooses_the_labels(partition):
    with pytest.raises(SettingsError, match=rf"^label_overlap = 0.2 has no effect with partition {partition}"):
        timeline("sessions", world(partition=partition), num_devices=3, label_overlap="0.2")
