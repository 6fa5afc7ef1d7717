"""What a dataset plug-in provides: files to fetch and a reader."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from fedtide.core.plugins import Plugin, PluginSettings
from fedtide.settings.kinds import DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.sources import Resource

__all__ = ["Dataset", "DatasetPlugin", "DatasetSettings"]


class DatasetPlugin(Plugin):
    """One dataset.

    ``resources`` lists the files to download (empty for data that ships with a library); ``read`` turns the raw folder
    into tensors. :mod:`fedtide.world.sources` handles downloads, mirrors and checksums, :mod:`fedtide.world.prepared`
    stores the tensors.
    """

    kind: ClassVar[str] = "data"

    Settings: ClassVar[type[PluginSettings]] = DatasetSettings
    settings: DatasetSettings

    resources: Sequence[Resource] = ()

    @abstractmethod
    def read(self, raw: Path) -> Dataset:
        """Tensors from the files under ``raw`` (``<root>/<name>/raw``); the caller fills ``digest``.

        Raises:
            SettingsError: a file is missing, truncated or not what its name says; the message names it and says what
                to place where.
        """
