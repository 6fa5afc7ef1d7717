"""Small files in the true raw formats of image datasets, full of noise."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile

import numpy as np


def noise(seed, *shape):
    """Gray values of that shape."""
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def idx(array):
    """An array of bytes as a gzipped IDX file."""
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0)


def write_emnist(path, train=3, test=1):
    """The archive of EMNIST with some images of every letter."""
    with zipfile.ZipFile(path, "w") as archive:
        for split, per_letter in (("train", train), ("test", test)):
            labels = np.tile(np.arange(1, 27), per_letter)
            for kind, array in (("images-idx3", noise(per_letter, len(labels), 28, 28)), ("labels-idx1", labels)):
                for part in ("letters", "digits"):
                    name = f"emnist-{part}-{split}-{kind}-ubyte.gz"
                    archive.writestr(f"gzip/{name}", idx(array if part == "letters" else array[:1]))


class Python2Pickler(pickle._Pickler):
    """Writes strings and bytes alike as the 8-bit strings of Python 2, as in the published batches."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_string(self, value):
        """As one string with its length in front."""
        content = value.encode("latin-1") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_string


def batch(label_key, images, labels):
    """A batch of CIFAR: images [n, 3072] and their labels."""
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump({"data": images, label_key: labels, "batch_label": "a batch"})
    return stream.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def write_tar(path, mode, files):
    """An archive of files by name."""
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
