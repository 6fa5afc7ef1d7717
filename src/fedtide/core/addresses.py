"""Addresses of servers, with the credentials that they may contain kept apart."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit, urlunsplit

from fedtide.core.errors import SettingsError


def split_address(uri: str) -> tuple[str, str | None, str | None]:
    """Address, user and password of an HTTP URI.

    >>> split_address("https://me:secret@example.org/mlflow/")
    ('https://example.org/mlflow', 'me', 'secret')

    Raises:
        SettingsError: it is not the address of a server; the message does not show it.
    """
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in ("http", "https"):
        raise SettingsError("should be the address of a server, such as http://127.0.0.1:5000")
    place = f"[{host}]" if ":" in host else host
    address = urlunsplit((parts.scheme, f"{place}:{port}" if port else place, parts.path.rstrip("/"), "", ""))
    user, password = (None if word is None else unquote(word) for word in (parts.username, parts.password))
    return address, user, password
