"""Which columns of a table are proposed, and how its file is written."""

import pandas as pd
import pytest

from fedtide.authoring.project import table
from fedtide.authoring.project.table import settings_for
from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params
from fedtide.settings.reading.yaml_files import read_value


def proposed(folder, head, rows, name="table.csv", encoding="utf-8", **given):
    """Settings proposed for a table, and the sentences."""
    path = folder / name
    path.write_bytes("\n".join([head, *rows, ""]).encode(encoding))
    text, sentences = settings_for(path, given)
    return Params(read_value(text)).run(), sentences


def test_a_table_without_owner_and_time_is_dealt_to_clients(tmp_path):
    rows = [f"{n % 7 / 10},{n % 11 / 10 + n % 3},s{n % 3}" for n in range(150)]
    settings, sentences = proposed(tmp_path, "sepal,petal,species", rows)
    data = settings.data
    assert (data.label, data.client, data.time) == ("species", None, None)
    assert (settings.scenario.name, settings.partition.name) == ("static", "iid")
    assert sentences[1:3] == [
        "client: no column named as one, and no text with repeated values, found; name one with --client.",
        "time: no column with dates found.",
    ]


def test_a_file_with_semicolons_decimal_commas_other_dates_and_another_encoding(tmp_path):
    rows = [
        f"{n};Zähler {n % 9};{1 + n // 6 % 28:02}.{1 + n % 6:02}.2023;0,{n % 10};{n * n % 5 % 2}" for n in range(600)
    ]
    settings, sentences = proposed(tmp_path, "Kennung;Gerät;Tag;Wert;Störung", rows, encoding="latin-1")
    data = settings.data
    assert (data.encoding, data.delimiter, data.decimal, data.date_format) == ("latin-1", ";", ",", "%d.%m.%Y")
    assert (data.label, data.client, data.time) == ("Störung", "Gerät", "Tag")
    assert (data.numeric, data.categorical) == (("Wert",), ())
    assert "excluded Kennung: unique value in every row (looks like an ID)." in sentences
    assert (settings.scenario.name, settings.scenario.period) == ("calendar", "month")


def test_numbers_are_predicted_where_no_column_is_a_class(tmp_path):
    rows = [f"h{n % 12},{1_700_000_000 + n * 40_000},{n % 80},{n % 80 / 10 + n % 7 / 100:.3f}" for n in range(500)]
    settings, sentences = proposed(tmp_path, "hospital,ts,age,progression", rows)
    assert (settings.task, settings.data.label, settings.data.client) == ("regression", "progression", "hospital")
    assert settings.data.time == "ts"
    assert sentences[0].endswith("The task is regression.")


def test_columns_of_many_categories_are_hashed(tmp_path):
    rows = [f"{n % 10},{n // 10},{n % 13 / 10},c{n % 150},{n % 3}" for n in range(1200)]
    settings, sentences = proposed(tmp_path, "user_id,step,a,city,label", rows)
    assert (settings.data.time, settings.data.buckets) == (None, 64)
    assert "hashed: city, more than 100 values." in sentences


@pytest.mark.parametrize("unique", [True, False])
def test_a_table_of_texts_alone_is_refused_with_the_way(tmp_path, unique):
    words = ["good", "bad", "film", "plot", "actor", "great", "boring", "long", "short"]
    rows = [
        f"u{n % 9},{' '.join(words[n * k % 9] for k in (1, 2, 4, 5))} {n if unique else n // 2 * 2},{n % 2}"
        for n in range(150)
    ]
    message = "table.csv: no column is left for features: 'review' is running text, "
    with pytest.raises(SettingsError, match=message):
        proposed(tmp_path, "user,review,label", rows)
    longer = [row.replace(",", f",{n % 5}.5,", 1) for n, row in enumerate(rows)]
    settings, _ = proposed(tmp_path, "user,length,review,label", longer)
    assert settings.data.label == "label"


def test_owners_of_twenty_digits_and_words_are_names(tmp_path):
    rows = [f"{10**19 + n % 20},{n % 7 / 2},{('None', 'Minor', 'Major')[n % 3]}" for n in range(300)]
    settings, sentences = proposed(tmp_path, "shop,load,severity", rows)
    assert (settings.data.client, settings.data.label) == ("shop", "severity")
    assert sentences[:2] == [
        "label: using column 'severity' (3 classes; last column with few distinct values).",
        "client: using column 'shop' (20 clients, 15 rows per client on average; matched by name).",
    ]


def test_a_label_that_its_name_tells_is_one_with_gaps(tmp_path):
    rows = [f"{'abc'[n % 3]},{n % 7 / 2},{(n % 5 and 'yn'[n % 2]) or ''}" for n in range(300)]
    settings, sentences = proposed(tmp_path, "ward,load,readmitted", rows)
    assert settings.data.label == "readmitted"
    assert "rows: 60 of 300 rows are left out (data.unlabeled: drop): readmitted is empty in 60" in "".join(sentences)
    settings, sentences = proposed(tmp_path, "ward,load,sickly", rows)
    assert settings.data.label == "ward"
    assert sentences[0].endswith("; 'sickly' has gaps; if it is the label, give --label).")


def test_columns_that_are_given_are_used(tmp_path):
    rows = [
        f"{day},{day},{n % 4},{n % 9},{n % 150},{n % 3}" for n in range(600) for day in [f"2024-{1 + n // 100:02}-03"]
    ]
    given = {"label": ["load"], "client": ["class"], "time": ["seen"]}
    settings, sentences = proposed(tmp_path, "date,seen,shop,class,load,y", rows, **given)
    data = settings.data
    assert (data.label, data.client, data.time, data.task) == ("load", "class", "seen", "regression")
    assert [sentence.count("as given") for sentence in sentences[:3]] == [1, 1, 1]
    assert proposed(tmp_path, "a,b,shop,c,load,y", rows, label=["c"])[0].data.label == "c"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"label": ["lode"]},
            r"table.csv: --label: no column 'lode'; did you mean 'load'\? \(known: load, name, shop\)",
        ),
        (
            {"label": ["load"], "client": ["load"]},
            "--label load --client load: a column is given twice; each needs its own",
        ),
        ({"time": ["load"]}, "--time: load has no dates; set data.unit for times in another unit"),
        ({"time": ["name"]}, "line 2: name is 'n0', expected"),
        (
            {"label": ["name"]},
            "table.csv: --label: 'name' has 120 values or more, expected numbers or 2 to 100 classes",
        ),
    ],
)
def test_columns_that_cannot_be_what_they_are_given_as_are_one_line(tmp_path, given, message):
    rows = [f"s{n % 5},{n % 9 / 2},n{n}" for n in range(300)]
    with pytest.raises(SettingsError, match=message):
        proposed(tmp_path, "shop,load,name", rows, **given)


@pytest.mark.parametrize("sign", ["?", "n.a."])
@pytest.mark.parametrize("every", [20, 2])
def test_signs_of_missing_values_are_proposed(tmp_path, sign, every):
    rows = [f"{n % 50 if n % every else sign},{n % 9},shop {n % 5}, ,{'yes' if n % 2 else 'no'}" for n in range(300)]
    settings, sentences = proposed(tmp_path, "age,hours,shop,note,label", rows)
    assert (settings.data.missing, settings.data.label, settings.data.client) == ((sign,), "label", "shop")
    assert f"missing values: {sign!r} in age." in sentences


def test_a_sign_in_texts_is_proposed_unless_the_label_has_it(tmp_path):
    rows = [f"{'?' if n % 5 else 'Gov'},{n % 50 or 'NaN'},{'-' if n % 7 else 'x'},{'-+'[n % 2]}" for n in range(300)]
    settings, sentences = proposed(tmp_path, "work,age,kind,label", rows)
    assert (settings.data.missing, settings.data.label) == (("?",), "label")
    assert "missing values: '?' in work." in sentences


def daily(row, *further):
    return [f"2024-{1 + n // 100:02}-{1 + n % 28:02},s{n % 7},{n % 9 / 2},{row(n)}" for n in range(600)] + [*further]


HEAD = "date,shop,price,returned"


def roles(data):
    return data.label, data.client, data.time


def test_both_readings_of_dates_are_told(tmp_path):
    rows = [f"{1 + n // 50:02}/01/2024,s{n % 7},{n % 9 / 2},{n % 2}" for n in range(600)]
    settings, sentences = proposed(tmp_path, HEAD, rows)
    assert (settings.data.date_format, settings.scenario.period) == ("%m/%d/%Y", "month")
    assert "read as '%m/%d/%Y', but '%d/%m/%Y' fits, too: if it is right, set data.date_format to it" in sentences[2]


@pytest.mark.parametrize(
    ("winter", "summer", "timezone", "told"),
    [
        ("+11:00", "+11:00", None, "local times with the offset +11:00"),
        ("Z", "Z", None, "in UTC; for local times set data.timezone"),
        ("", "", None, None),
        ("-05:00", "-04:00", "America/", "local times of America/"),
        ("+01:00", "+07:00", "UTC", "offsets +01:00 and +07:00 fit no time zone, so in UTC"),
    ],
)
def test_the_clock_of_the_times_is_told(tmp_path, winter, summer, timezone, told):
    """A row half past midnight on 1 January makes no month of its own."""
    rows = [row.split(",") for row in daily(lambda n: n % 2)]
    rows[0][0] = "2024-01-01"
    cells = [f"{day}T00:30:00{winter if day <= '2024-03-10' else summer},{','.join(rest)}" for day, *rest in rows]
    settings, sentences = proposed(tmp_path, HEAD, cells)
    assert (settings.data.timezone or "none").startswith(timezone or "none")
    clock = sentences[2].partition("; matched by name")[2]
    assert clock == ")." if told is None else clock.startswith(f"; {told}")
    assert settings.scenario.period == "month"


def test_a_better_period_that_is_not_possible_is_told(tmp_path, monkeypatch):
    def fails(text):
        if "period: month" in text:
            raise SettingsError("no month")

    monkeypatch.setattr(table, "_try", fails)
    settings, sentences = proposed(tmp_path, HEAD, daily(lambda n: n % 2))
    assert settings.scenario.period == "week"
    assert sentences[-2:] == ["scenario: not every month: no month.", sentences[-1]]


@pytest.mark.parametrize(
    ("head", "cells", "time", "date_format"),
    [
        ("hour,date", "{h},{y}-{m:02}-{d:02}", "date", None),
        ("month,day", "{m},{y}-{m:02}-{d:02}", "day", None),
        ("Day,Month,Year", "{d},{m},{y}", ("Year", "Month", "Day"), None),
        ("hour,year,month,day", "{h},{y},{m},{d}", ("year", "month", "day", "hour"), None),
        ("yr,mnth,hr,dteday", "0,{m},{h},{y}-{m:02}-{d:02}", "dteday", None),
        ("in_year,in_month,in_day_of_month", "{y},{b},{d}", ("in_year", "in_month", "in_day_of_month"), "%Y %b %d"),
        ("day,month", "{d},{m}", None, None),
    ],
)
def test_a_date_precedes_its_parts(tmp_path, head, cells, time, date_format):
    rows = []
    for n in range(600):
        month, day = 1 + n // 50, 1 + n % 28
        name = "JanFebMarAprMayJunJulAugSepOctNovDec"[3 * month - 3 :][:3]
        date = cells.format(y=2013, m=month, d=day, h=n % 24, b=name)
        rows.append(f"{date},s{n % 7},{n % 9 / 2},{n % 2}")
    settings, sentences = proposed(tmp_path, f"{head},shop,price,returned", rows)
    assert (settings.data.time, settings.data.date_format) == (time, date_format)
    told = any("no features, unless data.numeric or data.categorical lists them" in line for line in sentences)
    assert told == isinstance(time, tuple)


@pytest.mark.parametrize(("name", "column"), [("returned", 3), ("shop", 1), ("date", 0), ("label of integers", 3)])
def test_empty_cells_take_no_role_away(tmp_path, name, column):
    rows = [row.split(",") for row in daily(lambda n: n % 2 if name == "label of integers" else ("yes", "no")[n % 2])]
    for row in rows[11::50]:
        row[column] = ""
    settings, sentences = proposed(tmp_path, HEAD, [",".join(row) for row in rows])
    assert roles(settings.data) == ("returned", "shop", "date")
    assert settings.data.unlabeled == "drop"
    where = f"{HEAD.split(',')[column]} is empty in 12, first {tmp_path / 'table.csv'}, line 13"
    assert f"rows: 12 of 600 rows are left out (data.unlabeled: drop): {where}." in sentences


@pytest.mark.parametrize("first", [True, False])
def test_a_line_of_totals_takes_no_role_away(tmp_path, first):
    rows = daily(lambda n: ("yes", "no")[n % 2])
    rows.insert(0 if first else len(rows), "Total,,184000,")
    settings, sentences = proposed(tmp_path, HEAD, rows)
    assert roles(settings.data) == ("returned", "shop", "date")
    assert any(f"first {tmp_path / 'table.csv'}, line {2 if first else 602}" in line for line in sentences)


def test_a_date_that_cannot_be_read_is_named_by_its_line(tmp_path):
    with pytest.raises(SettingsError, match=r"line 602: date is 'soon', expected an integer or a date"):
        proposed(tmp_path, HEAD, daily(lambda n: n % 2, "soon,s1,1,1"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_texts_of_digits_are_proposed_alike_from_every_file(tmp_path, kind):
    table = {"code": [f"{n % 9:03}" for n in range(300)], "load": [f"{n % 80 / 8}" for n in range(300)]}
    frame = pd.DataFrame(table | {"hour": [f"{n % 24:02}:30" for n in range(300)], "late": [n % 2 for n in range(300)]})
    (frame.to_csv if kind == "csv" else frame.to_parquet)(tmp_path / f"rows.{kind}", index=False)
    text, _ = settings_for(tmp_path / f"rows.{kind}")
    assert roles(Params(read_value(text)).run().data) == ("late", "code", None)


def test_a_file_without_a_header_is_refused(tmp_path):
    rows = daily(lambda n: ("yes", "no")[n % 2])
    with pytest.raises(SettingsError, match=r"no header: its first line has values of the rows, such as '2024-01-01'"):
        proposed(tmp_path, rows[0], rows[1:])


def test_an_encoding_of_windows_and_truth_values_in_any_case(tmp_path):
    rows = [f"{n % 9} €,{n % 80 / 8},{('true', 'True', 'FALSE')[n % 3]}" for n in range(300)]
    settings, sentences = proposed(tmp_path, "owner,size,late", rows, encoding="cp1252")
    assert settings.data.encoding == "cp1252"
    assert sentences[1] == "label: using column 'late' (2 classes; last column with few distinct values)."
