"""Every preset file is valid settings, and says what its name says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtide.core import plugins
from fedtide.settings.params import Params
from support import preview

PRESETS = Path(__file__).parents[2] / "experiments/fedssg/presets"


def algorithm(label: str) -> Any:
    """The algorithm of a label."""
    chosen = Params.read(PRESETS / "algorithms.yaml").run(algorithm=label).algorithm
    return plugins.load("algorithms", chosen.name)(chosen)


@pytest.mark.parametrize("file", sorted(PRESETS.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_preset_is_valid(file: Path) -> None:
    params = Params.read(file)
    assert params.experiment.algorithms or "partition" in params.raw


def test_the_rule_of_the_main_text_needs_enough_participation() -> None:
    (line,) = algorithm("fedssg_paper_main").advice(preview(participation_fraction=0.02))
    assert line == (
        "algorithm.variant main_text: the penalty's weight starts at alpha / (omega p) = 50: the proximal step diverges"
    )
    assert not algorithm("fedssg_paper_main").advice(preview(participation_fraction=0.15))
    assert not algorithm("fedssg_paper_alg1").advice(preview())


@pytest.mark.parametrize(
    ("label", "values"),
    [
        ("fedssg_paper_main", {"variant": "main_text", "alpha": 1.0, "beta": None, "gate": True, "penalty": True}),
        ("fedssg_paper_alg1", {"variant": "algorithm_1", "beta": None, "penalty": True, "correction": True}),
        ("fedprox_release", {"name": "fedprox", "mu": 2e-4}),
        ("scaffold_release", {"variant": "fedssg"}),
    ],
)
def test_what_a_preset_says(label: str, values: dict[str, Any]) -> None:
    chosen = algorithm(label).settings
    assert {name: getattr(chosen, name) for name in values} == values


def test_disco_weighs_the_participants_of_its_host_and_the_released_fedvra_is_feddyn() -> None:
    chosen = algorithm("feddisco").settings
    assert (chosen.weighting.name, chosen.weighting.a, chosen.weighting.b) == ("feddisco", 0.5, 0.1)
    assert algorithm("fedvra_release").settings == plugins.load("algorithms", "feddyn").Settings()


def shares_by_redrawing(labels: Any, clients: int, concentration: float, seed: int) -> Any:
    """Label shares [clients, L] by the programs' loop: a class is drawn again until one has samples left."""
    rng = np.random.default_rng(seed)
    left, classes = np.bincount(labels), int(labels.max()) + 1
    free, counts = [len(labels) // clients] * clients, np.zeros((clients, classes))
    heights = np.cumsum(rng.dirichlet([concentration] * classes, clients), axis=1)
    while any(free):
        client = int(rng.integers(clients))
        if not free[client]:
            continue
        free[client] -= 1
        for _ in range(1000):
            label = int(np.argmax(rng.random() <= heights[client]))
            if left[label]:
                break
        else:
            label = int(rng.choice(np.flatnonzero(left)))
        left[label] -= 1
        counts[client, label] += 1
    return counts / counts.sum(1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "concentration"), [("did1", 0.3), ("did2", 0.6)])
def test_skewed_partitions_have_the_law_of_the_programs_loop(name: str, concentration: float) -> None:
    """Variance of the label shares, over a few worlds each: the means agree within their errors."""
    labels = np.tile(np.arange(10), 60)
    chosen = Params.read(PRESETS / f"{name}.yaml").run().partition
    partition: Any = plugins.load("partitions", chosen.name)(chosen)
    ours, theirs = [], []
    for seed in range(20):
        parts = partition.deal(labels, 15, 10, seed)
        ours.append(np.var([np.bincount(labels[part], minlength=10) / len(part) for part in parts]))
        theirs.append(np.var(shares_by_redrawing(labels, 15, concentration, seed)))
    error = np.sqrt((np.var(ours) + np.var(theirs)) / 20)
    assert abs(np.mean(ours) - np.mean(theirs)) < 3 * error
    assert error < 0.05 * np.mean(theirs)


def test_stratified_slices_have_equal_class_counts() -> None:
    labels = np.repeat(np.arange(100), 20)
    chosen = Params.read(PRESETS / "iid_cifar100.yaml").run().partition
    parts = plugins.load("partitions", chosen.name)(chosen).deal(labels, 10, 100, 0)  # type: ignore[attr-defined]
    assert all((np.bincount(labels[part], minlength=100) == 2).all() for part in parts)
