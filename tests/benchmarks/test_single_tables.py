"""Scripts of ``benchmarks/`` that print one table, at small sizes."""

from pathlib import Path

import pytest

from benchmark_scripts import SCRIPTS, Call, numbers, table

RULES = [
    "mean",
    "median",
    "trimmed mean",
    "Krum",
    "multi-Krum",
    "geometric median",
    "centered clipping",
    "median of pairs",
]


def test_aggregation_rules_are_multiples_of_the_mean(call: Call) -> None:
    lines = call("rules.py", "--updates", 12, "--numbers", 50, "--turns", 1)
    shown = {name: [float(cell) for cell in cells] for name, cells in table(lines).items()}
    assert list(shown) == RULES
    assert shown["mean"][1] == 1
    assert all(times > 0 for _, times in shown.values())


@pytest.mark.slow
def test_rows_of_a_table_are_read_from_both_files(call: Call) -> None:
    lines = call("table_rows.py", "--rows", 200, "--clients", 5)
    shown = table(lines)
    assert list(shown) == ["rows.csv", "rows.parquet"]
    assert all(float(first) >= 0 and float(again) >= 0 for _, first, again in shown.values())


@pytest.mark.slow
def test_no_selection_is_closer_than_brute_force(call: Call) -> None:
    lines = call("selections.py", "--partition", "shards:1", "--active", 3, "--rounds", 1, "--figure", "selections.png")
    shown = {size: [numbers(cell) for cell in cells] for size, cells in table(lines).items()}
    assert list(shown) == ["1", "2", "3"]
    for _, (best, _), *_ in shown.values():
        assert best >= 0
    for dynacomm, brute_force, genetic, random in shown.values():
        assert all(brute_force[0] <= other[0] for other in (dynacomm, genetic, random))
    assert len({cell[0] for cell in shown["3"]}) == 1, "everybody is in the group"
    assert Path("selections.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_seed_of_the_detectors_is_that_of_the_recorded_table(call: Call) -> None:
    lines = call("detectors.py", "--seeds", 1, "--traces", "traces", "--out", "seeds.csv")
    header, *rows = (SCRIPTS.parent / "results/detectors/seeds.csv").read_text().splitlines()
    place = header.split(",").index("seed")
    assert Path("seeds.csv").read_text().splitlines() == [
        header,
        *(row for row in rows if row.split(",")[place] == "20"),
    ]
    assert sum("accuracy falls by" in line for line in lines) == 3
