"""A download that can be resumed."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

RANGE_NOT_SATISFIABLE = 416
PARTIAL_CONTENT = 206


def download(url: str, part: Path, timeout: float = 30.0) -> None:
    """Download ``url`` to ``part``, resuming where an interrupted call stopped; the caller checks and renames the file.

    Raises:
        OSError, http.client.HTTPException: no response for ``timeout`` seconds, an HTTP error, a web page instead of data,
            or a connection that ended early; in the last case ``part`` keeps what has arrived.
    """
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "fedtide"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urlopen(Request(url, headers=headers), timeout=timeout)
    except HTTPError as error:
        if not have or error.code != RANGE_NOT_SATISFIABLE:
            raise
        part.unlink()  # at least as long as the file: not a part of it
        return download(url, part, timeout)
    with response:
        if response.headers.get_content_type() == "text/html":
            raise OSError("sent a web page instead of data")
        start = have if response.status == PARTIAL_CONTENT else 0
        with part.open("ab" if start else "wb") as writing:
            shutil.copyfileobj(response, writing, 1 << 20)
    announced = response.headers.get("Content-Length")
    size = part.stat().st_size
    if announced is not None and size != start + int(announced):
        raise OSError(f"the connection ended after {size} of {start + int(announced)} bytes")
    return None
