"""The contenders' environments: one virtual environment per library, from pinned requirements."""

import hashlib
import subprocess
import sys
from pathlib import Path


def python_of(library: str, folder: Path) -> str:
    """The interpreter of a library's environment below ``folder``, which is built unless it is there and up to date.

    Raises:
        subprocess.CalledProcessError: if venv or pip fails; ``stderr`` says why.
    """
    requirements = Path(__file__).with_name(f"{library}.txt")
    place = folder / library
    interpreter, stamp = place / "bin" / "python", place / "requirements.sha256"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return str(interpreter)
    _quiet(sys.executable, "-m", "venv", "--clear", str(place))
    _quiet(str(interpreter), "-m", "pip", "install", "--disable-pip-version-check", "-r", str(requirements))
    stamp.write_text(digest)
    return str(interpreter)


def _quiet(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
