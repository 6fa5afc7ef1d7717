"""20 Newsgroups, split by date."""

import re
from pathlib import Path, PurePosixPath
from typing import Literal

import torch
from pydantic import Field

from fedtide.world.data._text import BERT_VOCABULARY, encode
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.storage.sources import Resource, read_all

SPLITS = ("20news-bydate-train", "20news-bydate-test")

_QUOTE = re.compile(r"\s*[>|]|.*\b(?:writes|wrote|says|said)\s*:\s*$|\s*In article\b")
_RULE = re.compile(r"[\s-]*$")


class Newsgroups20(DatasetPlugin):
    """20 Newsgroups "bydate": 11,314 + 7,532 Usenet posts, 20 groups (collected by Lang 1995, version by Rennie).

    Groups are numbered alphabetically. Posts are Latin-1, as hashed words (``_text.py``), truncated or padded
    to ``length``. ``remove`` drops parts that give the group away without being about its subject: ``headers`` is everything
    up to the first empty line, ``quotes`` are lines that start with ``>`` or ``|`` or introduce a quotation, ``footers`` is
    what follows the last line that is empty or a row of dashes.
    """

    class Settings(DatasetSettings):
        name: str = "newsgroups20"
        remove: tuple[Literal["headers", "footers", "quotes"], ...] = Field((), description="parts to remove")
        length: int = Field(128, description="words per post", ge=1)
        vocabulary: int = Field(BERT_VOCABULARY, description="rows of the embedding table, row 0 is padding", ge=2)

    settings: Settings

    resources = (
        Resource(
            "20news-bydate.tar.gz",
            ("https://ndownloader.figshare.com/files/5975967",),
            "sha256:8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
            alternatives=("20news-bydate.tar.xz",),
        ),
    )

    def read(self, raw: Path) -> Dataset:
        """Token ids int64 [n, length], posts in the order of group and number."""
        files = read_all(self.resources[0].path(raw), _is_post)
        posts = {PurePosixPath(name).parts[-3:]: text for name, text in files.items()}
        groups = sorted({group for _, group, _ in posts})
        keys = [sorted(key for key in posts if key[0] == split) for split in SPLITS]
        length, vocabulary = self.settings.length, self.settings.vocabulary
        inputs = (encode((self._text(posts[key]) for key in part), length, vocabulary) for part in keys)
        labels = (torch.tensor([groups.index(group) for _, group, _ in part], dtype=torch.int64) for part in keys)
        return self.dataset("text", zip(inputs, labels, strict=True), num_classes=len(groups), vocabulary=vocabulary)

    def _text(self, post: bytes) -> str:
        text = post.decode("latin-1").replace("\r\n", "\n")
        if "headers" in self.settings.remove:
            text = text.partition("\n\n")[2]
        lines = text.strip().split("\n")
        if "quotes" in self.settings.remove:
            lines = [line for line in lines if not _QUOTE.match(line)]
        if "footers" in self.settings.remove:
            rules = [number for number, line in enumerate(lines) if number and _RULE.match(line)]
            lines = lines[: rules[-1]] if rules else lines
        return "\n".join(lines)


def _is_post(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return len(parts) >= 3 and parts[-3] in SPLITS
