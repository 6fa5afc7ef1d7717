"""An MLflow server: its address, the user's credentials, and how long to wait for it."""

from __future__ import annotations

import getpass
import logging
import os
import platform
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from fedtide.core.addresses import split_address
from fedtide.core.hashing import short_hash

SECONDS = 5
"""Longest wait for an answer, unless the user's environment says otherwise."""

_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(SECONDS),
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # which is for the results of commands
}


class Unreachable(OSError):
    """A server does not answer."""


@dataclass(frozen=True)
class Server:
    """A server's address without credentials, and these apart, so that no message, tag or file can hold them.

    >>> Server.at("https://me:secret@tracking.example/mlflow/")
    Server(address='https://tracking.example/mlflow')
    """

    address: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @classmethod
    def at(cls, uri: str) -> Server:
        """The server at a URI, which may contain a user and a password.

        Raises:
            SettingsError: it is not the address of a server; the message does not show it.
        """
        return cls(*split_address(uri))

    @property
    def artifacts(self) -> None:
        """Where an experiment has its artifacts: the server decides."""
        return

    @property
    def tags(self) -> Mapping[str, str]:
        """Of every run that this machine sends: run directories of other machines are not expected here."""
        return {"machine": platform.node()}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes of this user and machine from creating anything there."""
        name = f"fedtide-{short_hash([getpass.getuser(), self.address])}.lock"
        with FileLock(str(Path(tempfile.gettempdir()) / name), timeout=60):
            yield

    def open(self) -> str:
        """Tracking URI of a server that answers. MLflow gets the credentials, and short limits where the user has set none.

        Raises:
            Unreachable: it does not.
        """
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        for name, word in (("MLFLOW_TRACKING_USERNAME", self.user), ("MLFLOW_TRACKING_PASSWORD", self.password)):
            if word is not None:
                os.environ[name] = word
        logging.getLogger("urllib3").setLevel(logging.ERROR)  # we report what cannot be sent, once
        self.call()
        return self.address

    def call(self, seconds: float = SECONDS) -> None:
        """Wait for an answer, any answer.

        Raises:
            Unreachable: there is none within this time; the message names the server.
        """
        try:
            with urllib.request.urlopen(f"{self.address}/health", timeout=seconds):
                return
        except urllib.error.HTTPError as error:
            if error.code < 500:  # for instance, unauthorised
                return
            why = f"status {error.code}"
        except (OSError, ValueError) as error:
            inner = getattr(error, "reason", error)
            why = getattr(inner, "strerror", None) or str(inner)
        raise Unreachable(f"{self.address} does not answer ({why})")


def is_silence(error: BaseException | None) -> bool:
    """Whether an error means that a server did not answer, rather than what it answered."""
    while error is not None:
        if isinstance(error, Unreachable) or type(error).__module__.split(".")[0] in ("requests", "urllib3"):
            return True
        error = error.__cause__ or error.__context__
    return False
