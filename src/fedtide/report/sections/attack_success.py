"""The figure of successful attacks."""

from fedtide.records.frames import Records
from fedtide.report.charts.chart import Axis, Chart
from fedtide.report.charts.methods import lines_of_methods
from fedtide.report.charts.pictures import drawings
from fedtide.report.parts import figures

_SUCCESS = (
    "Share of test samples with the attackers' patch, of other labels than their target, that the model takes for the target. "
    "Lines: mean of the runs of a method; shading: range over its seeds."
)


def success(records: Records) -> Chart | None:
    """Success of a backdoor by round; None without one."""
    found = records.history.dropna(subset=["attack_success"]).rename(columns={"round": "x", "attack_success": "y"})
    if not len(found):
        return None
    return lines_of_methods(
        records, {"": found}, Axis("Round", whole=True), Axis("Attack success", True, low=0, high=1)
    )


figures.add(120, lambda source: drawings("attack_success", "Success of the attack", _SUCCESS, success(source.records)))
