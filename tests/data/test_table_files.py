"""Tables as people have them: what is read, and the one line of what is not."""

import gzip

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.world.data._tables import windows
from fedtide.world.data.base import DatasetPlugin
from fedtide.world.dataset import ARRAYS, further_arrays
from fedtide.world.storage.prepared import load
from support import settings as run_settings

HEAD = "who,when,size,color,late"
ROWS = [f"{'ab'[i % 2]},2024-0{1 + i % 4}-0{1 + i % 7},{i},{'xy'[i % 2]},{i % 3 % 2}" for i in range(40)]


def text(*rows, head=HEAD):
    """A table whose last rows are ``rows``; they begin at line 42."""
    return "\n".join([head, *ROWS, *rows]) + "\n"


def read(folder, content, name="rows.csv", **chosen):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    values = {"name": "table", "file": str(path), "label": "late", "client": "who", "time": "when", **chosen}
    return load(plugins.create(DatasetPlugin, run_settings(data=values).data), folder)


def replaced(column, value):
    """The table with a text in one column of every row; ``value`` is called with the row's number."""
    at = HEAD.split(",").index(column)
    rows = [row.split(",") for row in ROWS]
    return "\n".join([HEAD, *(",".join([*row[:at], str(value(i)), *row[at + 1 :]]) for i, row in enumerate(rows))])


def parts(names, value):
    """The table with several columns instead of the one of times."""
    return replaced("when", value).replace("when", names)


COMMAS, GERMAN = str.maketrans({",": ";", ".": ","}), {"delimiter": ";", "decimal": ","}

REFUSED = [
    (text("é,2024-01-01,1,x,0").encode("latin-1"), {}, r"line 42: .* byte 0xe9 .*; set data\.encoding.*latin-1"),
    (text().encode("utf-16"), {}, r"set data\.encoding, for example utf-16"),
    (text(), {"encoding": "utf-99"}, r"data.*encoding = 'utf-99' is not an encoding known to Python"),
    (text(head="who,when,size,size,late"), {}, r"two columns are named 'size'"),
    (text(head=",when,size,color,late"), {}, r"column 1 has no name and does not number the rows; name it"),
    (text("a,2024-01-01,inf,x,0"), {}, r"line 42: size is 'inf', expected a finite number"),
    (
        text().replace(ROWS[2], "a,2024-01-01T10:00:00Z,2,x,0"),
        {},
        r"line 4: when is '2024-01-01T10:00:00Z', expected times that all have a time zone, or none",
    ),
    (replaced("when", lambda i: 1712534400000 + i), {}, r"line 2: when .* 1900 to 2199 in s; set data\.unit: ms"),
    (replaced("when", lambda i: f"0024-01-{1 + i % 9:02}"), {}, r"line 2: when is '0024-01-01', .* from 1900 to 2199"),
    (replaced("when", lambda i: f"{13 + i % 9}/04/2024"), {"date_format": "%d/%Q"}, r"data\.date_format = '%d/%Q'"),
    (replaced("color", lambda i: f"note {i}"), {"max_categories": 5}, r"'color' has \d+ categories.*data\.buckets"),
    (replaced("late", lambda i: i / 7 + 0.1), {}, r"late is '0\.1', .* or a name; .*data\.task: regression"),
    ("\n".join([HEAD, *(f"a,2024-01-01,1,x,{i}" for i in range(400))]), {}, r"400 classes in 400 rows; .*data\.task"),
    (text("a,2024-01-01,1,x"), {}, r"line 42: 4 values, the header 5: 'a,2024-01-01,1,x'"),
    ("", {}, r"the file is empty"),
    (HEAD + "\n", {}, r"rows\.csv: no rows"),
    (text().replace(",", ";"), {}, r"one column, .*; set data\.delimiter: ';'"),
    (text().replace(",", ";"), {"delimiter": ";", "decimal": ";"}, r"decimal and delimiter are both ';'|decimal"),
    (replaced("color", lambda i: f'"1,{i}"'), {}, r"color is '1,0', expected a number .*data\.decimal"),
    (text("a,2024-01-01,1,x,"), {}, r"line 42: late is empty, expected a label"),
    (text('a,2024-01-01,1,"x\ny",NA'), {}, r"row 41: late is 'NA', expected an integer, as most are"),
    (replaced("size", lambda i: "?" if i == 3 else i), {}, r"line 5: size is '\?', expected a number .*data\.missing"),
    (replaced("size", lambda i: i if i else "x"), {"numeric": ["size"]}, r"line 2: size is 'x', .*data\.missing"),
    (replaced("size", lambda i: f"{i}.990").replace(",", ";"), GERMAN, r"size is '0\.990', expected a number"),
    (text().replace(",", ";").replace(";4;", ";6.990;"), GERMAN, r"line 6: size is '6\.990', expected a number"),
    (text().encode("utf-16-le"), {}, r"rows\.csv: not a text in utf-8; .* set data\.encoding, for example utf-16"),
    (gzip.compress(b"a,b", mtime=0), {}, r"not a text in utf-8; save the table as \.csv, \.parquet or \.feather"),
    (text(), {"window": 3, "time": None}, r"window = 3 requires time"),
    (text(), {"stride": 3}, r"stride = 3 requires a window"),
    (text(), {"client": "late"}, r"label and client: column 'late' is given twice; each needs its own"),
    (text("a,soon,1,x,0"), {}, r"line 42: when is 'soon', .* empty the cell and set data\.unlabeled: drop"),
    ("\n".join([HEAD, "a,2024-01-01,1,x,"]), {"unlabeled": "drop"}, r"no row has all of late, who, when"),
    (text(), {"window": 30}, r"data\.window = 30: no client has this many rows"),
]


@pytest.mark.parametrize(("content", "chosen", "line"), REFUSED)
def test_what_cannot_be_read_is_one_line(tmp_path, content, chosen, line):
    with pytest.raises(SettingsError, match=line) as raised:
        read(tmp_path, content, **chosen)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "chosen"),
    [
        (text().encode("utf-16"), {"encoding": "utf-16"}),
        (b"\xef\xbb\xbf" + text().encode(), {}),
        (text().replace(",", ";"), {"delimiter": ";"}),
        ("\n".join([HEAD, *(row.replace(f",{i},", f",{i}.0,") for i, row in enumerate(ROWS))]).translate(COMMAS), GERMAN),
        (replaced("when", lambda i: f"0{1 + i % 7}/0{1 + i % 4}/2024"), {"date_format": "%d/%m/%Y"}),
        (replaced("when", lambda i: f"20240{1 + i % 4}0{1 + i % 7}"), {"date_format": "%Y%m%d"}),
        (replaced("when", lambda i: f"20240{1 + i % 4}0{1 + i % 7}"), {}),
        (replaced("when", lambda i: int(pd.Timestamp(f"2024-0{1 + i % 4}-0{1 + i % 7}").timestamp() * 1000)), {"unit": "ms"}),
        (parts("m,d", lambda i: f"2024-0{1 + i % 4},{1 + i % 7}"), {"time": ["m", "d"], "date_format": "%Y-%m %d"}),
        (parts("Day,yr,mnth", lambda i: f"{1 + i % 7},2024,{1 + i % 4}"), {"time": ["Day", "yr", "mnth"]}),
        (parts("of,hr", lambda i: f"2024-0{1 + i % 4}-0{1 + i % 7},0"), {"time": ["of", "hr"]}),
        (text("a,2024-01-01,9,x,", ",2024-01-01,9,x,0", "b,,9,x,1"), {"unlabeled": "drop"}),
        (text(), {"classes": [0, 1]}),
        (replaced("late", lambda i: ["false", "true"][i % 3 % 2]), {}),
        (replaced("late", lambda i: f"{i % 3 % 2}.0"), {"classes": [0, 1]}),
    ],
)  # fmt: skip
def test_other_ways_to_write_a_table_are_the_same_data(tmp_path, content, chosen):
    data, plain = read(tmp_path, content, **chosen), read(tmp_path, text(), "plain.csv")
    for key in ARRAYS:
        assert torch.equal(getattr(data, key), getattr(plain, key))
    for key, values in further_arrays(plain).items():
        assert (getattr(data.origins, key) == values).all()
    assert data.origins.clients == plain.origins.clients


def test_compressed_and_parquet_files_are_the_same_data(tmp_path):
    plain = read(tmp_path, text()).digest
    assert read(tmp_path, gzip.compress(text().encode()), "rows.csv.gz").digest == plain
    frame = pd.read_csv(tmp_path / "rows.csv")
    frame.set_index("who").to_parquet(tmp_path / "indexed.parquet")
    frame[frame["size"] >= 0].sample(frac=1, random_state=1).to_parquet(tmp_path / "numbered.parquet")
    for name in ("indexed.parquet", "numbered.parquet"):
        assert read(tmp_path, (tmp_path / name).read_bytes(), name).digest == plain


def test_a_parquet_column_of_lists_is_one_line(tmp_path):
    frame = pd.DataFrame({"who": [1, 2], "when": 0, "late": [0, 1], "many": [[1, 2]] * 2})
    frame.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(SettingsError, match=r"row 1: many is .*, expected a number or a text"):
        read(tmp_path, (tmp_path / "rows.parquet").read_bytes(), "rows.parquet")


def test_types_are_those_of_all_rows(tmp_path):
    """Numbers far behind integers, and a value far behind missing ones, are beyond the block that types are guessed from."""
    rows = [f"a,2024-01-01,{i},,{i % 2},{'z' * 500}" for i in range(4000)]
    last = ["a,2024-01-02,0.5,7.5,1,z", "b,2024-01-02,0.5,7.5,1,z"]
    found = [read(tmp_path, "\n".join([HEAD + ",note", *part])).digest for part in (rows + last, last + rows)]
    assert found[0] == found[1]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(order=st.permutations(range(len(ROWS))))
def test_rows_in_any_order_are_the_same_data(tmp_path_factory, order):
    folder = tmp_path_factory.mktemp("table")
    again = read(folder, "\n".join([HEAD, *(ROWS[i] for i in order)]))
    assert again.digest == read(folder, text(), "other.csv").digest


def test_columns_of_many_categories_are_hashed(tmp_path):
    content = replaced("color", lambda i: f"note {i}" if i % 5 else "")
    data = read(tmp_path, content, max_categories=5, buckets=4)
    assert data.encoding.features == ("size", *(f"color in bucket {bucket}" for bucket in range(4)))
    hot = torch.cat([data.train_inputs, data.test_inputs])[:, 1:]
    assert torch.equal(hot.sum(1), torch.ones(40))
    assert hot.sum(0).min() > 0
    assert read(tmp_path, content, max_categories=100, buckets=4).encoding.columns[1].kind == "categorical"


@given(
    client=st.lists(st.integers(0, 3), min_size=1, max_size=30).map(np.array),
    length=st.integers(1, 6),
    stride=st.integers(1, 4),
)
def test_windows_are_consecutive_rows_of_one_client(client, length, stride):
    found = windows(client, len(client), length, stride)
    assert (np.diff(found, axis=1) > 0).all()
    assert (np.diff(found[:, -1]) > 0).all()
    for window in found:
        (who,) = set(client[window])
        between = np.flatnonzero(client == who)
        first = np.flatnonzero(between == window[0])[0]
        assert first % stride == 0
        assert (between[first : first + length] == window).all()
    counts = np.bincount(client)
    assert len(found) == sum((count - length) // stride + 1 for count in counts if count >= length)


def test_a_window_ends_with_the_row_of_its_label(tmp_path):
    """Sizes are the rows' positions in time, so that a window of three reads i - 4, i - 2, i: two clients alternate."""
    rows = [f"{'ab'[i % 2]},{86400 * i},{i},{i % 3 % 2}" for i in range(120)]
    content = "\n".join(["who,when,size,late", *rows[::-1], "c,5,9,0"])
    data = read(tmp_path, content, window=3, split={"period": "all"})
    assert (data.kind, data.input_shape, data.encoding) == ("series", (1, 3), None)
    origins = data.origins
    assert origins.clients == ("a", "b")
    inputs = torch.cat([data.train_inputs, data.test_inputs])[:, 0]
    labels = torch.cat([data.train_labels, data.test_labels]).numpy()
    time = np.concatenate([origins.train_time, origins.test_time])
    client = np.concatenate([origins.train_client, origins.test_client])
    assert sorted(time // 86400) == list(range(4, 120))
    assert (client == time // 86400 % 2).all()
    assert (labels == time // 86400 % 3 % 2).all()
    scale = (inputs[:, 2] - inputs[:, 1]) / 2  # one day, standardized
    torch.testing.assert_close(scale, scale[:1].expand(len(scale)), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(inputs[:, 2] - inputs[:, 0], 4 * scale, rtol=1e-3, atol=1e-5)
    steps = (inputs[:, 2] - inputs[:1, 2]) / scale[0]
    assert (steps.round().numpy() == time // 86400 - time[0] // 86400).all()


def test_rows_that_are_left_out_are_counted(tmp_path, capsys):
    read(tmp_path, text("a,2024-01-01,9,x,", ",2024-01-01,9,x,"), unlabeled="drop")
    assert capsys.readouterr().err.splitlines() == [
        f"{tmp_path}/rows.csv: 2 of 42 rows are left out (data.unlabeled: drop): late is empty in 2, first "
        f"{tmp_path}/rows.csv, line 42; who is empty in 1, first {tmp_path}/rows.csv, line 43"
    ]


def test_parts_of_the_time_are_features_if_they_are_listed(tmp_path):
    content = parts("year,month", lambda i: f"2024,{1 + i % 4}")
    assert len(read(tmp_path, content, time=["year", "month"]).encoding.columns) == 2
    listed = read(tmp_path, content, time=["year", "month"], numeric=["size", "month"])
    assert [each.column for each in listed.encoding.columns] == ["size", "month", "color"]
