"""A view of an experiment in MLflow's UI: its runs, best first, with a few charts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedtide.mirror.server import Server
from fedtide.mirror.store import EXPERIMENT_TAGS, Store, reason

_NAME = "fedtide"
_PAGE = f"viewStateShareKey={_NAME}&compareRunsMode=CHART&workflowType=machine_learning"
_TAG = f"mlflow.sharedViewState.{_NAME}"  # where MLflow keeps the views that its button *Share* makes, in JSON

_COLUMNS = (
    *("tags.`algorithm`", "tags.`initialiser`", "tags.`seed`"),
    *("metrics.`test_accuracy`", "metrics.`test_loss`", "attributes.`Models`"),
)
_CHARTS = {
    "Learning": ("test_accuracy", "test_loss", "train_loss"),
    "Clients and traffic": ("present", "selected", "bytes_up"),
}
_FILTER = "tags.run_key != ''"  # runs without their parents, which have no metrics and would hide them


def view(where: Path | Server, experiment: str, address: str, log: Callable[[str], None]) -> str:
    """Store the view with the experiment; its page on the server of this address, or that of all experiments without it."""
    try:
        client = Store(where).client
        found = client.get_experiment_by_name(experiment)
        if found is None:
            return f"{address}/#/experiments"
        for key, value in {_TAG: json.dumps(_state(), separators=(",", ":")), **EXPERIMENT_TAGS}.items():
            if key == _TAG or key not in found.tags:
                client.set_experiment_tag(found.experiment_id, key, value)
    except Exception as error:  # whatever MLflow, SQLAlchemy or the network may raise
        log(f"MLflow: {reason(error)}")
        return address
    return f"{address}/#/experiments/{found.experiment_id}/runs?{_PAGE}"


def _state() -> dict[str, Any]:
    sections = [{"uuid": name, "name": name, "display": True, "isReordered": True} for name in _CHARTS]
    return {
        "searchFilter": _FILTER,
        "orderByKey": "metrics.`test_accuracy`",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "selectedColumns": _COLUMNS,
        "runsHiddenMode": "FIRST_20_RUNS",
        "compareRunSections": sections,
        "compareRunCharts": [_line(name, metric) for name, metrics in _CHARTS.items() for metric in metrics],
        "isAccordionReordered": True,
        "hideEmptyCharts": True,
    }


def _line(section: str, metric: str) -> dict[str, Any]:
    return {
        "type": "LINE",
        "uuid": metric,
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "metricSectionId": section,
        "isGenerated": True,
        "deleted": False,
        "runsCountToCompare": 20,
        "lineSmoothness": 0,
        "xAxisKey": "step",
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "range": {},
        "selectedXAxisMetricKey": "",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "ignoreOutliers": False,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
    }
