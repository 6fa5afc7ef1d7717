"""Imports what executes runs: worker processes are forked from one that has imported this module."""

import contextlib
import signal

# Ctrl-C and hangups reach every process; the one that the user started handles them.
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)

from fedtide.runs import execution, open_run  # noqa: E402, F401

with contextlib.suppress(ImportError):  # a machine without tracking
    from mlflow.store.tracking import sqlalchemy_store  # noqa: F401

    import fedtide.runs.mlflow.callback  # noqa: F401

open_run.read_sources()
