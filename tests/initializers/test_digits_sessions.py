"""How well a session's initial model fits its new population: the default world, real digits, three initializers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedtide.federation.assembly.hardware import Hardware
from fedtide.federation.federation import Federation
from fedtide.federation.state import initial_state
from fedtide.settings.params import Params
from fedtide.world.building.build import timeline_for
from fedtide.world.storage.prepared import load_data
from support import assembled

PARAMS = Path(__file__).parents[2] / "params.yaml"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, dict[str, Any]]]:
    """By initializer and session (from 1): what is recorded of its beginning, and its accuracies per round."""
    place = tmp_path_factory.mktemp("data")
    result: dict[str, dict[int, dict[str, Any]]] = {}
    for name in ("dynamic", "average", "previous"):
        chosen = Params.read(PARAMS, [f"data.root={place}", "costs.wireless=false", "scenario.num_sessions=5"]).run(
            "fedavg", name, 0
        )
        data = load_data(chosen)
        timeline = timeline_for(chosen, data)
        fed = Federation(assembled(chosen, timeline, data, Hardware(dtype=torch.float64)))
        state, sessions = initial_state(fed.parts), result.setdefault(name, {})
        with torch.no_grad():
            for _ in range(timeline.rounds):
                report = fed.run_round(state)
                if report.session:
                    sessions[report.session["session"]] = report.session | {"rounds": []}
                elif not sessions:
                    sessions[1] = {"rounds": []}
                sessions[report.row["session"]]["rounds"].append(report.row["test_accuracy"])
        fed.parts.workers.close()
    return result


def window(session: dict[str, Any]) -> float:
    """Mean accuracy of the first ten rounds."""
    return float(np.mean(session["rounds"][:10]))


@pytest.mark.slow
def test_before_two_groups_are_stored_all_are_the_same_and_know_nothing_of_the_new_labels(found: Any) -> None:
    for session in (2, 3):
        first, *others = (found[name][session] for name in found)
        assert first["test_accuracy"] < 0.02
        assert all(other["rounds"] == first["rounds"] for other in others)


@pytest.mark.slow
@pytest.mark.parametrize("session", range(4, 6))
def test_a_group_that_returns_is_known_to_the_dynamic_model_only(found: Any, session: int) -> None:
    dynamic, average, previous = (found[name][session] for name in ("dynamic", "average", "previous"))
    own = {str(number) for number in range(2, session) if (session - number) % 2 == 0}
    assert sum(dynamic["weights"][number] for number in own) > 0.9999
    for number, distance in dynamic["distances"].items():
        assert distance < 0.5 if number in own else distance > 1.4
    assert dynamic["test_accuracy"] > 0.9
    assert (average["test_accuracy"] > 0.85) == (session % 2 == 0)  # where the store has as many models of either group
    assert previous["test_accuracy"] < 0.4
    assert max(dynamic["rounds"]) - dynamic["rounds"][0] < 0.02
    assert window(dynamic) > window(average) > window(previous) + 0.03
