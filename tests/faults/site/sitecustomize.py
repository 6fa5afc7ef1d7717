"""Imported by every interpreter below a command of the campaign that starts processes of its own, such as DVC."""

import os
import sys

from injection import Injection

if (_injection := Injection.of_environment(os.environ, sys.orig_argv)) is not None:
    _injection.install()
