"""Links in whole runs: with other processes, states, departures, sessions, gradient rounds and jobs."""

from typing import Any

import pytest
import torch

from federation.jobs import EQUAL, events
from federation.test_ranks import SIZES, compare
from federation.test_uplink import models
from fedtide.authoring.rounds import assert_resumes
from fedtide.core.discovery.faults import PluginError
from fedtide.federation.features.uplink import Uplink
from fedtide.federation.federation import Federation
from fedtide.federation.gradient_rounds import GradientRounds
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.state import restored_state
from fedtide.federation.types import RunState
from fedtide.world.timeline import Timeline
from support import deal, federation, largest_gap, one, run_rounds, settings, steady, timeline, vectors, watch
from uplink.passing import length

PLAIN = {"epochs": 2, "batch_size": 3, "lr": 0.2}
ADAPTIVE = {"name": "clip", "quantile": 0.5, "rate": 1.0}
TOP_K = {"name": "top_k", "fraction": 0.25}
CHAINS: dict[str, list[Any]] = {
    "adaptive-qsgd": ["qsgd", ADAPTIVE],
    "clip-random_k": [{"name": "random_k", "fraction": 0.3}, {"name": "clip", "bound": 0.2}],
    "adaptive-top_k": [ADAPTIVE, TOP_K],
    "sign": ["sign"],
}


def made(world: Timeline | None = None, algorithm: Any = "fedavg", rounds: int = 3, **values: Any) -> Federation:
    chosen = settings(algorithm=algorithm, local=PLAIN, **values)
    return federation(chosen, world or steady(SIZES, rounds), vectors())


def after(fed: Federation, state: RunState, rounds: int = 1) -> tuple[RunState, list[RoundRecord]]:
    """Some rounds of another process, from a saved state."""
    return run_rounds(fed, rounds, restored_state(fed.parts, state.tensors()))


@pytest.mark.parametrize(
    "links",
    [
        [{"name": "clip", "bound": None}, {"name": "qsgd", "levels": None}],
        [{"name": "clip", "bound": 1e6}],
        [{"name": "clip", "bound": 1e6, "quantile": 0.99, "rate": 1e-3}],
        [{"name": "top_k", "fraction": 1.0}],
        [{"name": "random_k", "fraction": 1.0, "error_feedback": True}],
    ],
    ids=["null", "long", "adaptive", "top_k", "random_k"],
)
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_links_that_change_nothing_are_no_links_to_the_bit(algorithm: str, links: list[Any]) -> None:
    assert largest_gap(models(made(algorithm=algorithm, uplink=links)), models(made(algorithm=algorithm))) == 0.0


@pytest.mark.parametrize("algorithm", ["fedrep", "fedper", "lg_fedavg", "fedbabu"])
@pytest.mark.parametrize("link", ["qsgd", "sign"])
def test_norms_are_those_of_the_tensors_that_are_sent(algorithm: str, link: str) -> None:
    links = [{"name": link, "scope": "tensor", "error_feedback": False}]
    fed = made(algorithm=algorithm, uplink=links, model={"name": "mlp", "widths": [4]})
    shared = fed.parts.algorithm.shared(fed.parts.layout)
    assert shared is not None
    sent: Any = fed.parts.links[0]
    sizes = [slot.stop - slot.start for slot in fed.parts.layout.parameters if bool(shared[slot.start])]
    assert sent.sizes(sum(sizes)) == sizes
    _, records = run_rounds(fed, 1)
    assert records[0].row["compression_error"] > 0


def test_an_update_that_no_link_changes_arrives_to_the_bit_beside_others_that_are_changed() -> None:
    fed = made(uplink=[{"name": "clip", "bound": 0.5}], algorithm="fedacg")
    seen = watch(fed)
    _, records = run_rounds(fed)
    long = torch.tensor([record.clients["clip_factor"] for record in records]) < 1
    assert 0 < int(long.sum()) < long.numel()
    for (r, _), clipped in zip(seen, long, strict=True):
        assert (r.trained.W != r.W).any(1).tolist() == clipped.tolist()


@pytest.mark.parametrize(
    ("hook", "found"),
    [("apply", {"norm": 1.0}), ("apply", {"norm": torch.zeros(2, 1)}), ("finish", {"share": "all"}), ("finish", None)],
)
def test_what_a_link_returns_is_checked(hook: str, found: Any) -> None:
    fed = made(uplink=["clip"])
    setattr(fed.parts.links[0], hook, lambda *_: found)
    with pytest.raises(PluginError, match=f"{hook} of clip should return"):
        run_rounds(fed)
    fed.parts.workers.close()


@pytest.mark.parametrize("links", CHAINS.values(), ids=CHAINS)
def test_any_number_of_processes_gives_the_same_run(links: list[Any]) -> None:
    compare("fedavg", "threads", 3, PLAIN, communication=False, uplink=links)


def test_a_bound_that_follows_a_quantile_needs_no_rows_of_others() -> None:
    """Processes exchange a column in each round, for the bound and for the record, but no updates."""
    with_links, without = (
        compare("fedavg", "threads", 2, PLAIN, communication=False, uplink=links).sent for links in ([ADAPTIVE], [])
    )
    assert with_links - without == 2 * 3 * len(SIZES)


@pytest.mark.parametrize("links", CHAINS.values(), ids=CHAINS)
def test_a_resumed_run_is_the_same(links: list[Any]) -> None:
    chosen = settings(local=PLAIN, uplink=links)
    assert_resumes((chosen, steady(SIZES, 3), vectors()))


def test_a_client_that_leaves_takes_its_error_along() -> None:
    """Client 1 is away in the third of four rounds, and comes back as a new one."""
    here = {client: client for client in range(5)}
    world = timeline(deal(SIZES), [here, here, {k: k for k in here if k != 1}, here])
    state, first = run_rounds(made(world, uplink=[TOP_K]), 2)
    kept = float(length(state.memory["uplink.top_k.error"])[1])
    state, records = after(made(world, uplink=[TOP_K]), state)
    assert float(length(state.memory["uplink.top_k.error"])[1]) == 0.0
    assert kept > 0.01
    assert records[0].row["error_lost"] == pytest.approx(kept)
    assert first[1].row["error_lost"] == 0.0
    _, last = after(made(world, uplink=[TOP_K]), state)
    assert last[0].clients["error_age"] == [1.0, 0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("on_session_start", ["reset", "keep"])
def test_the_bound_continues_over_sessions_and_errors_as_other_memories(on_session_start: str) -> None:
    here = {client: client for client in range(5)}
    world = timeline(deal(SIZES), [here] * 4, session_of_round=[0, 0, 1, 1])
    values: dict[str, Any] = {"uplink": [ADAPTIVE, TOP_K], "client_state": {"on_session_start": on_session_start}}
    state, _ = run_rounds(made(world, **values), 2)
    bound, kept = (
        float(state.features["uplink"]["clip"]["bound"]),
        float(length(state.memory["uplink.top_k.error"]).sum()),
    )
    _, records = after(made(world, **values), state)
    assert records[0].row["clip_bound"] == bound != 0.1
    reset = on_session_start == "reset"
    assert records[0].clients["error_age"] == [0.0 if reset else 1.0] * 5
    assert records[0].row["error_lost"] == pytest.approx(kept if reset else 0.0)


def test_gradient_rounds_use_the_bound_as_it_is() -> None:
    fed = made(uplink=[ADAPTIVE, TOP_K])
    state, _ = run_rounds(made(uplink=[ADAPTIVE, TOP_K]), 2)
    before, clip, seen = state.features["uplink"]["clip"]["bound"].clone(), fed.parts.links[0], list[float]()
    apply = clip.apply
    clip.apply = lambda D, s: seen.append(float(s.extra["bound"])) or apply(D, s)  # type: ignore
    with torch.no_grad():
        GradientRounds(fed.parts, state, 0).train(state.w, state.b, 2, 0.1, None, None)
    fed.parts.workers.close()
    assert seen == [float(before)] * 2
    assert seen[0] != 0.1
    assert torch.equal(state.features["uplink"]["clip"]["bound"], before)


@pytest.mark.slow
def test_results_of_jobs_are_clipped_and_compressed() -> None:
    links = [{"name": "clip", "bound": None}, {"name": "random_k", "fraction": 1.0}]
    buffered = {"name": "fedbuff", "buffer": 3}
    assert largest_gap(events(buffered, 4, EQUAL, uplink=links), events(buffered, 4, EQUAL)) == 0.0
    assert largest_gap(events(buffered, 4, EQUAL, uplink=[ADAPTIVE, "qsgd"]), events(buffered, 4, EQUAL)) > 1e-3


def test_memories_are_forgotten_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All clients at once need not fit into memory."""
    fed, sizes = made(uplink=[TOP_K]), list[int]()
    state, _ = run_rounds(fed, 1)
    fed.parts.links[0].forget = lambda gone: sizes.append(len(gone.error))  # type: ignore[method-assign]
    monkeypatch.setattr("fedtide.federation.features.uplink._NUMBERS", 2 * (18 + 1))
    one(fed.parts, Uplink).forget(fed.parts, state, torch.arange(5), left=False)
    assert sizes == [2, 2, 1]
