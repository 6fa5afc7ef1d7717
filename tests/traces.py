"""Synthetic traces of devices, in the formats of FedScale and FLASH."""

import json
import pickle
from pathlib import Path
from typing import Any


def fedscale_file(folder: Path, content: Any = None, protocol: int | None = None) -> Path:
    """A pickle; by default of three devices with periods of 200 to 400 seconds, the first one always active."""
    devices = {
        7: {"duration": 1, "active": [0], "inactive": [200], "finish_time": 200, "model": "a"},
        3: {"duration": 1, "active": [60, 250], "inactive": [119, 300], "finish_time": 300, "model": "b"},
        9: {"duration": 1, "active": [100], "inactive": [399], "finish_time": 400, "model": "c"},
    }
    path = folder / "client_behave_trace"
    path.write_bytes(pickle.dumps(devices if content is None else content, protocol=protocol))
    return path


def messages(*lines: tuple[str, str]) -> str:
    """A device's messages on the second of January 2020."""
    return "\n".join(f"2020-01-02 {time}\t{state}" for time, state in lines)


def flash_file(folder: Path, content: Any = None) -> Path:
    """A JSON file; by default of one device that is ready for an hour, and one that is ready half of the time."""
    ready = [("01:00:00", "battery_charged_on"), ("01:00:00", "Wifi"), ("01:00:00", "screen_lock")]
    half = [("01:02:00", "4g"), ("01:03:00", "wifi"), ("01:04:00", "screen_unlock")]
    devices = {
        "u1": {"guid": "1", "model": "m", "messages": messages(*ready, ("02:00:00", "screen_unlock"))},
        "u2": {"guid": "2", "model": "m", "messages": messages(*ready, *half)},
    }
    path = folder / "state_traces.json"
    path.write_text(json.dumps(devices if content is None else content), encoding="utf-8")
    return path
