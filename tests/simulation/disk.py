"""A simulated network file system, and paths on it that real code takes for :class:`pathlib.Path`.

Every operation is one step of the kernel, and happens as a whole, but a process that is killed may leave a part of what it
writes. Contents are seen when a file is opened, times of files that other machines have changed up to ``lag`` seconds late.
"""

from __future__ import annotations

import errno
import fnmatch
import io
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

from kernel import Kernel, Killed


class Inode:
    """A file: its content, and when machines have changed it."""

    def __init__(self) -> None:
        self.data = b""
        self.changes: list[tuple[float, str]] = []


class Disk:
    """Names of files and folders; ``changed`` and ``removed`` are called before that happens to a name."""

    def __init__(self, kernel: Kernel, lag: float = 0.0) -> None:
        self.kernel, self.lag = kernel, lag
        self.files: dict[str, Inode] = {}
        self.folders = {"/", "/runs"}
        self.changed: Callable[[str], None] = lambda _: None
        self.removed = self.changed

    def write(self, name: str, inode: Inode, content: bytes, append: bool) -> None:
        """Write to an inode, whatever its name is by now; a process that is killed here leaves a part."""
        try:
            self.kernel.step()
        except Killed:
            if not self.kernel.process.dead:
                raise
            content = content[: int(self.kernel.random.random() * len(content))]
            self._put(name, inode, content, append)
            raise
        self._put(name, inode, content, append)

    def _put(self, name: str, inode: Inode, content: bytes, append: bool) -> None:
        if self.files.get(name) is inode:
            self.changed(name)
        inode.data = inode.data + content if append else content
        self.touch(inode)

    def touch(self, inode: Inode) -> None:
        inode.changes.append((self.kernel.now, self.kernel.process.host))

    def time(self, inode: Inode) -> float:
        """Of the last change that the running process's machine sees."""
        host, now = self.kernel.process.host, self.kernel.now
        for time, by in reversed(inode.changes):
            if by == host or time + self.lag <= now:
                return time
        return inode.changes[0][0]

    def find(self, name: str) -> Inode:
        if (inode := self.files.get(name)) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", name)
        return inode

    def move(self, source: str, target: str) -> None:
        inode = self.find(source)
        self.changed(target)
        self.changed(source)
        del self.files[source]
        self.files[target] = inode

    def create(self, name: str) -> Inode:
        if name.rpartition("/")[0] not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "No such folder", name)
        self.changed(name)
        inode = self.files[name] = Inode()
        self.touch(inode)
        return inode


class _Reader(io.BytesIO):
    getbuffer = property()  # type: ignore[assignment]  # hashlib would hash what has been read already, too


class _Writer(io.BytesIO):
    """Writes when it is closed, as buffered files do."""

    def __init__(self, disk: Disk, name: str, inode: Inode, append: bool) -> None:
        super().__init__()
        self._target = disk, name, inode, append

    def close(self) -> None:
        if not self.closed:
            disk, name, inode, append = self._target
            content = self.getvalue()
            super().close()
            if content or not append:
                disk.write(name, inode, content, append)


class SimPath(PurePosixPath):
    """A path on the disk of the schedule that runs."""

    disk: Disk

    def _at(self) -> tuple[Disk, str]:
        self.disk.kernel.step()
        return self.disk, str(self)

    def open(self, mode: str = "r", **_: Any) -> Any:
        disk, name = self._at()
        if mode == "ab":
            return _Writer(disk, name, disk.files.get(name) or disk.create(name), True)
        if mode == "wb":
            return _Writer(disk, name, disk.create(name) if name not in disk.files else disk.files[name], False)
        data = disk.find(name).data
        return _Reader(data) if mode == "rb" else io.StringIO(data.decode())

    def read_bytes(self) -> bytes:
        disk, name = self._at()
        return disk.find(name).data

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    def write_bytes(self, content: bytes) -> None:
        with self.open("wb") as stream:
            stream.write(content)

    def write_text(self, content: str) -> None:
        self.write_bytes(content.encode())

    def exists(self) -> bool:
        disk, name = self._at()
        return name in disk.files or name in disk.folders

    def is_file(self) -> bool:
        disk, name = self._at()
        return name in disk.files

    def is_dir(self) -> bool:
        disk, name = self._at()
        return name in disk.folders

    def stat(self) -> Any:
        disk, name = self._at()
        inode = disk.find(name)
        time = disk.time(inode)
        return SimpleNamespace(st_size=len(inode.data), st_mtime=time, st_mtime_ns=int(time * 1e9))

    def rename(self, target: SimPath) -> SimPath:
        disk, name = self._at()
        disk.move(name, str(target))
        return target

    replace = rename

    def hardlink_to(self, target: SimPath) -> None:
        disk, name = self._at()
        inode = disk.find(str(target))
        if name in disk.files:
            raise FileExistsError(errno.EEXIST, "File exists", name)
        disk.changed(name)
        disk.files[name] = inode

    def unlink(self, missing_ok: bool = False) -> None:
        disk, name = self._at()
        if name not in disk.files:
            if missing_ok:
                return
            raise FileNotFoundError(errno.ENOENT, "No such file", name)
        disk.removed(name)
        del disk.files[name]

    def resolve(self) -> SimPath:
        return self

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        disk, name = self._at()
        disk.folders |= {name, *map(str, self.parents)}

    def rmdir(self) -> None:
        disk, name = self._at()
        if any(other.startswith(f"{name}/") for other in (*disk.files, *disk.folders)):
            raise OSError(errno.ENOTEMPTY, "Folder not empty", name)
        disk.folders.discard(name)

    def iterdir(self) -> Iterator[SimPath]:
        return iter(self._below("*", False))

    def glob(self, pattern: str) -> Iterator[SimPath]:
        return iter(self._below(pattern, False))

    def rglob(self, pattern: str) -> Iterator[SimPath]:
        return iter(self._below(pattern, True))

    def _below(self, pattern: str, deep: bool) -> list[SimPath]:
        disk, name = self._at()
        start = f"{name}/"
        found = (
            file for file in sorted(disk.files) if file.startswith(start) and (deep or "/" not in file[len(start) :])
        )
        return [type(self)(file) for file in found if fnmatch.fnmatchcase(file.rpartition("/")[2], pattern)]
