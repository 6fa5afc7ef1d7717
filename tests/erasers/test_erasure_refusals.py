"""Requests that are refused before any work: one line with the key, the value, what is allowed, and a way out."""

from typing import Any

import pytest

from erasers.erased_runs import made, request, world
from fedtide.core.errors import SettingsError
from fedtide.methods.erasers.retrain import Retrain

LEFT = [(0, 1, 2, 3)] * 2 + [(0, 2, 3)] * 4
CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "unknown": (request("retrain", [7]), {}, "erase.clients: unknown client 7; client IDs are 0 to 3"),
    "negative": (request("retrain", [-1]), {}, "erase.clients: unknown client -1; client IDs are 0 to 3"),
    "at once": (request("retrain", at=0), {}, "erase.at: round 0 should lie between 1 and 5, the run's last round"),
    "at the end": (request("retrain", at=6), {}, "erase.at = 6: the run has 6 rounds"),
    "everybody": (request("retrain", [0, 1, 2, 3]), {}, "nobody is left from round 4 on; erase fewer clients"),
    "nobody": ({"name": "retrain", "share": 0.1, "at": 4}, {}, "no client asks before round 4"),
    "no leavers": ({"name": "retrain", "leavers": True, "at": 4}, {}, "no client asks before round 4"),
    "no attackers": ({"name": "retrain", "attackers": True, "at": 4}, {}, "erase.attackers = true: there are none"),
    "two ways": (request("retrain", number=1), {}, "erase retrain requires exactly one of clients, share, number"),
    "no way": ({"name": "retrain", "at": 4}, {}, "erase retrain requires exactly one of clients, share, number"),
    "below": (
        {"name": "retrain", "modulus": 2, "below": 2, "at": 4},
        {},
        "erase.below = 2: should be less than erase.modulus = 2",
    ),
    "async": (request("retrain"), {"mode": "async", "algorithm": "fedbuff", "participation": "all"}, "use mode: sync"),
    "robust": (
        request("fed_eraser"),
        {"aggregation": "median"},
        "erase fed_eraser: aggregation median rejects changed updates; use aggregation: mean, or retrain",
    ),
    "corrected": (request("conda"), {"algorithm": "scaffold"}, "erase conda: algorithm scaffold does not only average"),
    "personal": (
        request("rollback"),
        {"algorithm": "ditto"},
        "erase rollback: algorithm ditto has personal models; use retrain or continue_training",
    ),
    "clusters": (
        request("weight_negation"),
        {"algorithm": {"name": "ifca", "clusters": 2}},
        "erase weight_negation: algorithm ifca has personal models",
    ),
}
NOISE: dict[str, Any] = {
    "uplink": [{"name": "clip", "bound": 1.0}, {"name": "noise", "multiplier": 1.0}],
    "algorithm": {"name": "fedavg", "weighting": "uniform"},
    "participation": {"name": "fixed", "fraction": 0.5},
}


def refused(erase: Any, there: Any = None, **values: Any) -> str:
    """The line."""
    with pytest.raises(SettingsError) as raised:
        made([erase] if isinstance(erase, dict) else erase, there, **values)
    (line,) = str(raised.value).splitlines()
    return line


@pytest.mark.parametrize("case", CASES)
def test_requests_that_make_no_sense(case: str) -> None:
    erase, values, wanted = CASES[case]
    assert wanted in refused(erase, **values)


@pytest.mark.parametrize("method", ["fed_eraser", "pga", "puf", "conda"])
def test_updates_of_single_clients_that_nobody_sees(method: str) -> None:
    hidden = f"erase {method}: uplink noise hides the updates of single clients; use rollback or weight_negation"
    assert hidden in refused(request(method), **NOISE)


def test_training_that_is_not_in_a_round_has_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retrain, "memory", "setting")
    assert "erase retrain: uplink noise hides the updates of single clients" in refused(request("retrain"), **NOISE)


def test_no_epsilon_is_kept_by_rounds_that_are_trained_again_with_their_noise() -> None:
    links = [{"name": "clip", "bound": 1.0}, {"name": "noise", "epsilon": 8.0}]
    line = refused(request("retrain"), **{**NOISE, "uplink": links})
    assert (
        "uplink noise: epsilon = 8 cannot be kept, since erase trains the first 4 rounds again with their noise" in line
    )
    made([request("rollback")], **{**NOISE, "uplink": links})


@pytest.mark.parametrize("method", ["retrain", "rollback", "weight_negation", "continue_training"])
def test_methods_that_need_none_go_with_noise_and_rules(method: str) -> None:
    for values in ({"aggregation": "median"}, NOISE):
        made([request(method)], **values)


@pytest.mark.parametrize("method", ["pga", "puf"])
def test_clients_that_have_left_cannot_help(method: str) -> None:
    line = refused(request(method, at=3), world(LEFT))
    assert f"erase {method}: client 1 has left before round 3 and cannot help; ask while it is there" in line
    made([request(method, at=2)], world(LEFT))


def test_clients_that_were_not_there_yet() -> None:
    later = [(0, 2, 3)] * 3 + [(0, 1, 2, 3)] * 3
    assert "client 1 is first present in round 3, so a request before round 2 has" in refused(
        request("retrain", at=2), world(later)
    )
    assert "client 1 is never present" in refused(request("retrain"), world(without=[1]))


def test_requests_out_of_order_and_twice() -> None:
    first, second = request("retrain", [0], 4), request("retrain", [1], 2)
    assert "requests before rounds 4, 2 should be in the order of their rounds" in refused([first, second])
    assert "requests before rounds 2, 2 should be" in refused([second, request("retrain", [0], 2)])
    assert "client 1 asks twice; name it in one request" in refused([second, request("retrain", [1], 4)])
    made([{**second, "after": "returns"}, request("retrain", [1], 4)])
