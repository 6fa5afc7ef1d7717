"""The commands that the campaign executes, each on a problem that takes a moment."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from fedtide.settings.reading.overrides import deep_merge

PARAMS = """
validation: 0.2
scenario: {name: sessions, num_devices: 3, num_sessions: 3, rounds_per_session: 2, label_overlap: 0.4}
partition: {name: dirichlet_session, alpha: 0.5}
model: {name: softmax_regression}
local: {steps: 1, batch_size: 8, lr: 0.1, momentum: 0.5, momentum_scope: client, schedule: cosine}
engine: {accelerator: cpu, executor: threads, workers: 1}
algorithm: {name: fedprox}
initializer: {name: average}
client_state: {on_session_start: keep}
evaluation: {models: [global, participants, all], every: 1}
checkpoint: {every: 2}
compare: {algorithms: [fedavg, scaffold], initializers: [average, previous], seeds: [0], workers: 2}
tune: {trials: 3, workers: 1, seed: 1000}
tracking: {mlflow: false}
"""
EXPERIMENT = """
experiment:
  title: A tiny table
  source: {paper: Nobody, table: Table 1}
  profiles: {plain: {}}
  transitions: {second: 2}
  measure: {name: transition_accuracy, windows: [2, 1]}
"""


@dataclass(frozen=True)
class Subject:
    """A command and the working directory that it needs.

    Attributes:
        arguments: of ``fedtide``, or a script of the pipeline and its arguments.
        settings: changed groups of params.yaml, as YAML.
        experiment: whether there is an experiment to reproduce.
        repeats: whether two executions agree to the bit; a search by several workers depends on timing.
        share: of the campaign's kills.
    """

    name: str
    arguments: tuple[str, ...]
    settings: str = "{}"
    experiment: bool = False
    repeats: bool = True
    share: float = 1.0

    def prepare(self, folder: Path, data: Path) -> None:
        """Write what a user has before the command is called first."""
        params = deep_merge(yaml.safe_load(PARAMS), yaml.safe_load(self.settings))
        params["data"] = {"name": "digits", "root": str(data), **params.get("data", {})}
        folder.mkdir(parents=True)
        if self.experiment:
            family = folder / "experiments" / "small"
            (family / "profiles").mkdir(parents=True)
            (family / "profiles" / "plain.yaml").touch()
            table = {**yaml.safe_load(EXPERIMENT), **{key: params[key] for key in params if key != "tune"}}
            (family / "tiny.yaml").write_text(yaml.safe_dump(table))
        (folder / "params.yaml").write_text(yaml.safe_dump(params))
        if self.arguments[0].startswith("pipeline/"):
            (folder / "pipeline").symlink_to(Path(__file__).parents[2] / "pipeline")

    @property
    def mlflow(self) -> bool:
        """Whether the command writes MLflow's store."""
        return "mlflow: true" in self.settings


_SMALLER = "scenario: {num_sessions: 2}"
_ONE_PAIR = "compare: {algorithms: [fedavg], initializers: [average, previous]}"
_MLFLOW = "tracking: {mlflow: true}"


def _settings(*groups: str) -> str:
    return "\n".join(groups)


ALL = (
    Subject("run", ("run", "--json"), "algorithm: {name: fedssg}", share=6),
    Subject("run-mlflow", ("run", "--json"), _settings(_MLFLOW, _SMALLER), share=3),
    Subject("compare", ("compare", "--json"), _SMALLER, share=4),
    Subject("compare-mlflow", ("compare",), _settings(_MLFLOW, _SMALLER, _ONE_PAIR), share=2),
    Subject("tune", ("tune",), _SMALLER, share=3),
    Subject("tune-mlflow", ("tune",), _settings(_MLFLOW, _SMALLER), share=1),
    Subject("tune-two", ("tune",), _settings(_SMALLER, "tune: {workers: 2}"), repeats=False, share=2),
    Subject("reproduce", ("reproduce", "tiny"), _settings(_SMALLER, _ONE_PAIR), experiment=True, share=2),
    Subject("train-stage", ("pipeline/train.py", "fedavg"), _SMALLER, share=1),
    Subject("tune-stage", ("pipeline/tune.py",), _SMALLER, share=1),
    Subject("prepare", ("download",), "data: {root: data}", share=1),
    Subject("timeline", ("timeline",), "compare: {seeds: [0, 1]}", share=1),
)
BY_NAME = {subject.name: subject for subject in ALL}
