"""The final model of a recorded run, scored on another population or split."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.federation.module import FederatedModule
from fedtide.federation.scoring.owned_samples import OwnedSamples
from fedtide.federation.scoring.served import ServedModels
from fedtide.federation.state import initial_state
from fedtide.federation.types import Parts
from fedtide.records.client_models import listed
from fedtide.records.run_directory import ENCODING, MODEL, RunDirectory, read_json
from fedtide.records.summary import predicts
from fedtide.runs.lightning.trainer import device_of, quiet_lightning
from fedtide.settings.params import Params, parse
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

_KEPT = (*OTHERS, "model", "objective", "seed", "engine")
_EVALUATION = ("splits", "metrics", "batch_size")


def evaluate(path: Path, overrides: Sequence[str], log: Callable[[str], None] = print) -> dict[str, float | None]:
    """Scores of the final global model of a run after the last round of the world that its settings and ``overrides`` describe.

    Named as in ``history.csv``: ``<split>_<score>``, with ``served_`` over rows that have owners. Nothing is written but
    the prepared dataset.

    Raises:
        SettingsError: there is no such run or no global model, or the settings describe other samples or another model.
    """
    settings, own = read_json(path / "settings.json"), read_json(path / "manifest.json")
    if settings is None or own is None:
        raise SettingsError(f"{path}: not a run directory")
    directory = RunDirectory(path)
    directory.verify("settings.json", "manifest.json", ENCODING, MODEL)
    summary = directory.summary() or {}
    if not (path / MODEL).is_file() or not predicts(summary):
        raise SettingsError(f"{path}: no final global model, the run is {summary.get('state', 'unfinished')}")
    for item in overrides:
        if (key := item.partition("=")[0].strip().partition(".")[0]) not in OTHERS:
            raise SettingsError(f"--set {item}: {key} is that of the run; choose among {', '.join(OTHERS)}")
    raw = {key: settings[key] for key in _KEPT if key in settings} | {"costs": {"wireless": False}}
    raw["evaluation"] = {key: value for key, value in settings["evaluation"].items() if key in _EVALUATION}
    chosen = Params.read(raw, overrides).run()
    data = load_data(chosen)
    refuse_other_task(data, chosen)
    if data.digest != own["data"]:
        scaled = _refuse_other_samples(path, settings["data"]["name"], data)
        log(f"other data or another split than the run's: it may have trained on rows that are held out here{scaled}")
    if summary.get("served"):
        log("the run serves its clients models of their own; the global model is scored")
    with quiet_lightning():
        module = FederatedModule(chosen, timeline_for(chosen, data), data).to(device_of(chosen))
        module.build()
    try:
        return scores(module.parts, *_values(module.parts, path / MODEL))
    finally:
        module.parts.workers.close()


def scores(parts: Parts, w: Tensor, b: Tensor) -> dict[str, float | None]:
    """Scores of a model, parameters [d] and floating buffers [q], after the last round."""
    evaluator, timeline, found = parts.evaluator, parts.timeline, dict[str, float | None]()
    t, state = timeline.rounds - 1, initial_state(parts)
    state.w, state.b = w, b
    owned, view = OwnedSamples(ServedModels(parts)), timeline.labels_at(t)
    held_out, mixture = timeline.evaluated_at(t), timeline.mixture_at(t)
    for split in evaluator.settings.splits:
        row = evaluator.scores((w, b), split, None, held_out, mixture).row(view)
        row |= evaluator.metrics((w, b), split, held_out, mixture)
        if split in owned.splits:
            row |= owned.rows(state, t, split, [held_out])[0]
        found |= {f"{split}_{name}": value for name, value in row.items()}
    return found


def _refuse_other_samples(path: Path, name: str, data: Dataset) -> str:
    """Refuse samples with other features or classes than the run's; what is to be said about the scales of the features."""
    stored, now = read_json(path / ENCODING), data.encoding
    if stored is None or not isinstance(now, Encoding):
        if data.name != name:
            raise SettingsError(f"data = {data.name}: the run in {path} was trained on {name}")
        return ""
    known: Encoding = parse(Encoding, stored, f"{path / ENCODING} is damaged")
    if other := {*now.features, *now.outputs} ^ {*known.features, *known.outputs}:
        raise SettingsError(f"data = {data.name}: other features or classes than in {path}: {listed(other)}")
    return "" if now.columns == known.columns else ", and their features are scaled on other rows"


def _values(parts: Parts, weights: Path) -> tuple[Tensor, Tensor]:
    """The parameters [d] and floating buffers [q] in a file of a run."""
    stored, name = torch.load(weights, weights_only=True), parts.network.stored_name
    try:
        flat = [
            torch.cat([like[:0], *(stored[name(slot.name)].reshape(-1).to(like) for slot in slots)])
            for slots, like in ((parts.layout.parameters, parts.w0), (parts.layout.buffers, parts.b0))
        ]
        same = all(torch.equal(value, stored[key]) for key, value in parts.named(*flat).items())
    except (KeyError, RuntimeError):
        same = False
    if not same:
        raise SettingsError(
            f"{weights}: not a model for these samples and classes, or for the current code of the model"
        )
    return flat[0], flat[1]
