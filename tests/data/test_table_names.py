"""Owners, labels and categories are texts, from every file, in every type; what is missing is a setting."""

import csv
import io
from decimal import Decimal
from unittest import TestCase

import numpy as np
import pandas as pd
import pytest
import torch

import fedtide
from fedtide.core.errors import SettingsError
from fedtide.world.adapters.encoding import Encoding
from fedtide.world.adapters.names import name_of, positions
from fedtide.world.data.table import Table, read_rows
from fedtide.world.storage.prepared import load

BIG = 10**19


def rows(**columns):
    """Eighty rows of four owners, whose columns are changed by functions of the row's number."""
    plain = {"who": lambda i: "abcd"[i % 4], "size": lambda i: i / 8, "color": lambda i: "xyz"[i % 3]}
    plain |= {"late": lambda i: ["no", "yes"][i % 2]} | columns
    return pd.DataFrame({name: pd.Series([made(i) for i in range(80)]) for name, made in plain.items()})


def read(folder, frame, name="rows.csv", content=None, **chosen):
    path = folder / name
    if content is not None:
        path.write_text(content)
    elif name.endswith(".csv"):
        frame.to_csv(path, index=False)
    else:
        (frame.to_parquet if name.endswith(".parquet") else frame.to_feather)(path)
    return load(Table(Table.Settings(file=str(path), label="late", client="who", **chosen)), folder)


@pytest.mark.parametrize(
    ("columns", "clients", "outputs"),
    [
        ({"who": lambda i: str(BIG + i % 20)}, tuple(str(BIG + i) for i in range(20)), ("no", "yes")),
        ({"who": lambda i: Decimal(BIG * 100 + i % 2)}, (f"{BIG}00", f"{BIG}01"), ("no", "yes")),
        ({"who": lambda i: ["007", "7"][i % 2]}, ("007", "7"), ("no", "yes")),
        ({"who": lambda i: [7.0, 10.0][i % 2]}, ("10", "7"), ("no", "yes")),
        ({"who": lambda i: ["NA", "DE"][i % 2]}, ("DE", "NA"), ("no", "yes")),
        ({"late": lambda i: [BIG, BIG + 1][i % 2]}, ("a", "b", "c", "d"), (str(BIG), str(BIG + 1))),
        ({"late": lambda i: ["10", "9", "-1"][i % 3]}, ("a", "b", "c", "d"), ("-1", "9", "10")),
        ({"color": lambda i: ["null", "red", None][i % 3]}, ("a", "b", "c", "d"), ("no", "yes")),
        ({"who": lambda i: ["shop 3", "shop 3 ", "Cafe\u0301", "Caf\u00e9"][i % 4]}, ("Café", "shop 3"), ("no", "yes")),
        ({"size": lambda i: None if i % 3 else 2**53 + i}, ("a", "b", "c", "d"), ("no", "yes")),
        ({"color": lambda i: pd.Timestamp(2024, 1, 1 + i % 2, 6 * (i % 3))}, ("a", "b", "c", "d"), ("no", "yes")),
        ({"late": lambda i: [-0.0, 1.0][i % 2]}, ("a", "b", "c", "d"), ("0", "1")),
    ],
)
def test_a_frame_is_the_same_data_from_every_file(tmp_path, columns, clients, outputs):
    frame = rows(**columns)
    found = [read(tmp_path, frame, f"rows.{kind}") for kind in ("csv", "parquet", "feather")]
    assert (found[0].origins.clients, found[0].encoding.outputs) == (clients, outputs)
    assert {data.digest for data in found} == {found[0].digest}


def test_a_float_of_32_bits_is_the_name_that_it_is_written_as(tmp_path):
    frame = rows(color=lambda i: i % 4 / 10).astype({"color": "float32"})
    found = [read(tmp_path, frame, f"rows.{kind}", categorical=["color"]) for kind in ("csv", "parquet")]
    assert found[0].digest == found[1].digest


@pytest.mark.parametrize("value", [1e19, float(2**53)])
def test_a_float_that_is_no_exact_integer_is_no_name(tmp_path, value):
    with pytest.raises(SettingsError, match=r"row 1: who is '.*', expected a client as an integer or a text"):
        read(tmp_path, rows(who=lambda i: value + i % 2 * value), "rows.parquet")
    with pytest.raises(SettingsError, match="training sample 0: client is"):
        fedtide.from_tensors(torch.zeros(4, 2), [0, 1] * 2, np.array([value] * 4))


def test_tensors_have_the_same_names():
    data = fedtide.from_tensors(torch.zeros(6, 2), ["NA", "b", "None"] * 2, [BIG, BIG + 1] * 3)
    assert (data.origins.clients, data.num_classes) == ((str(BIG), str(BIG + 1)), 3)
    test = (torch.zeros(2, 2), [0, 1], [7, 2**53 + 1])
    data = fedtide.from_tensors(torch.zeros(2, 2), [0, 1], [BIG, BIG + 1], test=test)
    assert data.origins.clients == tuple(sorted(map(str, (BIG, BIG + 1, 7, 2**53 + 1))))


def test_words_are_missing_only_without_the_quotation_marks_that_texts_have(tmp_path):
    frame = rows(color=lambda i: ["NA", "red", None][i % 3])
    quoted = frame.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)
    of_r = quoted.replace(',"",', ",NA,")
    assert of_r.count(",NA,") == 26
    found = [read(tmp_path, frame, "rows.csv", content) for content in (quoted, of_r)]
    assert found[0].encoding.features[1:] == ("color is NA", "color is missing", "color is red")
    assert found[0].digest == found[1].digest == read(tmp_path, frame, "rows.parquet").digest


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_signs_of_missing_values_are_a_setting(tmp_path, kind):
    frame = rows(size=lambda i: -999 if i % 9 == 0 else i, color=lambda i: "x?"[i % 2])
    plain = rows(size=lambda i: None if i % 9 == 0 else i, color=lambda i: "x" if i % 2 == 0 else None)
    found = read(tmp_path, frame, f"rows.{kind}", missing=["?", -999])
    assert found.digest == read(tmp_path, plain, f"plain.{kind}").digest
    assert "missing" not in Table.Settings().canonical()


@pytest.mark.parametrize("sign", [-1.5, "-1.50"])
def test_a_number_that_means_a_missing_one_is_meant_however_it_is_written(tmp_path, sign):
    frame = rows(size=lambda i: ["-1.5", "-1.500", "7", "-15"][i % 4])
    plain = rows(size=lambda i: [None, None, "7", "-15"][i % 4])
    assert read(tmp_path, frame, missing=[sign]).digest == read(tmp_path, plain, "plain.csv").digest
    frame = rows(size=lambda i: ["-1", "-1.", "-1.00", "-10"][i % 4])
    plain = rows(size=lambda i: [None, None, None, "-10"][i % 4])
    assert read(tmp_path, frame, missing=["-1.0"]).digest == read(tmp_path, plain, "plain.csv").digest


def test_a_category_is_the_same_whatever_else_is_in_the_file(tmp_path):
    odd = ["09:00", "12:30", "2024-01-01 10:00", "1E400", "007", "7", "1.10", "1.1", "true", "x"]
    frame = rows(color=lambda i: odd[i % len(odd)])
    encoding = read(tmp_path, frame).encoding
    assert encoding.columns[1].categories == tuple(sorted([*odd[:-2], "True", "x"]))
    whole = encoding.apply(frame)
    for place in range(len(odd)):
        frame[place : place + 1].to_csv(tmp_path / "one.csv", index=False)
        alone, _ = read_rows(tmp_path / "one.csv", {})
        assert torch.equal(encoding.apply(alone), whole[place : place + 1])


def test_names_that_may_be_one_are_named_in_one_line(tmp_path):
    frame = rows(late=lambda i: [">50K", ">50K.", "Yes", "yes", "yes "][i % 5], color=lambda i: ["NA", "b"][i % 2])
    with TestCase().assertLogs("fedtide", "WARNING") as told:
        read(tmp_path, frame)
    (line,) = told.output
    assert "late: read as different names: '>50K' (16) and '>50K.' (16), 'Yes' (16) and 'yes' (32); color: " in line
    assert "read as names: 'NA' (40 rows); list them in data.missing" in line


def test_truth_values_are_numbers_only_among_themselves(tmp_path):
    kinds = [
        read(tmp_path, rows(color=lambda i, texts=texts: texts[i % 3])).encoding.columns[1].kind
        for texts in (["true", "false", ""], ["true", "false", "unknown"])
    ]
    assert kinds == ["numeric", "categorical"]


def test_a_name_is_its_text():
    assert name_of(7.0) == "7"
    texts = {7: "7", "7.0": "7", "007": "007", "1.10": "1.10", np.float64(0.5): "0.5", Decimal("3.00"): "3"}
    assert [name_of(value) for value in texts] == list(texts.values())
    assert positions(["7", "07", "x", "007"], ["07", "x"]) == [0, 0, 1, 0]
    assert positions(["7", "07", "007"], ["07", "7"]) == [1, 0, -1]
    frame = pd.read_csv(io.StringIO("c\n07\n08\n"))
    assert Encoding.fit(pd.DataFrame({"c": ["07", "08"]}), [], ["c"], outputs=["a", "b"]).apply(frame).trace() == 2
