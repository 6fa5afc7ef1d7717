"""Records of runs that are executed on machines without a shared folder: kept at home, where the command was started."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from fedtide.core import plugins
from fedtide.core.errors import SettingsError, TakenOver
from fedtide.core.files import fence, make_folder, remove_all_parts, write_bytes
from fedtide.core.locks import held
from fedtide.data.base import DatasetPlugin
from fedtide.records.states import files_of, generations, sweep
from fedtide.runs.jobs.jobs import Failure, Job, Jobs, Taken
from fedtide.settings.run import RunSettings
from fedtide.worlds.prepared import prepared_file

_LAST = ("state/", "summary.json")  # files that depend on others: they are written last, in this order
_OURS = (".lock", ".owner", ".part")  # endings of files that belong to a machine, not to the run


@dataclass(frozen=True)
class Fetch:
    """Asks for the files of a run directory at home, by its name; the answer is :data:`Files` or a reason to refuse."""

    name: str


@dataclass(frozen=True)
class Store:
    """Brings the ``files`` of a run directory home that have changed; ``names``: of all its files.

    The answer is a reason to refuse, or ``None``.
    """

    name: str
    files: Files
    names: tuple[str, ...]


@dataclass(frozen=True)
class FetchData:
    """Asks for the prepared file of a run's dataset; the answer is compressed, or ``None`` if there is none."""

    settings: RunSettings


Files = tuple[tuple[str, bytes], ...]  # names in a run directory, and compressed contents


def file_names(folder: Path) -> tuple[str, ...]:
    """Files of a run directory that make up the run: all but older saved states, in the order in which they are written."""
    newest = [file for state in generations(folder / "state")[:1] for file in files_of(state)]
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in _OURS and path.name != ".lock"]
    names = [path.relative_to(folder).as_posix() for path in found if path.parent.name != "state" or path in newest]
    return tuple(sorted(names, key=lambda name: (*(name.startswith(last) for last in reversed(_LAST)), name)))


def read_files(folder: Path, names: Sequence[str]) -> Files:
    """The files of these names."""
    return tuple((name, zlib.compress((folder / name).read_bytes(), 1)) for name in names)


def write_files(folder: Path, files: Files) -> None:
    """Write files below a folder, each on the disk before the next."""
    for name, content in files:
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise SettingsError(f"{folder}: a worker sent a file {name}, which is outside")
        make_folder(path.parent)
        write_bytes(path, zlib.decompress(content), durable=True)


class JobsFromHome(Generic[Job, Taken]):
    """Jobs whose runs are executed elsewhere: questions about records are answered here, everything else by ``jobs``.

    The directory of each, in the folder ``runs``, is locked while it is in progress elsewhere.
    """

    def __init__(self, jobs: Jobs[Job, Taken], runs: Path) -> None:
        self._jobs, self._runs = jobs, runs
        self._holding: dict[int, ExitStack] = {}

    def next(self) -> Job | None:
        return self._jobs.next()

    def begin(self, job: Job, place: str) -> None:
        self._jobs.begin(job, place)

    def answer(self, job: Job, question: Any) -> Any:
        if isinstance(question, Fetch):
            return self._fetched(job, self._runs / question.name)
        if isinstance(question, Store):
            return self._stored(job, self._runs / question.name, question)
        if isinstance(question, FetchData):
            return _data(question.settings)
        return self._jobs.answer(job, question)

    def repeat(self, job: Job, reason: str) -> None:
        self.release(job)
        self._jobs.repeat(job, reason)

    def is_interrupted(self, result: Taken) -> bool:
        return self._jobs.is_interrupted(result)

    def finish(self, job: Job, end: Taken | Failure) -> None:
        self.release(job)
        self._jobs.finish(job, end)

    def release(self, job: Job | None = None) -> None:
        """Unlock the directories of a job, or of all."""
        for number in [id(job)] if job is not None else list(self._holding):
            if (holding := self._holding.pop(number, None)) is not None:
                holding.close()

    def _fetched(self, job: Job, folder: Path) -> Files | str:
        """Lock a run directory, and what is in it."""
        try:
            make_folder(folder)
            lock = held(folder / ".lock", f"{folder}: another process is working on this run")
            holding = self._holding.setdefault(id(job), ExitStack())
            holding.enter_context(lock)
            holding.callback(_remove_empty, folder)
            remove_all_parts(folder)  # also of an owner that was taken over: see fedtide.core.locks
            try:
                return read_files(folder, file_names(folder))
            finally:
                fence(folder / "*")  # a new owner changes files that were read, and removes others
        except (SettingsError, OSError) as error:
            return str(error)

    def _stored(self, job: Job, folder: Path, question: Store) -> str | None:
        """A reason to refuse, if the directory is not this process's any more."""
        if id(job) not in self._holding:
            return f"{folder}: the run was given to another worker"
        try:
            try:
                _store(folder, question)
            except FileNotFoundError:
                fence(folder / "*")  # a new owner removes older states
                raise
        except TakenOver as error:
            return str(error)
        return None


def _store(folder: Path, question: Store) -> None:
    """Write what has changed, and drop what the run no longer has; an older saved state is kept, as at any save.

    A run that has ended without a saved state keeps none here either.
    """
    write_files(folder, question.files)
    dropped = [folder / name for name in set(file_names(folder)) - {*question.names} if not name.startswith("state/")]
    ended = "summary.json" in question.names and not any(name.startswith("state/") for name in question.names)
    dropped += generations(folder / "state")[0 if ended else 2 :]
    fence(folder / "*")
    for path in dropped:
        path.unlink(missing_ok=True)
    sweep(folder / "state")


def _data(settings: RunSettings) -> bytes | None:
    path = prepared_file(plugins.create(DatasetPlugin, settings.data), Path(settings.data.root))
    return zlib.compress(path.read_bytes(), 1) if path.is_file() else None


def _remove_empty(folder: Path) -> None:
    """Remove the locked directory of a run that was refused before it began, unless it is another process's by now."""
    left = sorted(folder.rglob("*"), reverse=True)  # what is in a folder before the folder
    if file_names(folder):
        return
    with suppress(OSError):
        fence(folder / "*")
        for path in left:
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
