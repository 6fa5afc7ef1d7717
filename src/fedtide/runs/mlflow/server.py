"""Where MLflow is: a folder, an SQLite file, or a server with the user's credentials."""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedtide.core.errors import SettingsError
from fedtide.settings.experiment import split_address

DATABASES = (".db", ".sqlite", ".sqlite3")
"""Suffixes by which a path names an SQLite file instead of a folder."""

_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # which is for the results of commands
}


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

    def __str__(self) -> str:
        return self.address

    def configure(self) -> None:
        """Give MLflow the credentials, and short limits where the user has set none."""
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        for name, word in (("MLFLOW_TRACKING_USERNAME", self.user), ("MLFLOW_TRACKING_PASSWORD", self.password)):
            if word is not None:
                os.environ[name] = word
        logging.getLogger("urllib3").setLevel(logging.ERROR)  # we report what cannot be sent, once


def place_of(named: str | Path) -> Path | Server:
    """The folder, SQLite file (absolute paths) or server that a path or a URI names, such as ``MLFLOW_TRACKING_URI``.

    Raises:
        SettingsError: a URI of another kind, which is not shown, since it may contain a password.
    """
    uri = str(named)
    if uri.startswith(("http://", "https://")):
        with suppress(SettingsError):  # raised below, with the key
            return Server.at(uri)
    file = Path(uri.removeprefix("sqlite:///").partition("?")[0]) if uri.startswith("sqlite:///") else None
    if file is not None and file.suffix in DATABASES:
        return file.resolve()
    if "://" in uri or re.match("(databricks|file|uc)(:|$)", uri):
        raise SettingsError(
            f"MLFLOW_TRACKING_URI (or --mlruns, FEDTIDE_MLRUNS) = {uri.partition(':')[0]}:...: should be a server, such as "
            "http://127.0.0.1:5000, an SQLite file, such as sqlite:///mlflow.db, or a folder, such as mlruns"
        )
    return Path(named).resolve()
