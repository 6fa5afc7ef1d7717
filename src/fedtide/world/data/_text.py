"""Token ids of texts: hashed into a table of fixed size, or learned from training texts."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

PADDING = 0
UNKNOWN = 1  # of a learned vocabulary
BERT_VOCABULARY = 30522  # rows of the table of published AG News models; only the size is the same here

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The lower-cased words of a text: runs of letters, digits and underscores."""
    return _WORD.findall(text.lower())


@lru_cache(maxsize=1 << 20)
def word_id(word: str, vocabulary: int) -> int:
    """Row of a word, 1..vocabulary-1: BLAKE2b of its UTF-8 bytes, the same on every machine.

    Two words may share a row (feature hashing, Weinberger et al. 2009).
    """
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return 1 + int.from_bytes(digest, "little") % (vocabulary - 1)


def encode(texts: Iterable[str], length: int, vocabulary: int = BERT_VOCABULARY) -> Tensor:
    """Token ids of n texts, cut or padded to ``length`` words: int64 [n, length], 0..vocabulary-1, where 0 is padding."""
    return padded(([word_id(word, vocabulary) for word in words(text)[:length]] for text in texts), length)


def learn(texts: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    """Ids of the most frequent tokens of some texts, from 2; ties in sorted order. ``size`` counts padding and unknown too."""
    counts = Counter(token for text in texts for token in text)
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    return {token: number for number, token in enumerate(ranked[: size - 2], start=UNKNOWN + 1)}


def padded(texts: Iterable[Sequence[int]], length: int) -> Tensor:
    """Token ids of texts, cut or padded at the end, int64 [n, length]."""
    rows = [text[:length] for text in texts]
    ids = np.full((len(rows), length), PADDING, dtype=np.int64)
    for row, found in zip(ids, rows, strict=True):
        row[: len(found)] = found
    return torch.from_numpy(ids)
