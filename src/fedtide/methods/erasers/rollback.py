"""Return to an earlier model."""

from pydantic import Field
from torch import Tensor

from fedtide.methods.erasers.base import Eraser, EraserSettings, Erasing


class Rollback(Eraser):
    """The last stored model that the clients had no part in; the rounds since are lost.

    Stored are the models before rounds 0, m, 2m, ... It is exact if nobody else took part since then.
    """

    class Settings(EraserSettings):
        name: str = "rollback"
        every: int = Field(1, ge=1, description="rounds m between stored models")

    settings: Settings

    def keeps_model(self, t: int) -> bool:
        return t % self.settings.every == 0

    def erase(self, e: Erasing) -> Tensor:
        e.note(back_to=(target := max(t for t in e.models if e.clean(t))))
        return e.model(target)

    def on_stored(self, e: Erasing, session: int, w: Tensor) -> Tensor:
        return self.erase(e)
