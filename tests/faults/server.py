"""What the server of attempts has in memory when it forks: imports, plug-ins, and the syntax trees behind run keys."""

import pytest  # noqa: F401
import sklearn.datasets  # noqa: F401

import fedtide.cli
import fedtide.compare
import fedtide.progress
import fedtide.run  # noqa: F401
from fedtide import plugins
from fedtide.source import closure, fingerprint

_plugins = [plugins.load(kind, name).__module__ for kind in plugins.KINDS for name in plugins.names(kind)]
fingerprint(closure(["fedtide.federation.module", "fedtide.stages", *_plugins]))
