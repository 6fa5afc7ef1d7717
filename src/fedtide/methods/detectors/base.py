"""What a detector is: a test of a stream of losses for change, and what follows its alarm."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal

from pydantic import Field

from fedtide.core.bounds import LARGEST
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import Plugin, PluginSettings

SHARE = 0.1
"""Default of ``share``. A client's few losses are noisy: of a hundred clients that watch theirs, some alarm in any run."""


class DetectorSettings(PluginSettings):
    """What is watched, and the response to an alarm, which follows at the beginning of the next round."""

    watch: Literal["server", "clients"] = Field(
        "server",
        description="server: the mean training loss of the round; clients: the training loss of every participant, by a "
        "detector of its own that a client loses when it leaves",
    )
    share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="with `watch: clients`, share of the round's participants whose detectors have to alarm for a response; "
        f"null: {SHARE:g}",
    )
    response: Literal["none", "reset_memories", "reset_model", "raise_rate", "start_session"] = Field(
        "none",
        description="none: alarms are only recorded; reset_memories: the algorithm's memories of clients and server start "
        "again; reset_model: back to the first model of the session; raise_rate: `factor` times the local learning rate for "
        "`rounds` rounds; start_session: a session begins, with the initializer's model",
    )
    factor: float | None = Field(None, gt=0, description="of `raise_rate`")
    rounds: int = Field(5, ge=1, le=LARGEST, description="rounds of `raise_rate` after an alarm")

    def refuse_misfits(self) -> None:
        if self.response == "raise_rate" and self.factor is None:
            raise SettingsError(
                "detector.response = raise_rate requires factor, the multiplier of the local learning rate"
            )
        if self.response != "raise_rate" and self.factor is not None:
            raise SettingsError(
                f"detector.factor = {self.factor:g} is only used with response = raise_rate, got {self.response}"
            )
        if self.watch == "server" and self.share is not None:
            raise SettingsError(
                f"detector.share = {self.share:g} is only used with watch = clients; the server has a single detector"
            )


Stream = Callable[[float], bool]
"""Takes the losses of a stream one after the other, and says after each whether it raises an alarm."""

Watch = Callable[[float, int], bool]
"""The same, of losses and the numbers of their periods, within which clients train on the same samples."""


class Detector(Plugin):
    """Looks for change in streams of losses.

    A stream begins again after its alarm, and all of them do after a response. What it does may depend on nothing but its
    seed and the losses since: an interrupted run repeats them.
    """

    kind: ClassVar[str] = "detectors"
    Settings: ClassVar[type[PluginSettings]] = DetectorSettings

    @abstractmethod
    def begin(self, seed: int) -> Stream:
        """A new stream; ``seed``: for its draws, from 0 to 2^32 - 1."""

    def watch(self, seed: int) -> Watch:
        """A new stream that is told periods, which make no difference unless a detector says so."""
        alarms = self.begin(seed)
        return lambda loss, period: alarms(loss)

    def require(self) -> None:
        """Raise a SettingsError, before any work, if a package is not installed."""

    def libraries(self) -> dict[str, str]:
        """Versions of the packages that the alarms depend on, by name; recorded with the run."""
        return {}
