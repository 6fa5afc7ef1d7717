"""The address of an MLflow server, and the user's credentials."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field

from fedtide.settings.experiment import split_address

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
