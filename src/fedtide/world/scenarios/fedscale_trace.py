"""Availability of FedScale's devices."""

import pickle
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from fedtide.core.errors import SettingsError
from fedtide.core.plugins import SettingsModel
from fedtide.settings.params import parse
from fedtide.world.scenarios._presence import DeviceTrace, Replay, SecondsSettings, write_replays
from fedtide.world.scenarios.base import WorldInput
from fedtide.world.timeline import Timeline


class FedscaleTrace(DeviceTrace):
    """Devices come and go as in FedScale's ``client_behave_trace``, round by round.

    Client i follows the (i mod number of devices)-th device of the file. It is present in a round if it is active in the
    round's first second s: if ``active[j] <= s mod finish_time <= inactive[j]`` for some j. FedScale's code keeps an index
    that moves by at most one interval per query and so differs in a tenth of the seconds. A round without anybody is refused.
    With ``mode: async`` it is present from ``active[j]`` up to ``inactive[j]``, whatever the round.

    The file is a pickle of plain containers, text and numbers; nothing else is constructed. The reader follows the released
    code and has not been tested on a published file. A device that leaves loses its state, as in ``trace``.
    """

    class Settings(SecondsSettings):
        name: str = "fedscale_trace"
        file: str = Field("client_behave_trace", description="path of the pickle, relative to the working directory")

    settings: Settings

    def timeline(self, world: WorldInput) -> Timeline:
        devices = read_devices(Path(self.settings.file))
        chosen = [devices[client % len(devices)] for client in range(self.settings.num_clients)]
        return write_replays(world, self.settings, chosen)


def read_devices(path: Path) -> list[Replay]:
    """The devices of a file, in its order; an invalid trace is a SettingsError that names it."""
    content = load_plain(path)
    if not isinstance(content, dict) or not content:
        raise SettingsError(f"{path}: should hold a dict of devices, got {type(content).__name__}")
    devices = [parse(_Device, trace, f"{path}, device {key!r}") for key, trace in content.items()]
    return [Replay(list(zip(each.active, each.inactive, strict=True)), 0, each.finish_time) for each in devices]


class _Device(SettingsModel, extra="ignore"):
    active: tuple[float, ...]
    inactive: tuple[float, ...]
    finish_time: float = Field(ge=1)

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        if len(self.active) != len(self.inactive):
            raise SettingsError(f"{len(self.active)} active and {len(self.inactive)} inactive seconds")
        return self


class _PlainUnpickler(pickle.Unpickler):
    """Refuses every class and function by name; references to objects outside the file are refused by default."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def load_plain(path: Path) -> Any:
    """The content of a pickle of plain containers, text and numbers; anything else is a SettingsError."""
    try:
        with path.open("rb") as stream:
            return _PlainUnpickler(stream).load()
    except OSError as error:
        raise SettingsError(f"scenario.file = {str(path)!r} cannot be read: {error.strerror}") from None
    except Exception as error:  # a damaged pickle fails in any way at all
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SettingsError(f"{path} is not a pickle of plain containers, text and numbers: {reason}") from None
