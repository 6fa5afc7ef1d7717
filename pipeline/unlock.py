"""Before ``dvc repro``: remove the list of locks that a killed DVC has left empty or torn, which fails every later call."""

import json
from contextlib import ExitStack
from pathlib import Path

from zc.lockfile import LockError, LockFile

TEMPORARY = Path(".dvc/tmp")


def main() -> None:
    """Remove the file, unless it can be read or a DVC process is at work."""
    path = TEMPORARY / "rwlock"
    try:
        json.loads(path.read_bytes())
    except FileNotFoundError:
        return
    except ValueError:
        with ExitStack() as held:
            try:
                for name in ("lock", "rwlock.lock"):
                    held.callback(LockFile(str(TEMPORARY / name)).close)
            except LockError:
                print(f"{path}: damaged, but a DVC process is at work; when it has ended, run this command again")
                return
            path.unlink()
            print(f"{path}: removed, a killed DVC process had left it damaged")


if __name__ == "__main__":
    main()
