"""The whole of ``params.yaml``: the settings of a run, and of comparison, tuning, report and tracking."""

from __future__ import annotations

import re
import warnings
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from fedtide.core.bounds import Threads
from fedtide.core.errors import SettingsError, nearest
from fedtide.core.plugins import OMIT_DEFAULT, SettingsModel
from fedtide.settings.groups.tuning import TuneSettings
from fedtide.settings.run import Imported, RunSettings, Seed
from fedtide.settings.scores import RECORDED, Score, ScoreName, main_score, score_of

LOCAL = "local"
BATCH_SYSTEMS = {
    "htcondor": "HTCondorCluster",
    "lsf": "LSFCluster",
    "moab": "MoabCluster",
    "oar": "OARCluster",
    "pbs": "PBSCluster",
    "sge": "SGECluster",
    "slurm": "SLURMCluster",
}
"""Batch systems, and the classes of dask-jobqueue that submit their jobs."""

_ADDRESS = re.compile(r"([a-z]+://)?[^\s/:]+:\d+|[a-z]+://[^\s/:]+(:\d+)?")


def _known(value: str) -> str:
    if value and value not in (LOCAL, *BATCH_SYSTEMS) and not _ADDRESS.fullmatch(value):
        problem = f"{value!r} is neither an address such as tcp://host:8786 nor a known name"
        raise SettingsError(nearest(problem, value, (LOCAL, *BATCH_SYSTEMS)))
    return value


ClusterName = Annotated[str, AfterValidator(_known)]
"""The address of a Dask scheduler, ``local``, or the name of a batch system; empty for no cluster."""


class CompareSettings(SettingsModel):
    """The grid of ``fedtide compare`` and of the training stage."""

    algorithms: tuple[str, ...] = Field(("fedavg",), min_length=1, description="labels of algorithms")
    initializers: tuple[str, ...] = Field(("previous",), min_length=1, description="labels of initializers")
    seeds: tuple[Seed, ...] = Field((0,), min_length=1, description="seeds")
    workers: Threads = Field(0, ge=0, description="runs at once; 0 for one per core")
    cluster: ClusterName = Field(
        "",
        description="where runs, also those of a search, are executed: empty: by processes of the command; otherwise by Dask "
        "workers: the address of a scheduler, local, or a batch system (slurm, pbs, sge, lsf, ...)",
    )
    runs_per_card: int = Field(
        0, ge=0, description="runs, also of a search, that share a GPU; 0: as many as fit, on a cluster one"
    )
    allow_failures: bool = Field(
        False, description="exit with status 0 even if runs diverged or failed; otherwise with 1, after all runs"
    )

    @field_validator("algorithms", "initializers", "seeds")
    @classmethod
    def _distinct(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if twice := [item for place, item in enumerate(value) if item in value[:place]]:
            raise SettingsError(f"lists {twice[0]!r} twice")
        return value


class ReportSettings(SettingsModel):
    """The report."""

    title: str = Field("Comparison", description="title of the page")
    metric: ScoreName = Field(
        "accuracy",
        description="headline test metric, also of the table and its comparisons; except accuracy and loss, it must "
        "be among `evaluation.metrics`; served_: of the models that clients are served, each sample by its owner's; others "
        "are of the global model; `_next`: on the next period, with `scenario.next_period: 1`, averaged over periods; if not "
        "given, r2 for regression, mean_ap for multilabel, and with `scenario.next_period: 1` the served one of those on the "
        "next period",
    )
    last: int = Field(10, ge=1, description="rounds averaged in the table")
    target: float | None = Field(
        None,
        gt=0,
        description="value of `metric` for rounds to target; null: 90 % of the best method's mean over the last rounds (of a "
        "metric to minimize, that mean divided by 0.9)",
    )
    baseline: str = Field("fedavg", description="label of the baseline algorithm of speed-ups")
    transition_window: int = Field(10, ge=1, description="rounds averaged after a session change")
    transition_counting: Literal["stored", "all"] = Field(
        "stored",
        description="sessions that count as transitions: stored: those that return to clients with a stored model (as "
        "published), or all if there are none; all: every one after the pilot",
    )
    reference: str = Field("dynamic", description="label of the baseline initializer of recovery")
    rho: float = Field(0.95, gt=0, le=1, description="share of the reference's peak accuracy that counts as recovery")

    formats: tuple[Literal["png", "svg", "pdf"], ...] = Field(
        ("png",), min_length=1, description="file formats of figures; `png` is always written"
    )
    trees: Annotated[str | None, OMIT_DEFAULT] = Field(
        None, description="file `trees.csv` of `fedtide trees`, whose baselines are shown beside the methods"
    )

    @model_validator(mode="after")
    def _target_in_range(self) -> ReportSettings:
        if self.target is not None and self.target > 1 and Score(self.metric).share:
            raise SettingsError(f"target = {self.target:g}: should be less than or equal to 1")
        return self


def split_address(uri: str) -> tuple[str, str | None, str | None]:
    """Address, user and password of an HTTP URI.

    >>> split_address("https://me:secret@example.org/mlflow/")
    ('https://example.org/mlflow', 'me', 'secret')

    Raises:
        SettingsError: it is not the address of a server; the message does not show it.
    """
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in ("http", "https"):
        raise SettingsError("should be the address of a server, such as http://127.0.0.1:5000")
    place = f"[{host}]" if ":" in host else host
    address = urlunsplit((parts.scheme, f"{place}:{port}" if port else place, parts.path.rstrip("/"), "", ""))
    user, password = (None if word is None else unquote(word) for word in (parts.username, parts.password))
    return address, user, password


with warnings.catch_warnings():
    # A class of settings has a method `register`, of its metaclass; settings, its instances, have none.
    warnings.filterwarnings("ignore", 'Field name "register"')

    class TrackingSettings(SettingsModel):
        """MLflow, and other trackers."""

        mlflow: bool = Field(True, description="log runs to MLflow")
        experiment: str | None = Field(
            None, min_length=1, description="name of the MLflow experiment; null: MLFLOW_EXPERIMENT_NAME, or fedtide"
        )
        uri: str | None = Field(
            None, description="address of an MLflow server, http(s)://; null: MLFLOW_TRACKING_URI, or the folder mlruns"
        )
        model: bool = Field(
            True, description="log the final model of a complete run as an MLflow model; never that of a search's trial"
        )
        register: str | None = Field(
            None, min_length=1, description="name under which that model is registered, a new version for every run"
        )
        loggers: tuple[Imported, ...] = Field(
            (),
            description="Lightning loggers called every round, each {path: lightning.pytorch.loggers.CSVLogger, "
            "arguments: {...}}; `save_dir` defaults to the run directory",
        )

        @field_validator("uri")
        @classmethod
        def _address(cls, value: str | None) -> str | None:
            if value is not None:
                split_address(value)
            return value

        @field_validator("register")
        @classmethod
        def _registrable(cls, value: str | None) -> str | None:
            if value is not None and (re.search("[/:]", value) or value.strip() in ("", ".") or value.startswith("..")):
                raise SettingsError(f"should be a name that MLflow takes, without / and :, got {value!r}")
            return value

        @model_validator(mode="after")
        def _registers_a_model(self) -> TrackingSettings:
            if self.register is not None and not self.model:
                raise SettingsError(f"register = {self.register!r} requires model = true")
            return self


class Experiment(RunSettings):
    """The whole of ``params.yaml``."""

    algorithms: dict[str, dict[str, Any]] = Field(
        {}, description="settings by label; `name` defaults to the label; `with` overrides other settings of the run"
    )
    initializers: dict[str, dict[str, Any]] = Field({}, description="the same for initializers")
    compare: CompareSettings = Field(CompareSettings(), description="the grid of a comparison")
    tune: TuneSettings = Field(TuneSettings(), description="the search")
    report: ReportSettings = Field(ReportSettings(), description="the report")
    tracking: TrackingSettings = Field(TrackingSettings(), description="MLflow and other trackers")

    def for_its_task(self) -> Experiment:
        """The same with the task's main score where the report's or the search's metric is not given.

        On the next period, of what clients are served, where the scenario has ``next_period`` set.

        Raises:
            SettingsError: one is given that runs of the task do not record.
        """
        changed: dict[str, SettingsModel] = {}
        task = self.task
        main = main_score(task).next.of_served if getattr(self.scenario, "next_period", 0) else main_score(task)
        for group, scored, default in (
            ("report", Score(self.report.metric), main.name),
            ("tune", score_of(self.tune.metric), f"validation_{main.name}"),
        ):
            chosen: ReportSettings | TuneSettings = getattr(self, group)
            given = "metric" in chosen.model_fields_set
            if scored.fits(task) and (given or chosen.metric == default):
                continue
            if given:
                raise SettingsError(
                    f"{group}.metric = {chosen.metric}: with objective {self.objective.name} runs record "
                    f"{', '.join(RECORDED[task])}"
                )
            changed[group] = chosen.model_copy(update={"metric": default})
        return self.model_copy(update=changed)


RUN_KEYS = tuple(RunSettings.model_fields)

TABLES = {"algorithm": "algorithms", "initializer": "initializers"}
"""Settings of a run whose name may be a label, and the tables of labels."""
