"""What the server of attempts has in memory when it forks: imports, plug-ins, the syntax trees behind run keys."""

import ctypes
import gc
import warnings

import attempt  # noqa: F401
import pytest  # noqa: F401
import sklearn.datasets  # noqa: F401

import fedtide.cli.main
import fedtide.runs.compare
import fedtide.runs.execution  # noqa: F401
from fedtide.core import plugins
from fedtide.core.discovery.source import closure, fingerprint

_plugins = [plugins.load(kind, name).__module__ for kind in plugins.KINDS for name in plugins.names(kind)]
fingerprint(closure(["fedtide.federation.module", "fedtide.cli.stages", *_plugins]))

# Orphans of a command become children of the server, which reaps them at once; the machine's init may take seconds.
_PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")

gc.collect()
gc.freeze()  # what is imported is not searched for garbage by every command
