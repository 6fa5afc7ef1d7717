"""An experiment about another score than accuracy: what its measures read, in which direction."""

import math
from pathlib import Path

import pytest
from test_measures import session

from fedtide.core.errors import SettingsError
from fedtide.settings.scores import Score
from fedtide.studies.reproduce.curves import span
from fedtide.studies.reproduce.history import History
from fedtide.studies.reproduce.measures import BestRound, BestRounds, Learning, Measure, Recovery, TransitionAccuracy
from fedtide.studies.reproduce.results import leads_heading

CURVE, REFERENCE = [10.0, 40.0, math.nan, 80.0, 70.0], [20.0, 50.0, 60.0, 90.0, 85.0]


@pytest.mark.parametrize(
    ("measure", "count"), [(TransitionAccuracy(windows=(3,)), 1), (BestRounds(rounds=2), 1), (BestRound(last=2), 3)]
)
def test_what_is_lower_for_an_error_is_higher_for_its_complement(measure: Measure, count: int) -> None:
    error = measure.model_copy(update={"metric": "calibration_error"})
    assert [quantity.name for quantity in error.quantities] == ["calibration_error"] * count
    high = measure.measure(session(CURVE), session(REFERENCE))
    low = error.measure(session([100 - value for value in CURVE]), session([100 - value for value in REFERENCE]))
    assert low == pytest.approx([100 - value for value in high])


def test_a_target_is_reached_from_above() -> None:
    parts = [session([100 - value for value in values]) for values in (CURVE, REFERENCE)]
    low = Learning(metric="calibration_error", last=2, target=45).measure(*parts)
    assert low[2:] == Learning(last=2, target=55).measure(session(CURVE), session(REFERENCE))[2:] == [4, 3 / 4]


def test_recovery_of_a_loss_is_a_multiple_of_the_lowest() -> None:
    """The reference falls to 0.5; within 0.5 / 0.8 of it is the third round here, the fourth there."""
    own, reference = session([2.0, 1.0, 0.6, 0.55]), session([2.0, 1.5, 0.7, 0.5])
    measure = Recovery(metric="loss", share=0.8)
    found = dict(zip(map(tuple, measure.quantities), measure.measure(own, reference), strict=True))
    assert found["rounds", ""] == 3
    assert found["speedup", ""] == 3 / 4
    assert found["gain", ""] == pytest.approx(2.0 + 1.0 + 0.6 + 0.55 - (2.0 + 1.5 + 0.7 + 0.5))


def test_the_history_is_read_in_the_units_of_the_score(tmp_path: Path) -> None:
    rows = "round,session,test_accuracy,test_loss,test_auroc\n1,1,0.5,1.25,0.75\n2,1,0.6,1.5,\n"
    (tmp_path / "history.csv").write_text(rows)
    assert History(tmp_path).score.tolist() == [50, 60]
    assert History(tmp_path, Score("loss")).score.tolist() == [1.25, 1.5]
    assert History(tmp_path, Score("auroc")).session(1).score.tolist() == pytest.approx([75, math.nan], nan_ok=True)
    message = r"no column 'test_macro_f1'; add macro_f1 to evaluation\.metrics and run again"
    with pytest.raises(SettingsError, match=message):
        History(tmp_path, Score("macro_f1"))
    assert span([History(tmp_path, Score("loss")).score * 100], [], percent=False)[1] > 100


def test_a_lead_is_named_after_the_score() -> None:
    mean = "averaged over the rows with a value for every method"
    assert leads_heading(Score("accuracy")) == f"Lead in accuracy over the best other method (ACC_diff), {mean}:"
    assert leads_heading(Score("auroc")) == f"Lead in AUROC over the best other method, {mean}:"
    assert leads_heading(Score("loss")) == f"Lead in loss over the best other method, {mean}:"
