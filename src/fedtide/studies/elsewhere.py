"""The final model of a recorded run, scored on another population or split."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.federation.assembly.parts import HeadAlone
from fedtide.federation.module import FederatedModule
from fedtide.federation.scoring.owned_samples import OwnedSamples
from fedtide.federation.scoring.served import ServedModels
from fedtide.federation.state import initial_state
from fedtide.federation.types import Parts
from fedtide.records.client_models import listed
from fedtide.records.final_model import final_network
from fedtide.records.run_directory import ENCODING, MODEL, RunDirectory, read_json
from fedtide.records.summary import predicts
from fedtide.runs.lightning.trainer import device_of, quiet_lightning
from fedtide.settings.params import Params, parse
from fedtide.settings.run import RunSettings
from fedtide.training.engine.flat import flatten
from fedtide.world.adapters.encoding import Encoding
from fedtide.world.building.build import timeline_for
from fedtide.world.dataset import Dataset, refuse_other_task
from fedtide.world.storage.prepared import load_data

OTHERS = (
    "data",
    "validation",
    "long_tail",
    "scenario",
    "partition",
    "participation",
    "drift",
    "world_seed",
    "evaluation",
)
"""Settings that may differ from those of the run."""

_EVALUATION = ("splits", "metrics", "batch_size")


@contextmanager
def assembled(settings: RunSettings, data: Dataset, worlds: Path | None = None) -> Iterator[Parts]:
    """The parts of a run that is not trained; nothing is written."""
    refuse_other_task(data, settings)
    with quiet_lightning():
        module = FederatedModule(settings, timeline_for(settings, data, worlds), data).to(device_of(settings))
        module.build()
    try:
        yield module.parts
    finally:
        module.parts.workers.close()


def evaluate(path: Path, overrides: Sequence[str], log: Callable[[str], None] = print) -> dict[str, float | None]:
    """Scores of the final global model of a run after the last round of the world that its settings and ``overrides`` describe.

    Named as in ``history.csv``: ``<split>_<score>``, with ``served_`` over rows whose owners are served this model.

    Raises:
        SettingsError: there is no such run or no global model, or the settings describe other samples or another model.
    """
    recorded, manifest = (read_json(path / name) for name in ("settings.json", "manifest.json"))
    if recorded is None or manifest is None:
        raise SettingsError(f"{path}: not a run directory")
    directory = RunDirectory(path)
    directory.verify("settings.json", "manifest.json", ENCODING, MODEL)
    summary = directory.summary() or {}
    if not (path / MODEL).is_file() or not predicts(summary):
        raise SettingsError(f"{path}: no final global model, the run is {summary.get('state', 'unfinished')}")
    for item in overrides:
        if (key := item.partition("=")[0].strip().partition(".")[0]) not in OTHERS:
            raise SettingsError(f"--set {item}: {key} is that of the run; choose among {', '.join(OTHERS)}")
    raw = {key: recorded[key] for key in (*OTHERS, "model", "objective", "seed", "engine") if key in recorded}
    raw["evaluation"] = {key: value for key, value in recorded["evaluation"].items() if key in _EVALUATION}
    settings = Params.read(raw | {"costs": {"wireless": False}}, overrides).run()
    data = load_data(settings)
    if data.digest != manifest["data"]:
        _refuse_other_samples(path, recorded["data"]["name"], data)
        log("other data or another split than the run's: it may have trained on rows that are held out here")
    if summary.get("served"):
        log("the run serves its clients models of their own; the global model is scored")
    network, _ = final_network(recorded["model"], path / MODEL, data.input_shape, data.outputs, data.vocabulary)
    with assembled(settings, data) as parts:
        network.constants = parts.network.constants
        trained = network if parts.task.network is parts.network else HeadAlone(network)
        return _scores(parts, *flatten(trained, parts.w0.dtype, parts.w0.device), not summary.get("served"))


def _scores(parts: Parts, w: Tensor, b: Tensor, serves_it: bool) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    evaluator, timeline = parts.evaluator, parts.timeline
    t, state, owned = timeline.rounds - 1, initial_state(parts), OwnedSamples(ServedModels(parts))
    state.w, state.b = w, b
    held_out, mixture = timeline.evaluated_at(t), timeline.mixture_at(t)
    for split in evaluator.settings.splits:
        row = evaluator.scores((w, b), split, None, held_out, mixture).row(timeline.labels_at(t))
        row |= evaluator.metrics((w, b), split, held_out, mixture, timeline.labels_at(t))
        row |= owned.rows(state, t, split, [held_out])[0] if serves_it and split in owned.splits else {}
        found |= {f"{split}_{name}": value for name, value in row.items()}
    return found


def _refuse_other_samples(path: Path, name: str, data: Dataset) -> None:
    stored, now = read_json(path / ENCODING), data.encoding
    if stored is not None and isinstance(now, Encoding):
        known: Encoding = parse(Encoding, stored, f"{path / ENCODING} is damaged")
        if other := {*now.features, *now.outputs} ^ {*known.features, *known.outputs}:
            raise SettingsError(f"data = {data.name}: other features or classes than in {path}: {listed(other)}")
    elif data.name != name:
        raise SettingsError(f"data = {data.name}: the run in {path} was trained on {name}")
