"""Availability of FLASH's devices."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import Field

from fedtide.core.errors import SettingsError
from fedtide.core.randomness import generator
from fedtide.world.presence.visits import merged
from fedtide.world.scenarios._presence import DeviceTrace, Replay, SecondsSettings, write_replays
from fedtide.world.scenarios.base import WorldInput
from fedtide.world.timeline import Timeline

_ORIGIN = datetime(2020, 1, 2)  # second 0; all times are read as UTC
_SETS = {
    "battery_charged_on": ("charged", True),
    "battery_charged_off": ("charged", False),
    "wifi": ("wifi", True),
    **dict.fromkeys(("unknown", "2g", "3g", "4g", "5g"), ("wifi", False)),
    "screen_lock": ("locked", True),
    "screen_unlock": ("locked", False),
    **dict.fromkeys(("screen_on", "screen_off"), ("screen", True)),
}
"""What a state changes; a device is ready while it is locked, charged and in a wireless network."""


class FlashTrace(DeviceTrace):
    """Devices come and go as in FLASH's ``state_traces.json``, round by round (Yang et al. 2021).

    A device is ready while it is locked, on wifi and charging. After its last message its trace starts again at the
    first; a client is present in a round if its device is ready in the round's first second, counted from 2020-01-02 00:00:00.
    Clients draw devices at random with replacement from those with a valid trace: every message is a time and a known state,
    there is an interval in which the device is ready, and the trace lasts a second. Times are read as UTC where FLASH
    uses local time. A round without anybody is refused. With ``mode: async`` a client is present while its device is ready.

    The reader follows the released code and has not been tested on a published file. Training does not pause while a device
    is not ready. A device that leaves loses its state, see scenario ``trace``.
    """

    class Settings(SecondsSettings):
        name: str = "flash_trace"
        file: str = Field("state_traces.json", description="path of the JSON file, relative to the working directory")

    settings: Settings

    def timeline(self, world: WorldInput) -> Timeline:
        devices = read_devices(Path(self.settings.file))
        drawn = generator(world.seed, "scenario.devices").integers(len(devices), size=self.settings.num_clients)
        return write_replays(world, self.settings, [devices[device] for device in drawn])


def read_devices(path: Path) -> list[Replay]:
    """The devices of a file that have a valid trace, in its order; a SettingsError if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"scenario.file = {str(path)!r} is not a readable JSON file: {error}") from None
    found = []
    for uid, device in content.items() if isinstance(content, dict) else ():
        messages = device.get("messages") if isinstance(device, dict) else None
        if not isinstance(messages, str):
            raise SettingsError(f"{path}, device {uid!r}: no text 'messages'")
        if (replay := parse_messages(messages)) is not None:
            found.append(replay)
    if not found:
        raise SettingsError(f"{path}: should hold a mapping of devices with messages; none has a valid trace")
    return found


def parse_messages(messages: str) -> Replay | None:
    """The trace in a device's messages, lines of ``YYYY-MM-DD HH:MM:SS<tab>state``; None if it is invalid."""
    try:
        times, ready = _states(messages)
    except ValueError:
        return None
    if not times or times[-1] - times[0] < 1:
        return None
    if not (intervals := merged(_intervals(times, ready))):
        return None
    return Replay(intervals, times[0], times[-1] - times[0])


def _states(messages: str) -> tuple[list[int], list[bool]]:
    """Second of every message, and whether the device is ready from then on."""
    state: dict[Any, bool] = dict.fromkeys(("locked", "wifi", "charged"), False)
    times, ready = [], []
    for line in filter(None, map(str.strip, messages.split("\n"))):
        time, text = (part.strip() for part in line.split("\t"))
        name = text.lower()
        if name in _SETS:
            key, value = _SETS[name]
            state[key] = value
        elif name.endswith("%"):
            float(name[:-1])
        else:
            raise ValueError(name)
        times.append(round((datetime.strptime(time, "%Y-%m-%d %H:%M:%S") - _ORIGIN).total_seconds()))
        ready.append(state["locked"] and state["wifi"] and state["charged"])
    return times, ready


def _intervals(times: list[int], ready: list[bool]) -> list[tuple[float, float]]:
    """From the message that makes the device ready to the first that ends it; an interval still open at the end is dropped."""
    found: list[tuple[float, float]] = []
    since = None
    for time, now in zip(times, ready, strict=True):
        if now and since is None:
            since = time
        elif not now and since is not None:
            found.append((since, time))
            since = None
    return found
