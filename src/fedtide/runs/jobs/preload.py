"""Imports what executes runs: worker processes are forked from one that has imported this module."""

import contextlib
import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the one that the user started handles it

from fedtide.runs import callbacks, execution, loggers, own_callbacks, pilots, trainer  # noqa: E402, F401

with contextlib.suppress(ImportError):  # a machine without tracking
    from mlflow.store.tracking import sqlalchemy_store  # noqa: F401

    import fedtide.mirror.background
    import fedtide.world.picture  # noqa: F401
