from torch import Tensor

from fedtide.core.plugins import PluginSettings
from fedtide.methods.uplink.base import Link, Sending


class HalfPrecision(Link):
    """Updates are sent in half precision."""

    place = 5

    class Settings(PluginSettings):
        name: str = "half_precision"

    def bits(self, size: int) -> int:
        return 16 * size

    def apply(self, D: Tensor, s: Sending) -> dict[str, Tensor]:
        D.copy_(D.half())
        return {}
