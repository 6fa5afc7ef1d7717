"""Attacks: who attacks, what they send, and what they train on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from federation.jobs import UNEQUAL, events
from federation.test_ranks import SIZES, compare
from fedtide.core.errors import Diverged, SettingsError
from fedtide.federation.features.attack import Attacking, outnumbered
from fedtide.federation.federation import Federation
from fedtide.federation.gradient_rounds import GradientRounds
from fedtide.federation.state import initial_state
from fedtide.methods.algorithms.base import Round
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from support import closest, deal, federation, largest_gap, one, run_rounds, settings, steady, timeline, vectors, watch

pytestmark = pytest.mark.usefixtures("drop_in")

PLAIN = {"epochs": 2, "batch_size": 3, "lr": 0.2}
TWO = {"clients": [1, 3]}


def made(attack: Any = "none", algorithm: Any = "fedavg", rounds: int = 3, **values: Any) -> Federation:
    chosen = settings(algorithm=algorithm, local=PLAIN, attack=attack, **values)
    return federation(chosen, steady(SIZES, rounds), vectors())


def seen(fed: Federation) -> list[tuple[Round, Tensor]]:
    found = watch(fed)
    run_rounds(fed)
    return found


def sent(fed: Federation, t: int = 0) -> tuple[Tensor, Tensor]:
    """Trained and sent updates of a round."""
    r, _ = seen(fed)[t]
    return r.trained.W - r.w, r.W - r.w


HONEST = [0, 2, 4]


@pytest.mark.parametrize("z", [1.0, None])
def test_alie_hides_among_the_honest_updates(z: float | None) -> None:
    """With three honest of five participants, one supporter is needed, so the published share is 2/3."""
    trained, found = sent(made({"name": "alie", "z": z, **TWO}))
    mean, spread = trained[HONEST].mean(0), trained[HONEST].var(0).sqrt()
    factor = 0.4307272992954576 if z is None else z  # the quantile of 2/3
    assert closest(found[[1, 3]], (mean - factor * spread).expand(2, -1)) < 1e-13


@pytest.mark.parametrize("name", ["alie", "ipm"])
def test_without_honest_participants_nobody_knows_what_to_forge(name: str) -> None:
    r, _ = seen(made({"name": name, "share": 1.0}))[0]
    assert r.W is r.trained.W


def test_one_honest_participant_has_no_spread() -> None:
    trained, found = sent(made({"name": "alie", "clients": [0, 1, 3, 4]}))
    assert closest(found, trained[2].expand_as(found)) < 1e-14


def test_attackers_train_on_flipped_labels_and_are_tested_on_true_ones() -> None:
    fed, data, shards = made({"name": "label_flip", **TWO}), vectors(), deal(SIZES)
    labels = data.train_labels.clone()
    for client in TWO["clients"]:
        labels[shards[client]] = 2 - labels[shards[client]]
    poisoned = replace(data, train_labels=labels)
    other = federation(settings(algorithm="fedavg", local=PLAIN), steady(SIZES, 3), poisoned)
    (state, records), (wanted, others) = run_rounds(fed), run_rounds(other)
    assert torch.equal(state.w, wanted.w)
    assert closest(state.w, run_rounds(made())[0].w) > 1e-3
    assert [record.row["train_loss"] for record in records] == [record.row["train_loss"] for record in others]
    assert [record.row["test_accuracy"] for record in records] == [record.row["test_accuracy"] for record in others]
    assert sum(records[0].per_class["held"]) == sum(SIZES)
    assert records[0].per_class == run_rounds(made(rounds=1))[1][0].per_class | {"test": records[0].per_class["test"]}


def test_full_gradients_of_attackers_are_of_flipped_labels_too() -> None:
    """Mime's second vector."""
    data, shards = vectors(), deal(SIZES)
    labels = data.train_labels.clone()
    labels[shards[1]] = 2 - labels[shards[1]]
    other = federation(settings(algorithm="mime", local=PLAIN), steady(SIZES, 3), replace(data, train_labels=labels))
    state, _ = run_rounds(made({"name": "label_flip", "clients": [1]}, "mime"))
    assert torch.equal(state.w, run_rounds(other)[0].w)


@pytest.mark.parametrize("name", ["sign_flip", "label_flip"])
def test_attacks_begin_in_a_round(name: str) -> None:
    late, none = seen(made({"name": name, "start": 2, **TWO})), seen(made())
    assert largest_gap([w for _, w in late[:2]], [w for _, w in none[:2]]) == 0.0
    assert closest(late[2][1], none[2][1]) > 1e-4


def test_records_say_who_attacks() -> None:
    _, records = run_rounds(made({"name": "sign_flip", "start": 1, **TWO}))
    assert [record.clients["attacker"] for record in records] == [[0.0] * 5, *[[0.0, 1.0, 0.0, 1.0, 0.0]] * 2]
    assert all("attacker" not in record.clients for record in run_rounds(made())[1])


def test_an_attack_comes_before_the_links() -> None:
    """The link doubles after it has added one."""
    r, _ = seen(made({"name": "sign_flip", **TWO}, uplink=["double"]))[0]
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0], dtype=torch.float64).unsqueeze(1)
    assert closest(r.W - r.w, 2 * (signs * (r.trained.W - r.w) + 1)) < 1e-14


def test_updates_are_forged_from_where_training_started() -> None:
    fed = made({"name": "scale", "factor": 0.0, "share": 1.0}, {"name": "fedacg", "lambda_": 0.7, "beta": 0.0})
    found = watch(fed)
    fed.parts.w0 += 1.0
    state = initial_state(fed.parts)
    state.server["m"] = torch.ones_like(state.w)
    run_rounds(fed, 1, state)
    r, _ = found[0]
    assert closest(r.W, (r.w + 0.7).expand_as(r.W)) < 1e-14


def test_half_of_every_job_is_half_a_step_of_the_server() -> None:
    half = events({"name": "fedbuff", "buffer": 2}, 5, UNEQUAL, attack={"name": "scale", "factor": 0.5, "share": 1.0})
    assert largest_gap(half, events({"name": "fedbuff", "buffer": 2, "server_lr": 0.5}, 5, UNEQUAL)) < 1e-14


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["alie", "sign_flip", "label_flip", "ipm"])
def test_any_number_of_processes_gives_the_same_run(attack: str) -> None:
    for size in (2, 7):
        compare(
            "fedavg", "threads", size, PLAIN, communication=False, attack={"name": attack, **TWO}, uplink=["double"]
        )


@pytest.mark.slow
def test_only_attackers_that_know_the_others_need_their_rows() -> None:
    sign, nothing, alie = (
        compare("fedavg", "threads", 3, PLAIN, communication=False, **values).sent
        for values in ({"attack": {"name": "sign_flip", **TWO}}, {}, {"attack": {"name": "alie", **TWO}})
    )
    who = 3 * len(SIZES)  # the column of attackers, in every round
    assert sign == nothing + who < alie


def test_what_is_no_number_lets_the_mean_diverge_and_no_rule() -> None:
    advice = "losses or updates of client 2 are not finite or too large; attack nan is in force .*: try a robust rule such as"
    with pytest.raises(Diverged, match=f"diverged in round 1: training loss [0-9.]+; {advice} aggregation=median"):
        run_rounds(made({"name": "nan", "clients": [2]}))
    state, records = run_rounds(made({"name": "nan", "clients": [2]}, aggregation="median"))
    assert torch.isfinite(state.w).all()
    assert all(record.clients["kept"][2] == 0.0 for record in records)


@pytest.mark.parametrize(
    ("attack", "rule", "rounds", "most"),
    [
        ({"clients": [1, 3]}, "median", 0, 2),
        ({"clients": [0, 1, 3]}, "median", 3, 2),
        ({"clients": [0, 1, 3], "start": 2}, "median", 1, 2),
        ({"clients": [0, 1, 3]}, "geometric_median", 3, 2),
        ({"clients": [1, 3]}, {"name": "krum", "f": 3}, 3, 1),  # no more of five
        ({"clients": [1]}, {"name": "krum", "f": 1}, 0, 1),
        ({"clients": [1, 3]}, {"name": "trimmed_mean", "trim": 0.2}, 3, 1),
        ({"clients": [1, 3]}, {"name": "median", "bucket": 2}, 3, 1),  # of three buckets
        ({"clients": [0, 1, 3]}, "mean", 0, 0),
        ({"clients": [0, 1, 3], "name": "nan"}, "median", 0, 2),  # which are left out
    ],
)
def test_more_attackers_than_a_rule_withstands_are_a_line_before_the_run(
    attack: dict[str, Any], rule: Any, rounds: int, most: int
) -> None:
    fed = made({"name": "sign_flip", **attack}, aggregation=rule)
    fed.parts.workers.close()
    name = rule if isinstance(rule, str) else rule["name"]
    line = f"WARNING more clients attack than aggregation {name} withstands in {rounds} of 3 rounds: up to "
    line += f"{len(attack['clients'])} of 5 participants (attack sign_flip), where it withstands {most}"
    assert outnumbered(fed.parts) == ([line] if rounds else [])


def test_participants_are_counted_round_by_round() -> None:
    """Three of twelve attack: with four in a round, they are the majority, or half, in some."""
    world, attack = steady([3] * 12, 20), {"name": "sign_flip", "clients": [0, 1, 2]}
    chosen = settings(attack=attack, aggregation="median", participation={"name": "fixed", "count": 4})
    fed = federation(chosen, world, vectors())
    drawn = [fed.parts.participation.draw(np.arange(12), t, 0) for t in range(20)]
    found = [int((ids < 3).sum()) for ids in drawn]
    rounds = sum(count > 1 for count in found)
    assert 0 < rounds < 20
    assert f"in {rounds} of 20 rounds: up to {max(found)} of 4 participants" in outnumbered(fed.parts)[0]
    fed.parts.workers.close()


def test_gradient_rounds_are_attacked_as_the_round_that_follows() -> None:
    """Their numbers begin with 0 in every session."""
    everybody = {client: client for client in range(5)}
    world = timeline(deal(SIZES), [everybody] * 4, session_of_round=[0, 0, 1, 1])
    chosen = settings(local=PLAIN, attack={"name": "scale", "factor": 0.0, "share": 1.0, "start": 1})
    fed = federation(chosen, world, vectors())
    state = initial_state(fed.parts)
    with torch.no_grad():
        before, after = (
            GradientRounds(fed.parts, state, t).train(state.w, state.b, 1, 0.1, None, None) for t in (0, 2)
        )
    fed.parts.workers.close()
    assert closest(before, state.w) > 1e-4
    assert closest(after, state.w) < 1e-15


def ids(attack: dict[str, Any], **values: Any) -> set[int]:
    fed = federation(settings(attack=attack, **values), steady([3] * 20, 1), vectors())
    fed.parts.workers.close()
    return set(one(fed.parts, Attacking).attackers.ids)


def test_the_attackers_are_the_worlds() -> None:
    a = ids({"name": "alie", "number": 6})
    assert len(a) == 6
    assert a == ids({"name": "scale", "share": 0.3}, algorithm="fedprox")
    assert a == ids({"name": "scale", "share": 0.3}, seed=4, world_seed=0)
    assert a != ids({"name": "scale", "share": 0.3}, seed=4)
    assert a > ids({"name": "nan", "number": 3})
    assert ids({"name": "nan", "clients": [19, 0]}) == {0, 19}


def test_honest_runs_have_the_keys_they_had() -> None:
    assert not {"attack", "aggregation"} & RunSettings().canonical().keys()
    assert "attack" in settings(attack={"name": "nan", "number": 1}).canonical()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"attack": "alie"}, "attack alie requires exactly one of share, number and clients"),
        ({"attack": {"name": "alie", "share": 0.5, "number": 2}}, "attack alie requires exactly one of share"),
        ({"attack": {"name": "none", "share": 0.5}}, "attack.share = 0.5: should be null"),
        ({"attack": {"name": "aile", "share": 0.5}}, "did you mean 'alie'?"),
        ({"attack": {"name": "nan", "clients": [5]}}, "attack.clients: unknown client 5; client IDs are 0 to 4"),
        ({"attack": {"name": "nan", "number": 6}}, "attack.number = 6: 6 of the 5 clients would attack"),
        ({"attack": {"name": "nan", "share": 0.05}}, "attack.share = 0.05: 0 of the 5 clients would attack"),
        ({"attack": {"name": "nan", "share": 0.5, "start": 1}}, "attack.start = 1: the run has 1 rounds"),
        (
            {"attack": {"name": "nan", "share": 0.5}, "communication": "intervals", "local": {"steps": 5}},
            "averages inside rounds, but attack is about updates",
        ),
    ],
)
def test_what_is_no_attack_is_refused_in_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        federation(settings(**values), steady(SIZES, 1), vectors())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_labels_are_flipped_where_there_are_classes() -> None:
    with pytest.raises(SettingsError, match="attack = label_flip requires classes"):
        Params({"objective": "huber", "partition": "natural", "attack": {"name": "label_flip", "share": 0.5}}).run()
