"""Claims: differences between methods in tables of results, published and obtained.

What is written and drawn of them is compared with the committed pages in `test_recorded_results.py`.
"""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fedtide.core.errors import SettingsError

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "experiments/findings.py"))
Claim, evidence, half_width, summary = (SCRIPT[name] for name in ("Claim", "evidence", "half_width", "summary"))
RESULTS = """alpha,algorithm,quantity,variant,published,published_std,obtained,std,difference,seeds,rounds,settings
0.1,own,accuracy,,80,,70,1,-10,3,9,a
0.1,weak,accuracy,,60,,50,1,-10,3,9,a
0.1,strong,accuracy,,75,,66,1,-9,3,9,a
0.2,own,accuracy,,,,74,2,,3,9,a
0.2,weak,accuracy,,,,75,0,,3,9,a
0.2,strong,accuracy,,,,,,,0,0,
0.3,own,accuracy,,,,40,,,1,9,a
0.3,weak,accuracy,,,,42,,,1,9,a
0.1,own,rounds,,9,,4,0,-5,3,9,a
0.1,strong,rounds,,8,,inf,,,3,9,a
0.1,weak,rounds,,9,,6,0,-3,3,9,a
"""
ELSEWHERE = "algorithm,mean,std\nown,90,\nweak,86,\nstrong,\n"
COMPARISONS = "score,method,pairs,difference,low,high\nauroc,own,11,0.01,-0.01,0.03\naccuracy,own,11,0,0,0\n"


@pytest.fixture
def here(tmp_path):
    for name, text in {
        "results/tiny/plain.csv": RESULTS,
        "results/months/comparisons.csv": COMPARISONS,
        "experiments/small/published/other.csv": ELSEWHERE,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def found(here, **measured):
    claim = Claim(claim="a", verdict="b", measured={"results": "tiny/plain", "of": "own"}, rows={"row": measured})
    (row,) = evidence(claim, here / "results", here / "experiments")
    return row


def interval(*cells):
    """Half-width for standard deviations and numbers of seeds."""
    return half_width(*({"std": std, "seeds": seeds} for std, seeds in cells))


@pytest.mark.parametrize("others", [[4.0, 4.5, 9.0, 3.0], [1.0, 2.0]])
def test_unpaired_intervals_are_those_of_welch(others):
    own = [1.0, 2.5, 2.0]
    one, other = ((np.std(of, ddof=1), len(of)) for of in (own, others))
    wanted = stats.ttest_ind(own, others, equal_var=False).confidence_interval(0.95)
    assert interval(one, other) == pytest.approx((wanted.high - wanted.low) / 2)
    alone = stats.t.interval(0.95, 2, np.mean(own), stats.sem(own))
    assert interval(one) == pytest.approx((alone[1] - alone[0]) / 2)
    assert math.isnan(interval(one, (math.nan, 1)))
    assert interval((0.0, 3), (0.0, 3)) == 0


def test_the_best_other_counts_in_every_row_and_without_others_the_value_itself(here):
    low = found(here, against=["best"], where={"alpha": ["0.1"]})
    assert (low.obtained, low.published, low.seeds, low.signed) == (4, 5, 3, True)
    assert low.half == interval((1, 3), (1, 3))
    both = found(here, against=["best"], where={"alpha": ["0.1", "0.2"]})
    assert (both.obtained, both.published) == ((4 - 1) / 2, 5)
    assert both.half == pytest.approx((low.half + interval((2, 3), (0, 3))) / 2)
    assert found(here, against=["strong", "weak"], where={"alpha": ["0.1"]}) == low
    assert found(here, against=["weak"], where={"alpha": ["0.1"]}).obtained == 20
    alone = found(here, where={"alpha": ["0.1"]})
    assert (alone.obtained, alone.published, alone.half, alone.signed) == (70, 80, interval((1, 3)), False)


def test_fewer_rounds_are_better_and_what_was_never_reached_is_not_the_best(here):
    row = found(here, quantity="rounds", against=["best"], lower=True)
    assert (row.obtained, row.published, row.half) == (6 - 4, 8 - 9, 0)
    assert math.isnan(found(here, quantity="rounds", against=["best"], lower=True, spread=False).half)


def test_one_seed_has_no_interval_nor_has_a_mean_with_it(here):
    row = found(here, against=["weak"], where={"alpha": ["0.3"]})
    assert (row.obtained, row.seeds) == (-2, 1)
    assert math.isnan(row.half)
    both = found(here, against=["weak"])
    assert math.isnan(both.half)
    assert both.seeds == 1
    claim = Claim(claim="a", verdict="b")
    assert math.isnan(summary(claim, [row, row._replace(half=1.0)]).half)


def test_published_values_of_another_file_and_paired_comparisons(here):
    other = found(here, against=["best"], where={"alpha": ["0.1"]}, published="small/published/other")
    assert (other.published, other.obtained) == (4, 4)
    paired = found(here, results="months/comparisons", where={"score": ["auroc"]}, scale=100.0)
    assert (paired.obtained, paired.half, paired.seeds) == (1, pytest.approx(2), 11)
    assert math.isnan(paired.published)
    assert paired.signed


@pytest.mark.parametrize(
    ("measured", "problem"),
    [
        ({"of": "owm"}, "no algorithm 'owm'; did you mean 'own'"),
        ({"against": ["week"]}, "no algorithm 'week'; did you mean 'weak'"),
        ({"where": {"alpa": ["0.1"]}}, "no column 'alpa'; did you mean 'alpha'"),
        ({"where": {"alpha": ["9"]}}, "no alpha '9'"),
        ({"results": "tiny/none"}, "no file"),
        ({"results": "months/comparisons"}, "2 rows of own instead of one"),
        ({"ofs": "own"}, "a, row: unknown key 'ofs'"),
    ],
)
def test_what_does_not_exist_is_one_line(here, measured, problem):
    with pytest.raises(SettingsError) as raised:
        found(here, **measured)
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def verdict_of(obtained, half, published=math.nan, **claim):
    mean = SCRIPT["Evidence"]("mean", published, obtained, half, 3, True)
    return SCRIPT["verdict"](Claim(claim="a", **claim), mean)


@pytest.mark.parametrize(
    ("obtained", "half", "decided"),
    [
        (0.2, 0.7, "consistent with (margin ±1 points)"),
        (-0.2, 0.7, "consistent with (margin ±1 points)"),
        (0.2, 0.9, "not decided"),
        (-0.4, 0.7, "not decided"),
        (0.0, math.nan, "not decided"),  # one seed
    ],
)
def test_no_difference_means_that_the_interval_lies_within_the_margin(obtained, half, decided):
    assert verdict_of(obtained, half, verdict=", on other data", margin=1) == f"{decided}, on other data"


def test_a_claim_holds_only_where_something_is_published():
    assert verdict_of(2.0, 1.0, published=2.1, verdict="holds") == "holds"
    assert verdict_of(2.0, 1.0, verdict="consistent with") == "consistent with"
    with pytest.raises(SettingsError, match="nothing is published, so it cannot hold"):
        verdict_of(2.0, 1.0, verdict="holds")
    with pytest.raises(SettingsError, match="'perhaps' should start with one of holds, in part"):
        verdict_of(2.0, 1.0, verdict="perhaps")


def test_a_page_without_a_table_is_refused(here):
    (here / "experiments/small/published/claims.yaml").write_text("title: A paper\nclaims: []\n")
    (here / "claims_small.md").write_text("# Page\n")
    with pytest.raises(SettingsError, match=r"claims_small\.md has no table"):
        SCRIPT["main"](here / "results", here, here / "experiments")
