"""Where MLflow is: a folder, an SQLite file, or a server or database with the user's credentials."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError, without_credentials
from fedtide.settings.experiment import split_address

DATABASES = (".db", ".sqlite", ".sqlite3")
"""Suffixes by which a path names an SQLite file instead of a folder."""

_REMOTE = ("postgres", "mysql", "mssql")  # databases that may be out of reach

_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # which is for the results of commands
}


@dataclass(frozen=True)
class Server:
    """A server's address without credentials, and these apart, so that no message, tag or file can hold them.

    ``uri``: what MLflow is given instead of the address, where that is not HTTP's.

    >>> Server.at("https://me:secret@tracking.example/mlflow/")
    Server(address='https://tracking.example/mlflow')
    """

    address: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    uri: str | None = field(default=None, repr=False)

    @classmethod
    def at(cls, uri: str) -> Server:
        """The server at a URI, which may contain a user and a password.

        Raises:
            SettingsError: it is not the address of a server; the message does not show it.
        """
        return cls(*split_address(uri))

    def __str__(self) -> str:
        return self.address

    def client(self) -> Any:
        """MLflow's client, which gets the credentials, and short limits where the user has set none.

        Raises:
            Exception: whatever MLflow or SQLAlchemy raise if it has no such store, or a database cannot be reached.
        """
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from sqlalchemy import create_engine

        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        for name, word in (("MLFLOW_TRACKING_USERNAME", self.user), ("MLFLOW_TRACKING_PASSWORD", self.password)):
            if word is not None:
                os.environ[name] = word
        logging.getLogger("urllib3").setLevel(logging.ERROR)  # we report what cannot be sent, once
        logging.getLogger("mlflow").setLevel(logging.CRITICAL)
        if self.uri is not None and self.uri.startswith(_REMOTE):
            create_engine(self.uri).connect().close()  # first: MLflow would try for minutes
        return MlflowClient(tracking_uri=self.uri or self.address)

    def reach(self) -> None:
        """Ask it for something; raises what :meth:`client` does, or what the request does."""
        self.client().search_experiments(max_results=1)


def place_of(named: str | Path) -> Path | Server:
    """The folder, SQLite file (absolute paths) or server that a path or a URI names, such as ``MLFLOW_TRACKING_URI``.

    URIs of other kinds, such as ``databricks``, are left to MLflow and its plug-ins.

    Raises:
        SettingsError: a wrong address of a server, which is not shown, since it may contain a password.
    """
    uri = str(named)
    if uri.startswith(("http://", "https://")):
        try:
            return Server.at(uri)
        except SettingsError as error:
            raise SettingsError(
                f"MLFLOW_TRACKING_URI (or --mlruns, FEDTIDE_MLRUNS) = {uri.partition(':')[0]}:...: {error}; or set "
                "tracking.mlflow=false"
            ) from None
    file = Path(uri.removeprefix("sqlite:///").partition("?")[0]) if uri.startswith("sqlite:///") else None
    if file is not None and file.suffix in DATABASES:
        return file.resolve()
    if re.match(r"\w[\w+.-]+:/|(databricks|file|uc|arn)(:|$)", uri):
        return Server(without_credentials(uri.partition("?")[0]), uri=uri)
    return Path(named).resolve()
