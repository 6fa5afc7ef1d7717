"""Gradient-boosted trees on the rows that clients train on, scored on the held-out rows of the runs: baselines for tables."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.multioutput import MultiOutputRegressor
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import folder, write_text
from fedtide.federation.scoring.client_samples import owners, owners_of
from fedtide.federation.types import Parts
from fedtide.runs.display.progress import UNWATCHED, Watch
from fedtide.settings.params import Params
from fedtide.studies.elsewhere import assembled
from fedtide.training.engine.passes.metrics import measure, recorded
from fedtide.world.storage.prepared import load_data
from fedtide.world.timeline import Timeline

FILE = "trees.csv"
BASELINES = ("pooled_trees", "local_trees")
_FEWEST = 40  # rows that scikit-learn's default of 20 rows per leaf can split
_LEAST = 1e-15  # probability of a class that the training rows lack, so that the loss is finite


def trees(
    params: Params,
    out: Path,
    baselines: Sequence[str] = BASELINES,
    worlds: Path | None = None,
    watch: Watch = UNWATCHED,
) -> pd.DataFrame:
    """Scores by ``baseline``, ``seed`` and ``session`` (from 1), written to ``trees.csv`` in the folder ``out``.

    For every seed of ``compare.seeds`` and at the end of every session, ``pooled_trees`` is one model fitted on all rows that
    clients have held so far, those of departed clients included, and ``local_trees`` a model per client on its own, which
    predicts its rows. Columns ``<split>_<score>`` are those of ``history.csv``, ``data`` and ``timeline`` the hashes in
    ``manifest.json``, by which a report knows the runs that a row belongs to.

    Raises:
        SettingsError: the data are not rows of numbers, or the settings have no such baseline; nothing was fitted.
    """
    runs = [params.run(seed=seed) for seed in params.experiment.compare.seeds]
    data = load_data(runs[0])
    if data.kind != "vector" or data.task == "multilabel":
        what = "multilabel tasks are not supported" if data.kind == "vector" else f"not samples of kind {data.kind}"
        raise SettingsError(f"data {data.name}: trees are fitted on rows of a table with one label; {what}")
    if runs[0].drift.name != "none":
        raise SettingsError(f"drift = {runs[0].drift.name}: trees are fitted on the rows as they are; use drift none")
    rows: list[dict[str, Any]] = []
    for settings in runs:
        with assembled(settings, data, worlds) as parts:
            if "local_trees" in baselines and owners(parts.evaluator, "train") is None:
                cure = "use partition natural and data with owners, or --only pooled_trees"
                raise SettingsError(f"partition = {settings.partition.name}: local_trees score rows by owner; {cure}")
            world = {"data": data.digest, "timeline": parts.timeline.digest}
            for session, t, held in _sessions(parts.timeline):
                for baseline in baselines:
                    row = {"baseline": baseline, "seed": settings.seed, "session": session, **world}
                    rows.append(row | _scores(parts, t, held, baseline == "local_trees"))
                watch.log(f"seed {settings.seed}: session {session} of {len(parts.timeline.period_starts)}")
    frame = pd.DataFrame(rows)
    write_text(folder(out) / FILE, frame.to_csv(index=False, lineterminator="\n"))
    return frame


def _sessions(timeline: Timeline) -> Iterator[tuple[int, int, dict[int, Ints]]]:
    """Number from 1 and last round of each session, and the training rows that each client has held until then."""
    held: dict[int, Ints] = {}
    known: set[tuple[int, int]] = set()
    starts = timeline.period_starts
    for session, (first, end) in enumerate(zip(starts, [*starts[1:], timeline.rounds], strict=True), 1):
        for number in np.unique(timeline.assignment_of_round[first:end]):
            here = timeline.assignments[number]
            new = set(zip(here.clients.tolist(), here.shards.tolist(), strict=True)) - known
            for client, shard in new:
                held[client] = np.union1d(held.get(client, np.zeros(0, dtype=np.int64)), timeline.shards[shard])
            known |= new
        yield session, int(end) - 1, held


def _scores(parts: Parts, t: int, held: dict[int, Ints], local: bool) -> dict[str, Any]:
    """The scores of a session that ends with round ``t``."""
    evaluator, timeline, pooled = parts.evaluator, parts.timeline, np.unique(np.concatenate(list(held.values())))
    sets = {"": timeline.evaluated_at(t), "_next": timeline.evaluated_ahead_at(t)}
    wanted = [(split, end) for end in sets for split in evaluator.settings.splits if not end or sets[end] is not None]
    samples = [evaluator.samples(split, sets[end]) for split, end in wanted]
    inputs = torch.cat([each for each, _ in samples])
    found: dict[str, Any] = {"rows": len(pooled)}
    outputs = _fit(parts, pooled, inputs, constant=local)  # of owners that have held no rows so far, if local
    if local:
        whose = np.concatenate([owners_of(evaluator, split, sets[end]) for split, end in wanted])
        for client, rows in held.items():
            own = torch.from_numpy(whose == timeline.origin_of_client[client])
            if own.any() and len(rows):
                outputs[own] = _fit(parts, rows, inputs[own])
    each = torch.split(outputs, [len(labels) for _, labels in samples])
    for (split, end), (_, labels), values in zip(wanted, samples, each, strict=True):
        classes = parts.data.task == "classification"
        seen = torch.from_numpy(timeline.labels_at(t))[labels] if classes else slice(None)
        row = recorded(parts.data, values[seen], labels[seen]) | measure(evaluator.settings.metrics, values, labels)
        found |= {f"{split}_{name}{end}": value for name, value in row.items()}
    return found


def _fit(parts: Parts, rows: Ints, inputs: Tensor, constant: bool = False) -> Tensor:
    """Outputs [n, L] for inputs [n, q] of a model of training rows: log probabilities, or predictions of the targets."""
    x, y = (values.numpy() for values in parts.evaluator.training_samples([rows]))
    constant, seed = constant or len(rows) < _FEWEST, parts.settings.seed
    if not len(inputs):
        return torch.zeros(0, parts.data.outputs, dtype=torch.float64)
    if parts.data.task == "regression":
        trees: Any = MultiOutputRegressor(HistGradientBoostingRegressor(random_state=seed))
        model: Any = DummyRegressor() if constant else trees
        return torch.from_numpy(model.fit(x, y).predict(inputs.numpy())).reshape(len(inputs), -1).double()
    classes, counts = np.unique(y, return_counts=True)
    # Early stopping, scikit-learn's default above 10,000 rows, holds out rows of every class.
    stopping: Any = "auto" if counts.min() > 1 else False
    trees = HistGradientBoostingClassifier(early_stopping=stopping, random_state=seed)
    model = DummyClassifier() if constant or len(classes) == 1 else trees
    found = np.zeros((len(inputs), parts.data.num_classes))
    found[:, classes] = model.fit(x, y).predict_proba(inputs.numpy())
    return torch.from_numpy(np.log(np.maximum(found, _LEAST)))
