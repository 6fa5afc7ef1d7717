"""DVC stage: tables, figures and the page of the comparison."""

from pathlib import Path

import places
from fedtide.cli.exits import guarded
from fedtide.cli.options import PARAMS
from fedtide.cli.reporter import described, log, print_report


def main() -> None:
    """Build the report and print its table."""
    from fedtide.report.comparison import report  # with torch, which takes seconds
    from fedtide.runs.mlflow.results import record_report
    from fedtide.runs.workspace import workspace
    from fedtide.settings.params import Params

    params, worlds, out = Params.read(PARAMS), Path("worlds"), Path("report")
    summary = report(params, places.runs(), worlds, out, "dvc repro")
    where = workspace(params, places.runs(), worlds, places.mlruns())
    record_report(where, out, described(summary), log)
    print_report(summary)


if __name__ == "__main__":
    guarded(main)
