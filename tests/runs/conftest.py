import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import shared_data
from fragile import marks
from small_runs import run_once, small, stop_after

__all__ = ["marks", "run_once", "shared_data", "small", "stop_after"]


@pytest.fixture
def dead_part() -> Callable[[Path], Path]:
    """Leaves what a process that was killed while it wrote a file leaves: ``dead_part(file)``."""
    script = "import sys; from fedtide.core.storage.files import part_suffix; print(part_suffix())"
    suffix = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()

    def leave(file: Path) -> Path:
        part = file.with_name(file.name + suffix)
        part.write_text("half")
        return part

    return leave
