"""Gradient-boosted trees on the rows that clients train on, scored on the held-out rows of the runs: baselines for tables."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.multioutput import MultiOutputRegressor
from torch import Tensor

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import folder, write_text
from fedtide.federation.scoring.evaluator import part_of
from fedtide.records.measures.metrics import mean_std
from fedtide.runs.display.progress import UNWATCHED, Watch
from fedtide.settings.params import Params
from fedtide.training.engine.passes.metrics import measure, recorded
from fedtide.world.building.build import timeline_for
from fedtide.world.dataset import Dataset, Split, refuse_other_task
from fedtide.world.storage.prepared import load_data
from fedtide.world.timeline import HeldOut, Timeline

FILE = "trees.csv"
_LEAF = 20  # scikit-learn's default: a tree on fewer than twice as many rows is a constant
_LEAST = 1e-15  # probability of a class that the training rows lack, so that the loss is finite


class Baseline(StrEnum):
    """Whose rows a model is fitted on."""

    pooled_trees = "pooled_trees"
    local_trees = "local_trees"


def trees(
    params: Params,
    out: Path,
    baselines: Sequence[Baseline] = tuple(Baseline),
    worlds: Path | None = None,
    watch: Watch = UNWATCHED,
) -> pd.DataFrame:
    """Scores by ``baseline``, ``seed`` and ``session`` (from 1), written to ``trees.csv`` in the folder ``out``.

    For every seed of ``compare.seeds`` and at the end of every session, ``pooled_trees`` is one model fitted on all rows that
    clients have held so far, those of departed clients included, and ``local_trees`` a model per client on its own. Columns
    ``<split>_<score>`` are those of ``history.csv``; of ``local_trees``, each row is predicted by its owner's model, as in the
    columns ``<split>_served_<score>`` of a run.

    Raises:
        SettingsError: the data are not rows of numbers, or the settings have no such baseline; nothing was fitted.
    """
    runs = [params.run(seed=seed) for seed in params.experiment.compare.seeds]
    data = load_data(runs[0])
    refuse_other_task(data, runs[0])
    if data.kind != "vector" or data.task == "multilabel":
        what = "multilabel tasks are not supported" if data.kind == "vector" else f"not samples of kind {data.kind}"
        raise SettingsError(f"data {data.name}: trees are fitted on rows of a table with one label; {what}")
    if runs[0].drift.name != "none":
        raise SettingsError(f"drift = {runs[0].drift.name}: trees are fitted on the rows as they are; use drift none")
    timelines = [timeline_for(settings, data, worlds) for settings in runs]
    owned = data.origins.train_client is not None and len(timelines[0].origin_of_client) > 0
    if Baseline.local_trees in baselines and not owned:
        cure = "use partition natural and data with owners, or --only pooled_trees"
        raise SettingsError(f"partition = {runs[0].partition.name}: local_trees score rows by their owners; {cure}")
    folder(out)
    rows = list[dict[str, Any]]()
    for settings, timeline in zip(runs, timelines, strict=True):
        fitted = _Fitted(data, timeline, settings.seed, settings.evaluation.metrics)
        for session, t, held in _sessions(timeline):
            for baseline in baselines:
                row = {"baseline": baseline.value, "seed": settings.seed, "session": session + 1}
                rows.append(row | fitted.scores(baseline, t, held, settings.evaluation.splits))
            watch.log(f"seed {settings.seed}: session {session + 1} of {timeline.period_of_round[-1] + 1}")
    frame = pd.DataFrame(rows)
    write_text(out / FILE, frame.to_csv(index=False, lineterminator="\n"))
    return frame


def means(frame: pd.DataFrame) -> dict[str, dict[str, tuple[float, float]]]:
    """Mean and standard deviation over seeds of the mean over sessions, by baseline and column; the last has no next one."""
    columns = list(frame.columns[frame.columns.get_loc("rows") + 1 :])
    each = frame.groupby(["baseline", "seed"], sort=False)[columns].mean()
    return {
        str(name): {column: mean_std(group[column]) for column in columns}
        for name, group in each.groupby(level="baseline", sort=False)
    }


def _sessions(timeline: Timeline) -> Iterator[tuple[int, int, dict[int, Ints]]]:
    """Number and last round of each session, and the training rows that each client has held until then."""
    held, known, starts = dict[int, Ints](), set[tuple[int, int]](), timeline.period_starts
    for session, (first, end) in enumerate(zip(starts, [*starts[1:], timeline.rounds], strict=True)):
        for number in np.unique(timeline.assignment_of_round[first:end]):
            present = timeline.assignments[number]
            new = set(zip(present.clients.tolist(), present.shards.tolist(), strict=True)) - known
            for client, shard in new:
                held[client] = np.union1d(held.get(client, np.zeros(0, dtype=np.int64)), timeline.shards[shard])
            known |= new
        yield session, int(end) - 1, held


class _Fitted:
    """Fits the baselines of one seed, and scores them."""

    def __init__(self, data: Dataset, timeline: Timeline, seed: int, metrics: Sequence[str]) -> None:
        self._data, self._timeline, self._seed, self._metrics = data, timeline, seed, metrics

    def scores(self, baseline: Baseline, t: int, held: dict[int, Ints], splits: Sequence[str]) -> dict[str, Any]:
        """The row of a session that ends with round ``t``, without its keys."""
        timeline, pooled = self._timeline, np.unique(np.concatenate(list(held.values())))
        ahead, found = timeline.evaluated_ahead_at(t), dict[str, Any]()
        tested = [(split, "", self._samples(split, timeline.evaluated_at(t))) for split in splits]
        if ahead is not None:
            tested += [(split, "_next", self._samples(split, ahead)) for split in splits]
        inputs = np.concatenate([samples[0] for *_, samples in tested])
        if baseline is Baseline.pooled_trees:
            outputs = self._fit(pooled, inputs)
        else:
            owners = np.concatenate([samples[2] for *_, samples in tested])
            outputs = self._fit(pooled, inputs, constant=True)  # of owners that have held no rows so far
            for client, rows in held.items():
                own = owners == timeline.origin_of_client[client]
                if own.any() and len(rows):
                    outputs[own] = self._fit(rows, inputs[own])
        parts = torch.split(outputs, [len(samples[0]) for *_, samples in tested])
        for (split, end, (_, labels, _)), values in zip(tested, parts, strict=True):
            row = self._row(values, labels, timeline.labels_at(t))
            found |= {f"{split}_{name}{end}": value for name, value in row.items()}
        return {"rows": len(pooled), **found}

    def _row(self, outputs: Tensor, labels: Tensor, view: Bools) -> dict[str, float | None]:
        """Recorded scores, over the labels that the session evaluates, and ``evaluation.metrics``."""
        task = self._data.task
        seen = torch.from_numpy(view)[labels] if task == "classification" else slice(None)
        return recorded(task, outputs[seen], labels[seen]) | measure(self._metrics, outputs, labels)

    def _samples(self, split: str, held_out: HeldOut | None) -> tuple[NDArray[Any], Tensor, Ints]:
        """Inputs [n, q], labels and owners of held-out rows, as :meth:`Evaluator.samples` has them."""
        if held_out is None:
            tested = np.arange(self._data.size("test"), dtype=np.int64)
            held_out = HeldOut(tested, self._timeline.validation)
        positions = held_out.test if split == "test" else held_out.validation
        parts: list[tuple[Split, Ints]] = [(part_of(split), positions)]
        parts += [("train", held_out.train)] if split == "test" else []
        read = [self._read(part, some) for part, some in parts]
        origins = {"train": self._data.origins.train_client, "test": self._data.origins.test_client}
        owners = [np.full(len(some), -1) if (of := origins[part]) is None else of[some] for part, some in parts]
        inputs, labels = (torch.cat(each) for each in zip(*read, strict=True))
        return inputs.numpy(), labels, np.concatenate(owners)

    def _read(self, part: Split, positions: Ints) -> tuple[Tensor, Tensor]:
        inputs, labels = self._data.read(part, torch.from_numpy(positions))
        if self._data.task == "regression":
            labels = labels.reshape(len(labels), self._data.outputs).to(torch.float64)
        return self._data.prepare(inputs, torch.float64), labels

    def _fit(self, rows: Ints, inputs: NDArray[Any], constant: bool = False) -> Tensor:
        """Outputs [n, L] for inputs of a model of training rows: log probabilities, or predictions of the targets."""
        x, labels = self._read("train", rows)
        constant = constant or len(rows) < 2 * _LEAF
        if self._data.task == "regression":
            trees = MultiOutputRegressor(HistGradientBoostingRegressor(random_state=self._seed))
            model = DummyRegressor() if constant else trees
            return torch.from_numpy(model.fit(x.numpy(), labels.numpy()).predict(inputs)).reshape(
                len(inputs), self._data.outputs
            )
        classes, counts = np.unique(labels.numpy(), return_counts=True)
        # Early stopping, scikit-learn's default above 10,000 rows, holds out rows of every class.
        stopping: Any = "auto" if counts.min() > 1 else False
        trees = HistGradientBoostingClassifier(early_stopping=stopping, random_state=self._seed)
        model = DummyClassifier() if constant or len(classes) == 1 else trees
        found: Floats = np.zeros((len(inputs), self._data.num_classes))
        found[:, classes] = model.fit(x.numpy(), labels.numpy()).predict_proba(inputs)
        return torch.from_numpy(np.log(np.maximum(found, _LEAST)))
