"""A table of the user's, through the real loader."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

from fedtide.core.errors import SettingsError
from fedtide.world.data.table import Table
from fedtide.world.dataset import restored
from fedtide.world.storage.prepared import load

MONTH = 30 * 86400


def rows(count=300, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "who": rng.choice(["ann", "bob", "cy"], count),
            "when": pd.to_datetime(rng.integers(0, 4 * MONTH, count), unit="s").strftime("%Y-%m-%dT%H:%M:%SZ"),
            "size": rng.normal(5, 2, count).round(3),
            "color": rng.choice(["red", "blue"], count),
            "late": rng.integers(0, 2, count),
        }
    )


def read(tmp_path, frame, **chosen):
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    settings = {"file": str(path), "label": "late", "client": "who", "time": "when", **chosen}
    return load(Table(Table.Settings(**settings)), tmp_path)


def test_rows_know_their_client_and_time(tmp_path):
    frame = rows()
    data = read(tmp_path, frame)
    origins = data.origins
    assert origins.clients == ("ann", "bob", "cy")
    assert len(data.train_labels) + len(data.test_labels) == len(frame)
    assert data.input_shape == (3,)
    seen = {
        (origins.clients[client], int(time), int(label))
        for split in ("train", "test")
        for client, time, label in zip(
            *(getattr(origins, f"{split}_{what}") for what in ("client", "time")),
            getattr(data, f"{split}_labels"),
            strict=True,
        )
    }
    when = pd.to_datetime(frame["when"]).dt.tz_localize(None).to_numpy(dtype="datetime64[s]").astype(int)
    assert seen == set(zip(frame["who"], when.tolist(), frame["late"].tolist(), strict=True))


def test_later_rows_change_nothing_about_earlier_features(tmp_path):
    frame = rows()
    changed = frame.copy()
    later = (pd.to_datetime(frame["when"]) >= "1970-02-01").to_numpy()
    changed.loc[later, "size"] = 1e3
    changed.loc[later, "color"] = "green"
    first, second = read(tmp_path, frame), read(tmp_path, changed)
    early = first.origins.train_time < np.datetime64("1970-02-01", "s").astype(int)
    assert torch.equal(first.train_inputs[early], second.train_inputs[early])
    assert not torch.equal(first.train_inputs[~early], second.train_inputs[~early])


@pytest.mark.parametrize(
    ("edit", "chosen", "message"),
    [
        ({}, {"label": "lat"}, r"data\.label: no column 'lat'.*late"),
        ({"size": "big"}, {}, r"line 5: size is 'big', expected a number"),
        ({"late": "x"}, {}, r"line 5: late is 'x', expected an integer, as most are"),
        ({}, {"classes": ("0", "0", "1")}, r"classes: duplicate class name '0'"),
        ({}, {"time": None, "split": {"by": "time"}}, r"data\.split\.by = 'time' requires samples with timestamps"),
        ({}, {"unit": "steps"}, r"data\.split\.period = 'month' requires times in seconds, but the unit is 'steps'"),
        ({}, {"numeric": ("late",)}, r"data\.numeric: 'late' is the label"),
        ({}, {"numeric": ("size",), "categorical": ("size",)}, r"data\.categorical: 'size' is also listed"),
    ],
)
def test_what_cannot_be(tmp_path, edit, chosen, message):
    frame = rows().astype(object)
    for column, value in edit.items():
        frame.loc[3, column] = value
    with pytest.raises(SettingsError, match=message):
        read(tmp_path, frame, **chosen)


def targets(frame):
    """Numbers to predict and two labels, beside the columns."""
    return frame.assign(weight=2.5 * frame["size"] + 1, big=frame["size"] > 5, red=frame["color"] == "red")


def test_a_regression_has_the_numbers_of_its_columns(tmp_path):
    frame = targets(rows())
    one = read(tmp_path, frame, label="weight", task="regression", target_scale=10, numeric=["size"])
    assert (one.task, one.num_classes, one.outputs) == ("regression", 1, 1)
    found = torch.cat([one.train_labels, one.test_labels])
    assert found.dtype == torch.float32
    assert sorted(found[:, 0].tolist()) == pytest.approx(sorted(frame["weight"] / 10))
    two = read(tmp_path, frame, labels=["weight", "size"], task="regression", target_scale=1, numeric=["late"])
    assert (two.outputs, two.train_labels.shape[1]) == (2, 2)
    assert torch.allclose(two.train_labels[:, 0], 2.5 * two.train_labels[:, 1] + 1)
    each = read(tmp_path, frame, labels=["weight", "size"], task="regression", target_scale=[10, 1], numeric=["late"])
    assert torch.allclose(each.train_labels, two.train_labels / torch.tensor([10.0, 1.0]))
    assert torch.allclose(
        torch.tensor(each.encoding.predictions(each.train_labels).to_numpy()).float(), two.train_labels
    )
    assert read(tmp_path, frame, task="regression", target_scale=1).train_labels.unique().tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="target_scale has 3 values, labels 1"):
        read(tmp_path, frame, task="regression", target_scale=[1, 2, 3])


def test_targets_are_standardized_by_the_training_rows_of_the_first_period(tmp_path):
    frame = targets(rows())
    chosen = {"labels": ["weight", "size"], "task": "regression", "numeric": ["late"]}
    own, plain = read(tmp_path, frame, **chosen), read(tmp_path, frame, target_scale=1, **chosen)
    first = torch.tensor(own.origins.train_time < 31 * 86400)
    assert 0 < first.sum() < len(first)
    known = plain.train_labels[first].double()
    assert torch.tensor(own.standardized).T.numpy() == pytest.approx(
        torch.stack([known.mean(0), known.std(0, correction=0)]).numpy(), rel=1e-6
    )
    for shown, labels in ((own.train_labels, plain.train_labels), (own.test_labels, plain.test_labels)):
        assert torch.allclose(restored(shown, own.standardized).float(), labels, atol=1e-5)
        assert torch.allclose(torch.tensor(own.encoding.predictions(shown).to_numpy()).float(), labels, atol=1e-5)
    file = str(tmp_path / "rows.csv")
    again = load(Table(Table.Settings(file=file, client="who", time="when", **chosen)), tmp_path)
    assert (again.standardized, again.digest) == (own.standardized, own.digest)


@pytest.mark.parametrize(("scale", "said"), [(100, True), ([1000, 1], False), (None, False)])
def test_one_divisor_for_targets_of_different_scale_is_one_line(tmp_path, monkeypatch, scale, said):
    lines = []
    monkeypatch.setattr("fedtide.world.data.table.logger.warning", lambda line, *values: lines.append(line % values))
    frame = rows().assign(price=lambda each: each["size"] * 1000)
    read(tmp_path, frame, labels=["price", "size"], task="regression", target_scale=scale, numeric=["late"])
    assert [line for line in lines if "targets differ in scale by more than 100" in line] == lines
    assert bool(lines) == said


def test_a_multilabel_task_has_a_column_for_every_label(tmp_path):
    frame = targets(rows())
    for shown in (frame, frame.assign(big=frame["big"].astype(int))):
        data = read(tmp_path, shown, labels=["big", "red"], task="multilabel", numeric=["late"], categorical=[])
        assert (data.task, data.outputs, data.input_shape) == ("multilabel", 2, (1,))
        labels = torch.cat([data.train_labels, data.test_labels])
        assert labels.sum(0).tolist() == [frame["big"].sum(), frame["red"].sum()]


def test_settings_for_other_tasks_than_classification_have_no_part_in_its_identity():
    plain = Table.Settings()
    assert not {"task", "labels", "target_scale"} & plain.canonical().keys()
    assert Table.Settings(task="regression").canonical().keys() - plain.canonical().keys() == {"task"}


def test_columns_in_any_order_are_the_same_data(tmp_path):
    frame = rows().assign(age=np.arange(300), zone="n")
    again = read(tmp_path, frame[frame.columns[::-1]])
    assert read(tmp_path, frame).digest == again.digest
    assert again.encoding.features == ("age", "size", "color is blue", "color is red", "zone is n")


def test_rows_on_both_sides_of_the_split_are_counted(tmp_path, capsys):
    frame = rows(60)
    read(tmp_path, pd.concat([frame, frame]))
    assert re.search(r"\d of \d+ test rows equal a training row in every column", capsys.readouterr().err)
    read(tmp_path, pd.concat([frame, frame]).assign(number=range(120)), numeric=["size"], categorical=[])
    assert not capsys.readouterr().err


def test_a_first_period_of_few_rows_is_told(tmp_path, capsys):
    early = rows(1).assign(when="1969-11-05T00:00:00Z")
    read(tmp_path, pd.concat([early, early, rows()]), split={"share": 0.1})
    assert "by the 2 training rows of the first period, where periods have " in capsys.readouterr().err
