"""Real MLflow servers on the loopback interface, and one that never answers."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from waiting import free_port


class MlflowServer:
    """``mlflow server`` on a database and a folder of artifacts; can be killed and started again on its port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it answers."""
        options = {
            "--backend-store-uri": f"sqlite:///{self.folder / 'mlflow.db'}",
            "--artifacts-destination": str(self.folder / "artifacts"),
            "--host": "127.0.0.1",
            "--port": str(self.port),
            "--workers": "1",
        }
        command = [sys.executable, "-m", "mlflow", "server", *(word for pair in options.items() for word in pair)]
        environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        self._process = subprocess.Popen(
            command, env={**os.environ, **environment}, text=True, start_new_session=True, **streams
        )
        assert self._process.stderr is not None
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            if "Uvicorn running on" in line:
                return
        raise AssertionError("".join(lines))

    def kill(self) -> None:
        """SIGKILL for all of its processes."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextmanager
def silent_server() -> Iterator[str]:
    """A server that accepts connections and never answers; its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
