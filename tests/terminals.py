"""What a command draws in a terminal of 80 x 24."""

import fcntl
import os
import re
import struct
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def follow(screen: int, stop: Callable[[str], bool] = lambda text: False, *ours: int) -> str:
    """What is written to a terminal until it is closed; it gets Ctrl-C once ``stop`` is true of that.

    ``ours`` are descriptors that keep the terminal open until something is written to it.
    """
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    text, told, kept = "", False, list(ours)
    with suppress(OSError):  # the terminal is closed
        while part := os.read(screen, 1 << 16):
            text += part.decode(errors="replace")
            while kept:
                os.close(kept.pop())
            if not told and stop(text):
                os.write(screen, b"\x03")
                told = True
    os.close(screen)
    return text


def lines(text: str) -> list[str]:
    """Lines as they were drawn, one after another."""
    return [line for line in re.split(r"[\r\n]+", ESCAPE.sub("", text)) if line.strip()]


def bars(text: str, name: str) -> Iterator[re.Match[str]]:
    """Drawn bars of a name: rounds done, of how many, accuracy, times."""
    pattern = rf"{re.escape(name)} +━*[╸╺]?━* +(\d+)/(\d+) +(\d+\.\d%)? +(\d:\d\d:\d\d)( (\d:\d\d:\d\d|-:--:--))?"
    return filter(None, (re.match(pattern, line) for line in lines(text)))
