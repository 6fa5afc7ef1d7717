"""Waiting for what other processes do, and ports for them."""

import socket
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
PATIENCE = 180.0  # seconds until something that must happen is given up


def until(condition: Callable[[], Found]) -> Found:
    """Ask again and again until the answer is true; returns it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)
    return found


def free_port() -> int:
    """A port of this machine that nobody listens to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
