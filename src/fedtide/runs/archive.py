"""Archives of runs: their records in one file, to be continued or read on another machine.

An archive is a zip file with a ``<run>.tar.xz`` for each run, so that its size is known while it is written. Final models are
left out; a run that has not ended comes with its newest checkpoint.
"""

import io
import lzma
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from fedtide.core.errors import SettingsError, shortened
from fedtide.core.storage.files import canonical_json, creating, make_folder, replacing, write_json
from fedtide.core.storage.locks import claimed
from fedtide.core.storage.sealed import peek_header
from fedtide.records.files.client_scores import file_names
from fedtide.records.files.guarantees import PRIVACY
from fedtide.records.files.states import generations
from fedtide.records.run_directory import ENCODING, ENVIRONMENT, TABLES, RunDirectory, hashed, read_hashed
from fedtide.runs.catalog import differences, first_few
from fedtide.runs.check import check_run, run_directories
from fedtide.runs.open_run import environment, run_key
from fedtide.settings.run import RunSettings, plain_name
from fedtide.world.storage.prepared import load_data

_SUMMARY, _SUFFIX = "summary.json", ".tar.xz"
_RECORDS = "settings.json", "manifest.json", ENVIRONMENT, ENCODING, PRIVACY, "timeline.npz", "events.jsonl", *TABLES
_ENTRY = 512  # bytes that a zip file spends on an entry, at most


def pack(runs: Path, archive: Path, most: int | None = None) -> tuple[list[str], dict[str, str]]:
    """Archive the intact runs of a folder, ended ones first, in at most ``most`` bytes: names, and why others were left out."""
    packed: list[str] = []
    left: dict[str, str] = {}
    room = sys.maxsize if most is None else most
    with replacing(archive) as part, zipfile.ZipFile(part, "w") as whole:
        for path in sorted(run_directories(runs), key=lambda path: not (path / _SUMMARY).is_file()):
            try:
                content = _packed(path, room)
            except SettingsError as error:
                left[path.name] = str(error)
                continue
            whole.writestr(path.name + _SUFFIX, content)
            packed.append(path.name)
            room -= len(content) + _ENTRY
        if not packed:
            why = first_few([": ".join(each) for each in left.items()])
            raise SettingsError(f"{runs}: no run can be packed: {why}")
    return packed, left


def _packed(path: Path, room: int) -> bytes:
    """The records of a run as tar.xz; its summary has no marks of files that are left out. A SettingsError says why not."""
    found, packed = check_run(path), io.BytesIO()
    files = [path / name for name in (*_RECORDS, *file_names(path))]
    with claimed(path) as free:
        if not free or found.state in ("running", "damaged"):
            raise SettingsError("; ".join(found.problems) or "a process is working on it")
        if found.state == "unfinished":
            if not (states := generations(path / "state")[:1]):
                raise SettingsError("it has not ended, and has no checkpoint")
            states += [states[0].with_name(name) for name in (peek_header(states[0]) or {}).get("rows", ())]
            if sum(file.stat().st_size for file in states) > room:  # compression would hardly help
                raise SettingsError("it has not ended, and its checkpoint does not fit")
            files += states
        with tarfile.open(fileobj=packed, mode="w:xz") as tar:
            for file in filter(Path.is_file, files):
                tar.add(file, file.relative_to(path).as_posix())
            if (summary := read_hashed(path / _SUMMARY)) is not None:
                marks = {name: mark for name, mark in summary["files"].items() if path / name in files}
                content = canonical_json(hashed({**summary, "files": marks})).encode()
                member = tarfile.TarInfo(_SUMMARY)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    if packed.tell() + _ENTRY > room:
        raise SettingsError("it does not fit")
    return packed.getvalue()


def merge(archive: Path, runs: Path, settings_of: Callable[[Path], RunSettings]) -> tuple[list[str], list[str]]:
    """Add the runs of an archive to a folder, each at once or not at all; ``settings_of`` reads those of a run directory.

    Returns the names of the runs that were added, or replace an earlier state of the same run, and of those that were there
    already. A SettingsError says which were refused, and why; all others are merged.
    """
    merged: list[str] = []
    known: list[str] = []
    refused: list[str] = []
    try:
        opened = zipfile.ZipFile(archive)
    except (OSError, zipfile.BadZipFile) as error:
        raise SettingsError(
            f"{archive}: not an archive of runs ({getattr(error, 'strerror', None) or error})"
        ) from None
    if not opened.namelist():
        raise SettingsError(f"{archive}: not an archive of runs (it is empty)")
    with opened, creating(runs):
        make_folder(runs)
        with TemporaryDirectory(dir=runs, prefix=".merge-") as made:
            for name in (each.removesuffix(_SUFFIX) for each in opened.namelist()):
                try:
                    staged = Path(made) / plain_name(name)
                    _unpack(opened, staged)
                    _refuse_other(staged, settings_of(staged))
                    placed = merged if _placed(staged, runs / name) else known
                    placed.append(name)
                except SettingsError as error:
                    refused.append(f"{name}: {error}".replace(f"{made}/", ""))
        if refused:
            raise SettingsError(f"{archive}: {len(refused)} runs refused, {len(merged)} merged: {'; '.join(refused)}")
    return merged, known


def _unpack(opened: zipfile.ZipFile, path: Path) -> None:
    """Write the run directory ``path`` and verify its files."""
    try:
        with tarfile.open(fileobj=io.BytesIO(opened.read(path.name + _SUFFIX)), mode="r:xz") as tar:
            tar.extractall(path, filter="data")
    except (KeyError, EOFError, zipfile.BadZipFile, lzma.LZMAError, tarfile.TarError) as error:
        raise SettingsError(f"damaged ({shortened(str(error))})") from None
    if found := check_run(path).problems:
        raise SettingsError(first_few(list(found)))


def _refuse_other(path: Path, settings: RunSettings) -> None:
    """Refuse a run whose key is not that of its settings here."""
    data, here = load_data(settings), path.with_name("here")
    if run_key(settings, data) != (read_hashed(path / "manifest.json") or {}).get("run_key"):
        here.mkdir(exist_ok=True)
        labels = {name: getattr(settings, name) for name in ("label", "initializer_label")}
        write_json(here / "settings.json", {**settings.canonical(), **labels})
        write_json(here / "manifest.json", {"data": data.digest})
        write_json(here / ENVIRONMENT, hashed(environment(settings, "")))
        _refuse_differences(here, path, "what this version would execute")
        raise SettingsError("its run key is another here")


def _placed(staged: Path, target: Path) -> bool:
    """Move a run to its place, false if what is there is the same, or further; a SettingsError if it is another."""
    if target.exists():
        with claimed(target) as free:
            if not free:
                raise SettingsError(f"a process is working on {target}")
            old, new = RunDirectory(target), RunDirectory(staged)
            ended = [each.summary() is not None for each in (old, new)]
            _refuse_differences(target, staged, str(target), *(["results"] if all(ended) else []))
            if ended[0] or not (ended[1] or len(new.history()) > len(old.history())):
                return False
            target.rename(staged.with_name(f"{staged.name}.before"))
    staged.rename(target)
    return True


def _refuse_differences(here: Path, there: Path, what: str, *parts: str) -> None:
    compared = ("settings", "data", "sources", *parts)
    found = [f"{part} {name} ({a!r}, not {b!r})" for part, name, a, b in differences(here, there) if part in compared]
    if found:
        raise SettingsError(f"differs from {what} in {first_few(found)}")
