"""Imports what executes runs: worker processes are forked from one that has imported this module."""

import contextlib

import fedtide.runs.execution

with contextlib.suppress(ImportError):  # a machine without tracking
    from mlflow.store.tracking import sqlalchemy_store  # noqa: F401

    import fedtide.tracking.mlflow
    import fedtide.world.picture  # noqa: F401
