"""The parts of the benchmark: which competitors take turns, and which is compared with which."""

import importlib.util
import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from competitors import alone, assembled, bare, disagreement, library, naive, products, without_torchscript
from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.federation.types import Parts
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.training.resources.workers import available_cores
from timing import EXTRA, Ratio, RoundClock, Segment, Times, peak_bytes, take_turns
from workloads import WORKLOADS, Workload, crowd

COHORTS = (10, 100, 1000)
SAVING = 10  # rounds between two saved states, in the row about them
SHORT = 2  # rounds of a run that is not timed


@dataclass
class Row:
    """One competitor against another.

    Attributes:
        part, name, against: of the benchmark, and of the two competitors.
        seconds, reference: per round of both, one pair of figures per turn.
        executor: of the library. difference: between the models of both sides, see :func:`competitors.disagreement`.
        peaks: bytes that each of both needs at most, by kind of memory.
    """

    part: str
    name: str
    against: str
    seconds: list[Times]
    reference: list[Times]
    executor: str = ""
    difference: float | None = None
    peaks: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def speed(self) -> Ratio:
        """How many times as fast as the reference."""
        return Ratio.of((times.wall for times in self.reference), (times.wall for times in self.seconds))

    @property
    def work(self) -> Ratio:
        """Processor time as a multiple of the reference's."""
        return Ratio.of((times.processor for times in self.seconds), (times.processor for times in self.reference))

    def figures(self) -> dict[str, Any]:
        """Everything, for the JSON file."""
        return {**asdict(self), "speed": asdict(self.speed), "work": asdict(self.work)}


@dataclass(frozen=True)
class Bench:
    """How to measure.

    Attributes:
        scratch: folder for data and run directories. engine: group of settings. turns: of the competitors.
        quick: few rounds instead of enough. small: the smallest workloads. log: gets remarks.
    """

    scratch: Path
    engine: dict[str, Any]
    turns: int
    quick: bool
    small: bool
    log: Callable[[str], None]

    def sized(self, workload: Workload) -> Workload:
        """A workload as large as it is measured."""
        return workload.small if self.small else workload

    def raw(self, workload: Workload, timed: int = 0, **changes: Any) -> dict[str, Any]:
        """Settings of a run as in the settings file, with at least ``timed`` timed rounds."""
        timed = max(timed, workload.timed // 3 if self.quick else workload.timed, 1)
        engine = {**self.engine, **changes.pop("engine", {})}
        return workload.raw(self.scratch / "data", timed + EXTRA, engine=engine, **changes)

    def settings(self, workload: Workload, timed: int = 0, **changes: Any) -> RunSettings:
        """The same, validated."""
        return Params(self.raw(workload, timed, **changes)).run()


def executor_of(world: Parts) -> str:
    """Name and workers, as in the log of a run."""
    return f"executor {type(world.executor).__name__.lower()}, workers: {world.workers.count}"


def measure_workload(bench: Bench, workload: Workload) -> list[Row]:
    """The library against the plain loop, and what lies around the training.

    ``no TorchScript``: traced graphs run as Python calls, as on a torch that has no TorchScript. ``tested``: 10,000 test
    samples after every round. ``bare rounds``: without Lightning and records. ``products alone``: the matrix products of the
    local steps, on the same workers or one. ``state saved``: with the run's state written every ten rounds. ``state and
    MLflow``: with the mirror too, which is everything around the training.
    """
    world = assembled(bench.settings(workload))
    tested = bench.settings(workload, evaluation={"every": 1})
    competitors: dict[str, Segment] = {
        "fedtide": library(bench.settings(workload), bench.scratch),
        "naive": naive(world),
        "fedtide, tested": library(tested, bench.scratch),
        "naive, tested": naive(world, evaluate=True),
    }
    pairs = [("fedtide", "naive"), ("fedtide, tested", "naive, tested")]
    if world.hardware.device.type == "cpu":
        competitors["no TorchScript"] = without_torchscript(competitors["fedtide"])
        pairs += [("no TorchScript", "fedtide")]
    if world.hardware.device.type == "cpu" and available_cores() > 1:
        competitors["fedtide, one core"] = library(bench.settings(workload, engine={"workers": 1}), bench.scratch)
        pairs += [("fedtide, one core", "naive")]
    if workload.surroundings:
        saving = bench.settings(workload, timed=SAVING, checkpoint={"every": SAVING})
        competitors["bare rounds"] = bare(world)
        competitors[f"state saved / {SAVING}"] = library(saving, bench.scratch)
        pairs += [(name, "fedtide") for name in ("bare rounds", f"state saved / {SAVING}")]
        if world.hardware.device.type == "cpu":
            competitors["products alone"] = products(world)
            competitors["products, one core"] = products(assembled(bench.settings(workload, engine={"workers": 1})))
            pairs += [("products alone", "fedtide"), ("products alone", "products, one core")]
        if importlib.util.find_spec("mlflow"):
            competitors["state and MLflow"] = library(saving, bench.scratch, bench.scratch / "mlruns")
            pairs += [("state and MLflow", "bare rounds")]
    executor, difference = executor_of(world), disagreement(world, SHORT)
    found = take_turns(competitors, bench.turns)
    world.workers.close()
    return [Row(workload.name, name, other, found[name], found[other], executor, difference) for name, other in pairs]


def measure_cohorts(bench: Bench) -> list[Row]:
    """Growing cohorts, with the memory of either side in a process of its own."""
    rows = []
    for model, cohort in itertools.product(("mlp", "softmax_regression"), COHORTS[:1] if bench.small else COHORTS):
        workload = bench.sized(crowd(model, cohort))
        world = assembled(bench.settings(workload))
        executor = executor_of(world)
        sides: dict[str, Segment] = {
            "fedtide": library(bench.settings(workload), bench.scratch),
            "naive": naive(world),
        }
        found = take_turns(sides, bench.turns)
        world.workers.close()
        brief = bench.raw(workload, scenario={"rounds": SHORT})
        own, other = (peak_bytes(alone, name, brief) for name in sides)
        peaks = {kind: (own[kind], other[kind]) for kind in own}
        rows.append(Row("cohorts", workload.name, "naive", found["fedtide"], found["naive"], executor, peaks=peaks))
    return rows


def measure_clock(bench: Bench) -> list[Row]:
    """Asynchronous training against FedAvg with as many local steps: ten results per update, or ten updates of one."""
    rows = []
    for workload in map(bench.sized, (WORKLOADS["W1"], crowd("mlp", 10), crowd("softmax_regression", 10))):
        updates = {"fedbuff": 1, "fedasync": workload.cohort}  # that are made of as many results as a round
        competitors = {"fedavg": library(bench.settings(workload), bench.scratch)}
        for name, each in updates.items():
            raw = bench.raw(workload, timed=each * workload.timed, mode={"name": "async"}, algorithm={"name": name})
            competitors[name] = library(Params({**raw, "participation": "all"}).run(), bench.scratch)
        found = take_turns(competitors, bench.turns)
        for name, each in updates.items():
            seconds = [Times(each * wall, each * processor) for wall, processor in found[name]]
            rows.append(Row("clock", f"{name}, {workload.name}", "fedavg", seconds, found["fedavg"]))
    return rows


def measure_algorithms(bench: Bench) -> list[Row]:
    """Every algorithm there is, with its defaults, against FedAvg."""
    workload = bench.sized(WORKLOADS["W1"])
    competitors: dict[str, Segment] = {}
    for name in plugins.names("algorithms"):
        chosen = {"name": name}
        try:
            library(bench.settings(workload, scenario={"rounds": 1}, algorithm=chosen), bench.scratch)(RoundClock())
        except SettingsError as error:
            bench.log(f"algorithm {name} left out: {error}")
            continue
        competitors[name] = library(bench.settings(workload, algorithm=chosen), bench.scratch)
    found = take_turns(competitors, bench.turns)
    return [Row("algorithms", name, "fedavg", found[name], found["fedavg"]) for name in competitors if name != "fedavg"]


def measure_links(bench: Bench) -> list[Row]:
    """FedAvg whose updates pass links on their way, against FedAvg."""
    chains = [[], ["clip"], *(["clip", name] for name in ("qsgd", "top_k", "random_k", "sign"))]
    workload = bench.sized(WORKLOADS["W1"])
    competitors = {", ".join(chain): library(bench.settings(workload, uplink=chain), bench.scratch) for chain in chains}
    found = take_turns(competitors, bench.turns)
    return [Row("links", name, "fedavg", found[name], found[""]) for name in competitors if name]
