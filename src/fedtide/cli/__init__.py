"""The command line."""

import sys

if sys.platform == "win32":  # before modules are imported that Python does not have there
    print(
        "fedtide: runs on Linux and macOS, not on Windows; use it in WSL 2 (Windows Subsystem for Linux)",
        file=sys.stderr,
    )
    sys.exit(2)
