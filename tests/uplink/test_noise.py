"""Noise in sums of clipped updates: what is added, what it costs each client, and what it does not go with."""

import csv
import json
import math
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from commands import Fedtide, fedtide, folder, shared_data
from federation.test_ranks import SIZES, compare
from federation.test_uplink import models
from fedtide.authoring.rounds import assert_resumes
from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.randomness import generator
from fedtide.federation.assembly.footprint import advice
from fedtide.federation.federation import Federation
from fedtide.methods.accounting import gaussian
from fedtide.methods.accounting.mechanisms import Banded, Blt, square_root
from fedtide.methods.algorithms.base import Vectors
from fedtide.methods.uplink.base import Sending
from fedtide.world.participation.base import Participation
from fedtide.world.timeline import Timeline
from small_runs import execute, small
from support import deal, federation, largest_gap, run_rounds, settings, steady, timeline, vectors, watch
from uplink.passing import length

__all__ = ["fedtide", "folder", "shared_data", "small"]

PLAIN = {"epochs": 2, "batch_size": 3, "lr": 0.2}
ADAPTIVE = {"name": "clip", "quantile": 0.5, "rate": 1.0, "bit_noise": 2.0}
CLIP = {"name": "clip", "bound": 0.3}
BLT = {"mechanism": "blt", "decay": [0.9, 0.4], "scale": [0.2, 0.25]}
BANDED = {"mechanism": "banded", "bands": 3}
TREE = {"mechanism": "tree", "restart": 3}
ALL = {"name": "all"}
BERNOULLI = {"name": "bernoulli", "probability": 0.5}


def noise(multiplier: float | None = 0.5, **values: Any) -> dict[str, Any]:
    return {"name": "noise", "multiplier": multiplier, **values}


def made(
    links: list[Any], world: Timeline | None = None, rounds: int = 5, algorithm: str = "fedavg", **values: Any
) -> Federation:
    chosen = settings(
        algorithm={"name": algorithm, "weighting": "uniform"},
        **{"local": PLAIN, "uplink": links, "participation": ALL, **values},
    )
    return federation(chosen, world or steady(SIZES, rounds), vectors())


def added(fed: Federation) -> list[Tensor]:
    """What the noise of each round adds to the mean, [d], from the updates before and after the link."""
    link, apply, found = fed.parts.links[-1], fed.parts.links[-1].apply, list[Tensor]()

    def watched(D: Tensor, s: Sending) -> dict[str, Tensor]:
        before = D.sum(0)
        columns = apply(D, s)
        found.append(D.mean(0) - before / float(link.expected[s.t]))  # type: ignore[attr-defined]
        return columns

    link.apply = watched  # type: ignore[method-assign]
    run_rounds(fed)
    return found


@pytest.mark.parametrize(
    ("values", "algorithm"), [({}, "fedavg"), (TREE, "fedacg"), (BANDED, "fedopt"), (BLT, "fedavg")], ids=str
)
def test_no_noise_is_no_link_to_the_bit(values: dict[str, Any], algorithm: str) -> None:
    silent = made([CLIP, noise(0.0, **values)], algorithm=algorithm)
    assert "uplink noise: multiplier = 0 adds no noise, so the run has no privacy guarantee" in advice(silent.parts)
    assert largest_gap(models(silent), models(made([CLIP], algorithm=algorithm))) == 0.0


@pytest.mark.parametrize("restart", [3, "session"])
@pytest.mark.parametrize(
    ("values", "mechanism"),
    [(BANDED, Banded(square_root(3))), (BLT, Blt(BLT["decay"], BLT["scale"]))],  # type: ignore[arg-type]
    ids=["banded", "blt"],
)
def test_coupled_noise_is_decoded_by_its_strategy(values: dict[str, Any], mechanism: Any, restart: Any) -> None:
    world = timeline(deal(SIZES), [{k: k for k in range(5)}] * 7, session_of_round=[0] * 4 + [1] * 3)
    starts = {3: [0, 0, 0, 3, 3, 3, 6], "session": [0] * 4 + [4] * 3}[restart]
    found = torch.stack(added(made([CLIP, noise(0.5, restart=restart, **values)], world))) * len(SIZES)
    nu = np.stack([generator(0, "uplink.noise", t).standard_normal(18) for t in range(7)])
    decoded = mechanism.encode(found.numpy().T, np.array(starts)).T
    np.testing.assert_allclose(decoded, 0.5 * 0.3 * nu, atol=1e-12)


def test_a_poisson_sample_is_divided_by_its_expected_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no accounting were needed: five clients are too few for it."""
    monkeypatch.setattr("fedtide.methods.uplink.noise.spend", lambda *_: None)
    fed = made([CLIP, noise(0.0)], participation=BERNOULLI)
    seen = watch(fed)
    fed.parts.links[-1].finish = lambda columns, s: {}  # type: ignore[method-assign]
    run_rounds(fed)
    sizes = set()
    for r, w in seen:
        Delta = r.trained.W - r.w
        total = (Delta * (0.3 / length(Delta).unsqueeze(1)).clamp(max=1)).sum(0)
        torch.testing.assert_close(w, r.w + total / 2.5, atol=1e-12, rtol=0)
        sizes.add(len(r.ids))
    assert len(sizes) > 1


CHAINS: dict[str, list[Any]] = {
    "independent": ["qsgd", CLIP, noise()],
    "adaptive": [noise(), ADAPTIVE],
    "tree": [CLIP, noise(**TREE)],
    "banded": [CLIP, {"name": "top_k", "fraction": 0.25}, noise(**BANDED)],
    "blt": [CLIP, noise(**BLT, restart="session")],
}


@pytest.mark.parametrize("links", CHAINS.values(), ids=CHAINS)
def test_any_number_of_processes_adds_the_same_noise_once(links: list[Any]) -> None:
    algorithm = {"name": "fedavg", "weighting": "uniform"}
    compare(algorithm, "threads", 3, PLAIN, communication=False, uplink=links, participation=ALL)


@pytest.mark.parametrize("links", CHAINS.values(), ids=CHAINS)
def test_a_resumed_run_has_the_same_noise(links: list[Any]) -> None:
    assert_resumes((made(links).parts.settings, steady(SIZES, 5), vectors()))


ROWS = st.lists(st.lists(st.floats(width=32), min_size=4, max_size=4), min_size=3, max_size=3)


@given(ROWS, st.booleans())
def test_one_client_moves_a_sum_by_the_bound_at_most(rows: list[list[float]], compressed: bool) -> None:
    """Whatever it sends, infinite numbers included, and whatever compression makes of it."""
    links = [CLIP, *([{"name": "sign", "magnitude": 50.0}] if compressed else []), noise(0.0)]
    fed = federation(
        settings(algorithm={"name": "fedavg", "weighting": "uniform"}, uplink=links, participation=ALL),
        steady([2, 2, 2], 1),
        vectors(6, features=1, classes=2),
    )
    D = torch.tensor(rows, dtype=torch.float64)
    for link in fed.parts.links:
        memory = {name: torch.zeros(3, link.width(name, 4), dtype=torch.float64) for name in link.memory}
        link.apply(D, Sending(0, 3, [0, 1, 2], [0, 1, 2], Vectors(memory), {}, {"clip": {}}, 0, "x", (0,)))
    assert float(length(D).max()) <= 0.3 * (1 + 1e-12)


def moving() -> Timeline:
    """Client 0 is there in all eight rounds, 1 leaves, 2 arrives, 3 comes for a round."""
    here = [{0, 1}, {0, 1}, {0, 1}, {0, 2}, {0, 2}, {0, 2, 3}, {0, 2}, {0}]
    return timeline(deal(SIZES), [{k: k for k in sorted(ids)} for ids in here], clients=5)


@pytest.mark.slow
def test_every_client_has_an_epsilon_of_its_own() -> None:
    fed = made([CLIP, noise(2.0, delta=1e-3)], moving())
    _, records = run_rounds(fed)
    kept: Any = fed.parts.links[-1].guarantees()
    assert kept["participations"] == kept["present"] == [8, 3, 4, 1, 0]
    assert (kept["arrival"][1:4], kept["departure"][1:4]) == ([1, 4, 6], [3, 7, 6])
    assert kept["sensitivity"] == pytest.approx(np.sqrt([8, 3, 4, 1, 0]))
    expected = [float(gaussian.epsilon(math.sqrt(n) / 2, 1e-3)) for n in (8, 3, 4, 1, 0)]
    assert kept["epsilon"] == pytest.approx(expected)
    cumulative = [float(gaussian.epsilon(math.sqrt(n) / 2, 1e-3)) for n in range(1, 9)]
    assert [record.row["epsilon"] for record in records] == pytest.approx(cumulative)


@pytest.mark.parametrize("values", [{}, BANDED], ids=["independent", "banded"])
def test_clients_are_accounted_for_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]) -> None:
    """All of a large population at once need not fit into memory."""
    whole = made([CLIP, noise(2.0, **values)], moving())
    monkeypatch.setattr("fedtide.methods.accounting.spending._NUMBERS", 16)
    split = made([CLIP, noise(2.0, **values)], moving())
    first, second = whole.parts.links[-1], split.parts.links[-1]
    assert first.guarantees() == second.guarantees()
    assert first.spending.after.tolist() == second.spending.after.tolist()  # type: ignore[attr-defined]


@pytest.mark.parametrize("values", [{}, TREE, BANDED, BLT], ids=["independent", "tree", "banded", "blt"])
def test_a_budget_is_that_of_the_client_that_spends_most(values: dict[str, Any]) -> None:
    fed = made([CLIP, noise(None, epsilon=8.0, delta=1e-3, **values)], moving())
    _, records = run_rounds(fed)
    kept: Any = fed.parts.links[-1].guarantees()
    assert max(kept["epsilon"]) == pytest.approx(8.0)
    assert sorted(kept["epsilon"])[-2] < 7.0
    assert records[-1].row["epsilon"] == pytest.approx(8.0)


def test_bands_are_the_fewest_rounds_between_two_participations() -> None:
    world = timeline(deal(SIZES), [{k: k for k in ids} for ids in ([0], [1], [2], [0], [1], [2], [3])], clients=4)
    fed = made([CLIP, noise(mechanism="banded")], world)
    link: Any = fed.parts.links[-1]
    assert link.mechanism.coefficients == square_root(3)
    assert link.guarantees()["sensitivity"][0] == pytest.approx(math.sqrt(2 * (1 + 1 / 4 + 9 / 64)))
    often = made([CLIP, noise(mechanism="banded")])
    assert any("one band is independent noise" in line for line in advice(often.parts))


KNOWN: dict[str, dict[str, Any]] = {
    "active": {},
    "bernoulli": {},
    "dpfl_reference": {},
    "heterogeneous": {"shares": "given", "values": [0.5] * 5},
}


@pytest.mark.parametrize("name", plugins.names("participation"))
def test_only_poisson_samples_are_amplified(name: str) -> None:
    plugin = plugins.load(Participation, name)
    rule = plugin(plugin.Settings(name=name, **KNOWN.get(name, {})))
    assert rule.private is (name != "active")
    assert (rule.rate is not None) is (name == "bernoulli")
    if "shares" in plugin.Settings.model_fields:
        for shares in ("labels", "smallest_label"):
            assert not plugin(plugin.Settings(name=name, shares=shares)).private


@pytest.mark.slow
def test_poisson_samples_are_amplified() -> None:
    pytest.importorskip("dp_accounting")
    from fedtide.methods.accounting import poisson

    world = timeline(deal([1] * 60), [{k: k for k in range(60)}] * 2 + [{k: k for k in range(50)}] * 2)
    fed = made([CLIP, noise(2.0)], world, participation=BERNOULLI)
    _, records = run_rounds(fed)
    kept, delta = fed.parts.links[-1].guarantees(), 60**-1.1
    spent = [poisson.epsilon(0.5, 2.0, rounds, delta) for rounds in (1, 2, 3, 4)]
    assert [record.row["epsilon"] for record in records] == spent
    assert kept["epsilon"] == [spent[3]] * 50 + [spent[1]] * 10
    assert kept["delta"][0] == pytest.approx(delta + (1 + math.exp(spent[3])) * 2 * (0.5**60 + 0.5**50), rel=1e-12)
    assert spent[3] < float(gaussian.epsilon(math.sqrt(2) / 2.0, delta))  # than for two of four rounds known to all
    known = made([CLIP, noise(2.0, mechanism="banded", bands=2)], world, participation=BERNOULLI)
    assert max(known.parts.links[-1].guarantees()["participations"]) == 4
    assert max(known.parts.links[-1].guarantees()["epsilon"]) > 2 * spent[3]


def test_poisson_samples_need_their_library_and_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(
        SettingsError,
        match=r"not installed \(dp_accounting\); in a clone of fedtide: pip install '\.\[dp\]', or use part",
    ):
        made([CLIP, noise()], participation=BERNOULLI)
    monkeypatch.undo()
    pytest.importorskip("dp_accounting")
    with pytest.raises(SettingsError, match=r"participation.probability = 0.5 leaves too many rounds empty"):
        made([CLIP, noise()], participation=BERNOULLI)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no clip": ({"uplink": ["noise"]}, "uplink noise requires clipping; add clip with a bound"),
    "no bound": (
        {"uplink": [{"name": "clip", "bound": None}, "noise"]},
        "uplink noise requires clipping; add clip with a bound",
    ),
    "two budgets": (
        {"uplink": [CLIP, noise(1.0, epsilon=3.0)]},
        "multiplier and epsilon exclude each other; give one of them",
    ),
    "weighting": ({"algorithm": {"weighting": "samples"}}, "algorithm.weighting = samples .* set it to uniform"),
    "second vector": (
        {"algorithm": {"name": "scaffold"}},
        "algorithm scaffold uses more of a client than its clipped update",
    ),
    "steps": (
        {"algorithm": {"name": "fedcm"}, "local": {"epochs": 5}},
        "algorithm fedcm divides updates .* set local.steps instead of local.epochs",
    ),
    "buffers": ({"model": {"name": "resnet18", "norm": "batch"}}, "running statistics .* model.norm: group"),
    "detector": (
        {"detector": {"name": "adwin"}},
        "detector adwin reads the clients' training losses, .* use detector: none",
    ),
    "rule": ({"aggregation": "median"}, "aggregation median is not a sum, .* use aggregation: mean"),
    "gradient rounds": (
        {"initializer": "dynamic"},
        "initializer dynamic uses clients' data .* use previous, average or restart",
    ),
    "labels": (
        {"participation": {"name": "heterogeneous", "shares": "labels"}},
        "participation heterogeneous .* use participation: bernoulli or fixed",
    ),
    "jobs": (
        {"mode": "async", "algorithm": {"name": "fedbuff"}, "participation": "all"},
        "mode: async uses results one by one .* use mode: sync",
    ),
    "communication": (
        {"communication": "intervals"},
        "communication intervals averages inside rounds, .* use communication: per_round",
    ),
    "ensemble": ({"evaluation": {"models": ["ensemble"]}}, "evaluation of the model ensemble .* evaluate global"),
    "attack": (
        {"attack": {"name": "ipm", "share": 0.3}},
        "attack ipm sends updates that depend on other clients' updates",
    ),
    "coupled and adaptive": (
        {"uplink": [{"name": "clip", "quantile": 0.5}, noise(**TREE)]},
        "mechanism = tree requires the same bound in all rounds; set clip.quantile = null",
    ),
    "no budget left": ({"uplink": [ADAPTIVE, noise(4.0)]}, "multiplier = 4 .* twice clip.bit_noise = 2, .* raise"),
    "bit noise alone": ({"uplink": [ADAPTIVE]}, "bit_noise = 2 has no effect without link noise; add noise to uplink"),
    "bit noise of a fixed bound": (
        {"uplink": [{"name": "clip", "bit_noise": 1.0}]},
        "bit_noise = 1 is only used with quantile",
    ),
    "bands": ({"uplink": [CLIP, noise(bands=2)]}, "bands is only used with mechanism banded, not with independent"),
    "both bands": (
        {"uplink": [CLIP, noise(**BANDED, coefficients=[1.0])]},
        "bands and coefficients exclude each other; give one of them",
    ),
    "first band": (
        {"uplink": [CLIP, noise(mechanism="banded", coefficients=[0.0])]},
        "the first one should be above 0",
    ),
    "blt": ({"uplink": [CLIP, noise(mechanism="blt", decay=[0.5])]}, "decay and scale: mechanism blt requires both"),
    "restart": ({"uplink": [CLIP, noise(mechanism="tree", restart=0)]}, "restart = 0: should be 1 or more rounds"),
}


@pytest.mark.parametrize(("values", "message"), REFUSED.values(), ids=REFUSED)
def test_what_it_does_not_go_with_is_one_line_before_anything_is_written(
    fedtide: Fedtide, folder: Path, values: dict[str, Any], message: str
) -> None:
    usual: dict[str, Any] = {"uplink": [CLIP, "noise"], "algorithm": {"name": "fedavg", "weighting": "uniform"}}
    sets = {key: {**usual[key], **value} if key == "algorithm" else value for key, value in values.items()}
    before = sorted(folder.rglob("*"))
    overrides = (("--set", f"{key}={json.dumps(value)}") for key, value in {**usual, **sets}.items())
    found = fedtide("run", *(word for pair in overrides for word in pair))
    assert found.status == 2
    (line,) = found.err
    assert re.search(message, line), line
    assert not [path for path in folder.rglob("*") if path not in before and path.is_file()]


def test_nothing_follows_the_noise() -> None:
    fed = made([CLIP, noise()])
    first, last = fed.parts.links
    with pytest.raises(SettingsError, match="link clip would change single updates after the noise; remove it"):
        last.bind([last, first], fed.parts.layout)


@pytest.mark.slow
def test_the_version_of_the_library_is_recorded(small: Any, tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    chosen = small(
        algorithm={"name": "fedavg", "weighting": "uniform"},
        scenario={"rounds": 1, "num_clients": 12},
        participation={"name": "bernoulli", "probability": 0.8},
        uplink=[CLIP, noise()],
    )
    execute(chosen, tmp_path, "x")
    events = [json.loads(line) for line in (tmp_path / "x" / "events.jsonl").read_text().splitlines()]
    versions = [event["versions"] for event in events if event["event"] == "libraries"]
    assert versions == [{"dp-accounting": version("dp-accounting")}]


def test_what_is_recorded_of_each_client(fedtide: Fedtide, folder: Path) -> None:
    links = "[clip, {name: noise, epsilon: 6, delta: 0.001}]"
    uniform = "algorithm={name: fedavg, weighting: uniform}"
    assert fedtide("run", "--set", f"uplink={links}", "--set", uniform, "--runs", "r").status == 0
    (run,) = (path for path in folder.glob("r/*") if (path / "history.csv").is_file())
    rows = list(csv.DictReader((run / "privacy.csv").open()))
    history = list(csv.DictReader((run / "history.csv").open()))
    assert [row["client"] for row in rows] == [str(client) for client in range(6)]
    assert max(float(row["epsilon"]) for row in rows) == pytest.approx(float(history[-1]["epsilon"]))
    assert float(history[-1]["epsilon"]) == pytest.approx(6.0)
    assert fedtide("check", "r").status == 0
    (run / "privacy.csv").write_text("client\n")
    assert "privacy.csv has 7 instead of" in " ".join(fedtide("check", "r").out)
