"""Folders of images, one per class."""

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedtide.core.bounds import WHOLE
from fedtide.core.errors import SettingsError
from fedtide.world.adapters.pictures import Pictures, PictureSettings
from fedtide.world.adapters.tensors import from_tensors
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.splits.split import SplitSettings

_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_OF_SYSTEMS = ("__MACOSX", "@eaDir")


class ImageFolder(DatasetPlugin):
    """Images in one folder per class, as torchvision's ``ImageFolder`` reads them: ``path/cat/7.png``.

    Classes are the folders below ``path``, in sorted order; hidden folders and files are left out. ``client`` is the part of
    an image's path below ``path`` that names its client: the number of a folder (0 is the class, 1 the folder in it, ...), or
    a regular expression, whose group is the name if it has one. Pixels are uint8, divided by 255 when they are used.
    """

    class Settings(PictureSettings, DatasetSettings):
        name: str = "image_folder"
        path: str = Field("images", description="folder of the classes' folders")
        test: str | None = Field(
            None, description="folder of the test images; null: a share of every client's images is held out"
        )
        client: Annotated[Annotated[int, Field(ge=0)] | str | None, WHOLE] = Field(
            None, description="part of the path that names the client: a number or a regular expression; null: unknown"
        )
        channels: Annotated[Literal[1, 3], WHOLE] = Field(3, description="1: gray; 3: red, green, blue")
        split: SplitSettings = Field(SplitSettings(), description="which images are held out without test images")

        @model_validator(mode="after")
        def _possible(self) -> Self:
            try:
                groups = re.compile(self.client).groups if isinstance(self.client, str) else 0
            except re.error as error:
                raise SettingsError(f"client = {self.client!r} is not a regular expression ({error})") from None
            if groups > 1:
                raise SettingsError(f"client = {self.client!r} has {groups} groups; expected one, or none")
            return self

    settings: Settings

    def files(self) -> tuple[Path, ...]:
        folders = [Path(folder) for folder in (self.settings.path, self.settings.test) if folder is not None]
        return tuple(sorted(file for folder in folders for file in _walk(folder)))

    def read(self, raw: Path) -> Dataset:
        """Images uint8 [n, channels, height, width], in the order of their paths."""
        chosen = self.settings
        pictures = Pictures(chosen.model_dump(include=set(PictureSettings.model_fields)), "data.")
        found, test = _found("path", chosen.path), None
        classes = sorted(found)
        if empty := [name for name in classes if not found[name]]:
            problem = f"data.path = {chosen.path!r}: class {empty[0]!r} has no images ({', '.join(_ENDINGS)})"
            raise SettingsError(f"{problem}; add some, or remove its folder")
        train = self._samples(chosen.path, found, classes, pictures)
        if chosen.test is not None:
            held = _found("test", chosen.test)
            if unknown := sorted(name for name, files in held.items() if files and name not in found):
                problem = f"data.test: class {unknown[0]!r} is in {chosen.test} only"
                raise SettingsError(f"{problem}; add images of it to {chosen.path}, or remove its folder")
            test = self._samples(chosen.test, held, classes, pictures)
        return from_tensors(*train, test=test, classes=classes, split=chosen.split, name="image_folder")

    def _samples(
        self, folder: str, found: dict[str, list[Path]], classes: list[str], pictures: Pictures
    ) -> tuple[NDArray[np.uint8], list[int], list[str] | None]:
        """Images, labels and clients."""
        from PIL import Image

        labels, files = zip(
            *((label, file) for label, name in enumerate(classes) for file in found.get(name, ())), strict=True
        )
        clients = None if self.settings.client is None else [self._client(file.relative_to(folder)) for file in files]
        images = (pictures.read(partial(Image.open, file), str(file)) for file in files)
        return pictures.stack(images, len(files), lambda row: str(files[row])), list(labels), clients

    def _client(self, path: Path) -> str:
        wanted, name = self.settings.client, path.as_posix()
        if isinstance(wanted, int):
            found = path.parent.parts[wanted : wanted + 1]
        else:
            found = tuple(match[match.re.groups] for match in re.finditer(wanted or "", name))
        if not found or not found[0]:
            raise SettingsError(f"data.client = {wanted!r} finds no client in {name!r}")
        return found[0]


def _found(setting: str, folder: str) -> dict[str, list[Path]]:
    """The images of each class; other files are left out."""
    root = Path(folder)
    folders = [entry.name for entry in root.iterdir() if entry.is_dir()] if root.is_dir() else []
    found = {name: list[Path]() for name in folders if not _hidden(name)}
    for file in _walk(root):
        if file.parent != root and file.suffix.lower() in _ENDINGS:
            found[file.relative_to(root).parts[0]].append(file)
    if not any(found.values()):
        here = f"no folder of a class with images ({', '.join(_ENDINGS)})" if root.is_dir() else "no such folder"
        raise SettingsError(f"data.{setting} = {folder!r}: {here}")
    return found


def _walk(folder: Path) -> Iterator[Path]:
    """All files below a folder but hidden ones and those of the system, in torchvision's order."""
    tree: list[tuple[str, list[str]]] = []
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not _hidden(name)]
        tree.append((place, sorted(name for name in names if not _hidden(name))))
    return (Path(place, name) for place, names in sorted(tree) for name in names)


def _hidden(name: str) -> bool:
    return name.startswith(".") or name in _OF_SYSTEMS
