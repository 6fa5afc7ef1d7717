"""What a dataset plug-in provides: files to fetch and a reader."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fedtide.data.dataset import Dataset
from fedtide.plugins import Plugin, PluginSettings

if TYPE_CHECKING:
    from fedtide.data.sources import Resource


PLACES = frozenset({"root", "mirror"})  # settings that say where files lie and never what a dataset holds


class DatasetSettings(PluginSettings):
    """Settings that every dataset has."""

    root: str = Field("data", description="folder for downloaded and prepared files")
    mirror: str | None = Field(None, description="folder searched before the network; default: $FEDTIDE_MIRROR")


class DatasetPlugin(Plugin):
    """One dataset.

    ``resources`` lists the files to download (empty for data that ships with a library); ``read`` turns the raw folder
    into tensors. Downloading, mirrors and checksums are the business of :mod:`fedtide.data.sources`, keeping the
    tensors is that of :mod:`fedtide.data.prepared`.
    """

    Settings: ClassVar[type[PluginSettings]] = DatasetSettings

    resources: Sequence[Resource] = ()

    @abstractmethod
    def read(self, raw: Path) -> Dataset:
        """Tensors from the files under ``raw`` (``<root>/<name>/raw``); the caller fills ``digest``.

        Raises:
            SettingsError: a file is missing, truncated or not what its name says; the message names it and says what
                to place where.
        """
