"""What a dataset plug-in provides: files to fetch and a reader."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from fedtide.core.plugins import Plugin, PluginSettings
from fedtide.settings.run import DatasetSettings
from fedtide.world.dataset import Dataset, Kind
from fedtide.world.storage.sources import Resource

__all__ = ["Dataset", "DatasetPlugin", "DatasetSettings"]


class DatasetPlugin(Plugin):
    """One dataset: ``read`` turns files into tensors.

    The class that defines ``read``, or one derived from it, declares its files: ``resources`` are those in the raw folder,
    with their addresses (:mod:`fedtide.world.storage.sources`); ``files`` names all others. The tensors are then stored, and
    used while the content of all these files is the same (:mod:`fedtide.world.storage.prepared`). A dataset without a
    declaration is read every time, and so is one that overrides ``read`` without a declaration of its own.
    """

    kind: ClassVar[str] = "data"

    Settings: ClassVar[type[PluginSettings]] = DatasetSettings
    settings: DatasetSettings

    resources: Sequence[Resource] = ()

    def files(self) -> Sequence[Path]:
        """Files outside the raw folder that ``read`` reads, all of them; folders are not files."""
        return ()

    @property
    def client_column(self) -> str | None:
        """Column that names the client of a row, in rows that a final model predicts; None if none does."""
        return None

    def dataset(self, kind: Kind, parts: Iterable[tuple[Tensor, Tensor]], num_classes: int, **others: Any) -> Dataset:
        """For :meth:`read`: a dataset of this name from the inputs and labels of the training and of the test set."""
        train, test = parts
        return Dataset(self.settings.name, kind, *train, *test, num_classes, digest="", **others)

    @abstractmethod
    def read(self, raw: Path) -> Dataset:
        """Tensors from the files under ``raw`` (``<root>/<name>/raw``) and from ``files``; the caller fills ``digest``.

        A file that is missing, truncated or not what its name says is a SettingsError that names it.
        """
