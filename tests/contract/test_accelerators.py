"""Nothing is left on the wrong device, and nothing takes its type from PyTorch's default; see on_standin.py."""

import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration

ROUNDS = Path(__file__).parent / "on_standin.py"


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this PyTorch has no devices written in Python",
)
@pytest.mark.slow
def test_rounds_on_a_stand_in_accelerator_are_those_on_the_cpu() -> None:
    """In a process of its own: a device is there for good, and PyTorch counts them once."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(ROUNDS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-1000:]
