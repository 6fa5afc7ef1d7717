"""The MLflow mirror of the run directories."""

import getpass
import os
import tempfile
from pathlib import Path

# MLflow asks for the user's name and home, also while it is imported; in a container, a user may have neither.
try:
    getpass.getuser()
except (KeyError, OSError):  # the latter since Python 3.13
    os.environ["LOGNAME"] = str(os.getuid())
try:
    Path.home()
except RuntimeError:
    os.environ["HOME"] = tempfile.gettempdir()
