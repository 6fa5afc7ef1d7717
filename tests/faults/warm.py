"""What the server of the campaign has in memory: all that any of its commands imports."""

import gc
import threading

import matplotlib.pyplot  # noqa: F401
import optuna.importance
import optuna.storages.journal
import optuna.visualization.matplotlib  # noqa: F401
import server  # noqa: F401
import sklearn.ensemble  # noqa: F401

import fedtide.cli.commands.reproduce
import fedtide.report.build
import fedtide.runs.jobs.preload
import fedtide.runs.mlflow.results
import fedtide.studies.reproduce.reproduce
import fedtide.studies.tuning.study  # noqa: F401

assert threading.active_count() == 1, "a process with threads must not fork"
gc.collect()
gc.freeze()
