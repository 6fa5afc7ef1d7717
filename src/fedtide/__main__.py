"""``python -m fedtide``, also by ``torchrun -m``: the current folder, which Python puts first, is searched last."""

import sys

if not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))

from fedtide.cli.main import main

main()
