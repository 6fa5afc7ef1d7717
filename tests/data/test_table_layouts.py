"""Tables as programs write them: what stands above and beside the rows is left out with a sentence, or refused by name."""

import zipfile
from unittest import TestCase

import pytest

from fedtide.authoring.project.table import settings_for
from fedtide.core.errors import SettingsError
from fedtide.world.data.table import Table, read_rows
from fedtide.world.storage.prepared import load

HEAD = "day,shop,price,returned"
ROWS = [f"2024-0{1 + i // 60}-{1 + i % 28:02},shop {i % 4},{i / 8},{('yes', 'no')[i % 2]}" for i in range(240)]
PLAIN = "\n".join([HEAD, *ROWS, ""])


def numbered(head, first=0, mark=""):
    lines = (f"{mark}{number}{mark},{row}" for number, row in enumerate(ROWS, first))
    return "\n".join([head + HEAD, *lines, ""])


WRITTEN = {
    "pandas": (numbered(","), "column 1 has no name and numbers the rows; left out"),
    "R": (numbered('"",', 1, '"'), "column 1 has no name and numbers the rows; left out"),
    "write.table": (numbered("", 1), "column 1 has no name and numbers the rows; left out"),
    "pandas twice": (numbered("Unnamed: 0,"), "column 1 has no name and numbers the rows; left out"),
    "Excel": ("sep=;\r\n" + PLAIN.replace(",", ";").replace("\n", "\r\n"), "lines left out above the header: 1"),
    "trailing": (PLAIN.replace("\n", ",\n"), "column 5 has no name and is empty; left out"),
    "trailing rows": (
        PLAIN.replace("\n", ",\n").replace(f"{HEAD},", HEAD),
        "column 5 has no name and is empty; left out",
    ),
    "title": ("Returns, 2024\nof all shops\n\n" + PLAIN, "lines left out above the header: 3"),
    "padded title": ("Returns,,,\n,,,\n" + PLAIN, "lines left out above the header: 2"),
    "comments": ("# from the shop\n# days, and so on\n" + PLAIN, "lines left out above the header: 2"),
    "blanks": (PLAIN.replace(",", ", "), ""),
    "blanks and quotation marks": (
        "\n".join([HEAD.replace(",", ", "), *('"' + row.replace(",", '", "') + '"' for row in ROWS), ""]),
        "",
    ),
    "lines of blanks below": (PLAIN + "   \n\n \t\n", ""),
}


def data(path):
    return load(Table(Table.Settings(file=str(path), label="returned", client="shop", time="day")), path.parent)


@pytest.mark.parametrize(("content", "sentence"), WRITTEN.values(), ids=WRITTEN)
def test_a_table_as_a_program_writes_it_is_the_same_data(tmp_path, content, sentence):
    (tmp_path / "plain.csv").write_text(PLAIN)
    path = tmp_path / "rows.csv"
    path.write_bytes(content.encode())
    plain = data(tmp_path / "plain.csv")
    if sentence:
        with TestCase().assertLogs("fedtide", "WARNING") as told:
            found = data(path)
        assert any(sentence in line for line in told.output)
    else:
        found = data(path)
    assert found.digest == plain.digest
    assert "label: returned" in settings_for(path)[0]
    rows, place = read_rows(path, {}, ["price"])
    assert rows["price"].tolist() == [i / 8 for i in range(240)]
    assert place(0).startswith(f"{path}, ")


def test_lines_are_counted_in_the_file(tmp_path):
    (tmp_path / "rows.csv").write_text("A title\n\n" + PLAIN.replace("0.125", "x"))
    with pytest.raises(SettingsError, match=r"line 5: price is 'x'"):
        data(tmp_path / "rows.csv")
    (tmp_path / "rows.csv").write_text("A title\n\n" + PLAIN + "1,2\n")
    with pytest.raises(SettingsError, match=r"line 244: 2 values, the header 4"):
        data(tmp_path / "rows.csv")


def test_years_may_be_columns_below_a_title(tmp_path):
    (tmp_path / "rows.csv").write_text("World\n\ncountry,1960,1970\na,1,2\nb,3,4\n")
    assert list(read_rows(tmp_path / "rows.csv", {})[0]) == ["country", "1960", "1970"]


OTHERS = {
    "rows.xlsx": r"\.xlsx is not supported",
    "rows.JSON": r"\.json is not supported",
    "rows.csv": "not a text in .*",
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_formats_and_a_damaged_archive_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("sheet.xml", PLAIN)
    with pytest.raises(SettingsError, match=rf"{name}: {OTHERS[name]}; save the table as \.csv"):
        data(tmp_path / name)
    (tmp_path / "rows.csv.xz").write_bytes(b"no")
    with pytest.raises(SettingsError, match="not a readable table"):
        data(tmp_path / "rows.csv.xz")
