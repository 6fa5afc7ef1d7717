"""Traces of FedScale and FLASH: what they say of every second, rounds of seconds, and files that are refused."""

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedtide.core.errors import SettingsError
from fedtide.world.presence.visits import Changes
from fedtide.world.scenarios.fedscale_trace import load_plain, read_devices
from fedtide.world.scenarios.flash_trace import parse_messages
from traces import fedscale_file, flash_file, messages
from worlds import presence, timeline, world

GOLDEN = json.loads((Path(__file__).parents[1] / "participation/availability_models.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", GOLDEN["fedscale"])
def test_fedscale_second_by_second(case, tmp_path):
    (tmp_path / "trace").write_bytes(pickle.dumps({0: case["trace"]}))
    (device,) = read_devices(tmp_path / "trace")
    assert device.available(np.array(case["seconds"])).tolist() == case["available"]


@pytest.mark.parametrize("case", GOLDEN["flash"])
def test_flash_second_by_second(case):
    device = parse_messages(case["trace"]["messages"])
    assert (device is not None) == case["valid"]
    if device is not None:
        assert [list(interval) for interval in device.intervals] == case["intervals"]
        assert (device.begin, device.begin + device.period) == (case["begin"], case["end"])
        assert device.available(np.array(case["seconds"])).tolist() == case["available"]


def test_rounds_of_seconds(tmp_path):
    """Devices 7, 3 and 9 of the file, in its order, dealt to four clients; a round is its first second."""
    file = str(fedscale_file(tmp_path))
    made = timeline("fedscale_trace", world(), file=file, num_clients=4, rounds=6, seconds_per_round=60)
    assert presence(made) == [[0, 3], [0, 1, 3], [0, 2, 3], [0, 2, 3], [0, 2, 3], [0, 2, 3]]
    assert made.sessions == 1
    later = timeline(
        "fedscale_trace", world(), file=file, num_clients=4, rounds=2, start_second=60, session_at_change=True
    )
    assert presence(later) == [[0, 1, 3], [0, 2, 3]]
    assert later.sessions == 2


@pytest.mark.parametrize(("scenario", "begin"), [("fedscale_trace", 0), ("flash_trace", 3600)])
def test_seconds_of_a_clock_of_events(tmp_path, scenario, begin):
    """A client is present in the seconds in which it is in rounds of a second, but for the last of each time."""
    file = str({"fedscale_trace": fedscale_file, "flash_trace": flash_file}[scenario](tmp_path))
    chosen = {"file": file, "num_clients": 5, "start_second": begin + 70, "seconds_per_round": 1, "rounds": 900}
    in_rounds = timeline(scenario, world(), **chosen)
    made = timeline(scenario, replace(world(), events=True), **chosen)
    assert presence(made) == [list(range(5))] * 900
    found = Changes(made.visits, 1.0)
    present = np.zeros((5, 900), dtype=np.bool_)
    for second, here in enumerate(presence(in_rounds)):
        present[here, second] = True
    lasts = present & ~np.roll(present, -1, axis=1)
    exactly = np.stack([found.present(now) for now in range(900)], axis=1)
    assert not (exactly & ~present).any()
    assert not (present & ~exactly & ~lasts).any()


def test_devices_of_flash_are_drawn_from_the_valid_ones(tmp_path):
    ready = json.loads(flash_file(tmp_path).read_text())
    content = {**ready, "u3": {"guid": "3", "model": "m", "messages": messages(("01:00:00", "flight_mode"))}}
    chosen = {"num_clients": 40, "rounds": 4, "start_second": 3600 + 90, "seconds_per_round": 60}
    made = timeline("flash_trace", world(), file=str(flash_file(tmp_path, content)), **chosen)
    first, second, third, fourth = presence(made)
    assert first == third == fourth == list(range(40))  # the second device repeats after four minutes
    assert 0 < len(second) < 40  # without wifi from 1:02 to 1:03
    again = timeline("flash_trace", world(seed=1), file=str(flash_file(tmp_path, content)), **chosen)
    assert presence(again) != presence(made)


@pytest.mark.parametrize(
    "text",
    [
        "",
        messages(("01:00:00", "wifi")),
        messages(("01:00:00", "wifi"), ("02:00:00", "airplane")),
        messages(("01:00:00", "wifi"), ("02:00:00", "x%")),
        "2020-01-02 25:00:00\twifi",
        messages(*((f"0{k}:00:00", state) for k, state in enumerate(("wifi", "screen_lock", "battery_charged_on")))),
        messages(*(("01:00:00", state) for state in ("wifi", "screen_lock", "battery_charged_on", "screen_unlock"))),
    ],
)
def test_invalid_traces_of_flash(text):
    """Unknown states, unreadable lines, never ready or never to its end, no second long."""
    assert parse_messages(text) is None


def test_intervals_that_touch_are_one():
    """Also: blank lines, levels of the battery, and another state while ready."""
    text = messages(
        *(("01:00:00", state) for state in ("wifi", "screen_lock", "battery_charged_on")),
        *(("01:10:00", "4G"), ("01:10:00", "WIFI"), ("01:15:00", "57.5%"), ("01:20:00", "screen_unlock")),
    )
    device = parse_messages(text.replace("\n", "\n \n"))
    assert device is not None
    assert list(device.intervals) == [(3600, 4800)]


class Command:
    """A pickle that would run a command when it is loaded."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", [0, pickle.HIGHEST_PROTOCOL])
def test_a_pickle_runs_nothing(tmp_path, protocol):
    target = tmp_path / "owned"
    file = fedscale_file(tmp_path, {1: Command(f"touch {target}")}, protocol)
    with pytest.raises(
        SettingsError, match=r"is not a pickle of plain containers, text and numbers: it names \w+\.system$"
    ):
        load_plain(file)
    assert not target.exists()


@pytest.mark.parametrize("damage", [b"", b"cos\nsystem\n(tR.", b"Pid\n."])
def test_damaged_pickles_are_refused(tmp_path, damage):
    file = tmp_path / "trace"
    file.write_bytes(damage)
    with pytest.raises(SettingsError, match=r"is not a pickle of plain containers, text and numbers: .") as caught:
        load_plain(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "should hold a dict of devices, got list"),
        ({4: {"active": [1], "inactive": [2]}}, "device 4: finish_time"),
        ({"x": {"active": [1], "inactive": ["2"], "finish_time": 9}}, "device 'x': inactive.0 = '2'"),
        ({4: {"active": [1, 3], "inactive": [2], "finish_time": 9}}, "device 4: 2 active and 1 inactive seconds"),
        ({4: {"active": [1], "inactive": [2], "finish_time": 0}}, "device 4: finish_time = 0: "),
    ],
)
def test_invalid_traces_of_fedscale_are_refused_by_device(tmp_path, content, message):
    file = fedscale_file(tmp_path, content)
    with pytest.raises(SettingsError) as caught:
        timeline("fedscale_trace", world(), file=str(file))
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a readable JSON file"),
        ("[]", "should hold a mapping of devices"),
        ('{"u": {}}', "device 'u': no text 'messages'"),
        ('{"u": {"messages": "x"}}', "none has a valid trace"),
    ],
)
def test_invalid_files_of_flash_are_refused(tmp_path, text, message):
    file = tmp_path / "traces.json"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        timeline("flash_trace", world(), file=str(file))
    assert message in str(caught.value)
    with pytest.raises(SettingsError, match="is not a readable JSON"):
        timeline("flash_trace", world(), file=str(tmp_path / "none.json"))
    with pytest.raises(SettingsError, match="cannot be read"):
        timeline("fedscale_trace", world(), file=str(tmp_path / "none"))
