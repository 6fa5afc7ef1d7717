"""A campaign of published tables on a machine that is lent for minutes: packages of limited size go there, records come back.

    python benchmarks/campaign.py prepare build/campaign                  # here: build/campaign/1, /2, ...
    python benchmarks/campaign.py go build/campaign/1 --seconds 800 --out OUT   # there, for each package in turn
    python benchmarks/campaign.py merge OUT/runs.zip                      # here

``prepare`` packs the committed code, an order file (default: ``campaign.yaml`` beside this script), the raw data of its tables,
the runs so far and wheels. All this is one tar file, in parts with SHA-256 hashes, one part per package. ``go`` keeps the part
of its package. Once it has all parts, it unpacks them and runs the tables in the given order until the time is up. The machine
needs Python with torch, lightning, pandas, pydantic, typer, rich, scipy and Matplotlib, and no network.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
CODE = ("src", "experiments", "benchmarks", "params.yaml", "dvc.yaml", "pipeline")
WHEELS = {"filelock": "filelock", "yaml": "pyyaml"}
"""Names for ``pip download`` of what the machine may lack, by module; only used where the module cannot be imported."""

PYTHON, PLATFORM = "3.12", "manylinux2014_x86_64"
RESERVE = 60.0  # seconds for imports, to save interrupted runs, and to pack


def size(text: str) -> int:
    """Bytes: ``64MB``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMG]?)B", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: use a size such as 64MB")
    return int(float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[found[2]])


def refuse(line: str) -> NoReturn:
    print(f"campaign: {line}", file=sys.stderr)
    sys.exit(2)


def fedtide(*words: object, cwd: Path | None = None) -> int:
    """The exit status of a command."""
    return subprocess.run([sys.executable, "-m", "fedtide", *map(str, words)], cwd=cwd).returncode


def raw_files(order: Path) -> dict[str, Path]:
    """The raw files of all data that an order file needs, fetched and checked, by their names below the data folder."""
    from fedtide.core import plugins
    from fedtide.studies.reproduce.recipe import Recipe, read_order
    from fedtide.studies.reproduce.reproduce import distinct_runs, find
    from fedtide.world.data.base import DatasetPlugin
    from fedtide.world.storage.prepared import load_data
    from fedtide.world.storage.sources import fetch

    found: dict[str, Path] = {}
    for entry in read_order(order):
        recipe = Recipe(find(entry.name), entry.profile)
        for settings in {
            run.data: run for run in distinct_runs(recipe, recipe.select(entry.only), recipe.seeds)
        }.values():
            load_data(settings)
            plugin, choice = plugins.create(DatasetPlugin, settings.data), settings.data
            raw = fetch(
                choice.name, plugin.resources, Path(choice.root), Path(choice.mirror) if choice.mirror else None
            )
            files = [path for resource in plugin.resources for path in resource.present(raw)]
            found |= {f"data/{choice.name}/raw/{path.name}": path for path in files}
    return found


def prepare(out: Path, order: Path, runs: Path, limit: int, wheels: bool) -> None:
    from fedtide.core.errors import SettingsError

    if out.exists() and any(out.iterdir()):
        refuse(f"{out} is not empty; choose another folder")
    if subprocess.run(
        ["git", "-C", ROOT, "status", "--porcelain", "--", *CODE], capture_output=True, check=True
    ).stdout:
        print("campaign: there are changes that are not committed; the packages are without them", file=sys.stderr)
    try:
        data = raw_files(order)
    except SettingsError as error:
        refuse(str(error))
    with tempfile.TemporaryDirectory() as made:
        content = Path(made)
        target = f"--output={content / 'code.tar.gz'}"
        code = ["git", "-C", str(ROOT), "archive", "--format=tar.gz", target, "HEAD", *CODE]
        subprocess.run(code, check=True)
        shutil.copyfile(order, content / "order.yaml")
        if runs.is_dir() and any(runs.iterdir()) and fedtide("runs", "pack", content / "runs.zip", "--runs", runs):
            print("campaign: the packages are without earlier runs", file=sys.stderr)
        if wheels:
            options = ["--no-deps", "--only-binary=:all:", f"--python-version={PYTHON}", f"--platform={PLATFORM}", "-q"]
            pip = [sys.executable, "-m", "pip", "download", *options, f"--dest={content / 'wheels'}", *WHEELS.values()]
            subprocess.run(pip, check=True)
        whole = content / "whole.tar"
        with tarfile.open(whole, "w") as tar:
            for path in sorted(path for path in content.rglob("*") if path.is_file() and path != whole):
                tar.add(path, path.relative_to(content).as_posix())
            for name, path in data.items():
                tar.add(path, name)
        piece = limit - 65536  # a folder's list of hashes takes the rest
        with whole.open("rb") as stream:
            parts = list(iter(lambda: stream.read(piece), b""))
        hashes = [hashlib.sha256(part).hexdigest() for part in parts]
        for number, part in enumerate(parts, start=1):
            folder = out / str(number)
            folder.mkdir(parents=True)
            (folder / f"part-{number}").write_bytes(part)
            (folder / "parts.json").write_text(json.dumps(hashes))
    print(f"{len(parts)} packages of at most {max(map(len, parts)) / 1e6:.1f} MB in {out}")


def received(folder: Path, store: Path) -> Path | None:
    """Keep the part of a package; once all are there, unpack them: the campaign's folder, None while some are missing."""
    try:
        text = (folder / "parts.json").read_text()
        hashes = json.loads(text)
    except (OSError, ValueError):
        refuse(f"{folder}: not a package; `campaign.py prepare` writes them")
    home = store / hashlib.sha256(text.encode()).hexdigest()[:12]
    home.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("part-*"):
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != hashes[int(path.name.removeprefix("part-")) - 1]:
            refuse(f"{path} is damaged: its SHA-256 hash is another; prepare the packages again")
        (home / "incomplete").write_bytes(content)
        (home / "incomplete").replace(home / path.name)
    parts = [home / f"part-{number}" for number in range(1, len(hashes) + 1)]
    if missing := [part.name.removeprefix("part-") for part in parts if not part.exists()]:
        print(f"{len(parts) - len(missing)} of {len(parts)} packages are here; missing: {', '.join(missing)}")
        return None
    if not (home / "content").exists():
        unpacked = home / "unpacking"
        shutil.rmtree(unpacked, ignore_errors=True)
        with (home / "whole.tar").open("wb") as whole:
            for part in parts:
                whole.write(part.read_bytes())
        for archive in (home / "whole.tar", unpacked / "code.tar.gz"):
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, filter="data")
        for module, package in WHEELS.items():
            for wheel in unpacked.glob(f"wheels/{package}-*.whl") if importlib.util.find_spec(module) is None else ():
                with zipfile.ZipFile(wheel) as opened:
                    opened.extractall(unpacked / "site")
        unpacked.rename(home / "content")
    return home


def go(folder: Path, seconds: float, reserve: float, out: Path, store: Path, most: str, workers: int) -> int:
    """Run the tables for ``seconds``, of which ``reserve`` are kept to end and to pack; the exit status of the command."""
    begin = time.monotonic()
    if seconds <= reserve:
        refuse(f"--seconds {seconds:g}: use more than the {reserve:g} of --reserve")
    if (home := received(folder, store)) is None:
        return 0
    content, runs, known = home / "content", home / "runs", home / "known.json"
    paths = [str(content / "src"), str(content / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    if not known.exists():
        if (content / "runs.zip").exists():
            fedtide("runs", "merge", content / "runs.zip", "--runs", runs, cwd=content)  # what it refuses it names
        known.write_text(json.dumps([path.parent.name for path in runs.glob("*/summary.json")]))
    left, status = seconds - reserve - (time.monotonic() - begin), 0
    if left >= 1:
        words = ["--order", "order.yaml", "--runs", runs, "--results", home / "results", "--seconds", f"{left:.0f}"]
        command = [sys.executable, "-m", "fedtide", "reproduce", *map(str, words), "--workers", str(workers), "-q"]
        with (home / "tables.txt").open("w") as tables:
            work = subprocess.Popen(command, cwd=content, stdout=tables, start_new_session=True)
            try:
                status = work.wait(left + reserve / 2)
            except subprocess.TimeoutExpired:  # its runs continue from their checkpoints
                os.killpg(work.pid, signal.SIGKILL)
                work.wait()
                print(f"campaign: the command was killed {reserve / 2:g} seconds after its time", file=sys.stderr)
    else:
        print("campaign: no time is left to train", file=sys.stderr)
    chosen = home / "chosen"
    shutil.rmtree(chosen, ignore_errors=True)
    chosen.mkdir()
    for path in runs.iterdir() if runs.is_dir() else ():
        if path.name not in json.loads(known.read_text()):
            (chosen / path.name).symlink_to(path)
    out.mkdir(parents=True, exist_ok=True)
    packed = fedtide("runs", "pack", out.resolve() / "runs.zip", "--runs", chosen, "--max", most, cwd=content)
    return status or packed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    here = commands.add_parser("prepare", help="write packages")
    here.add_argument("out", type=Path, help="new folder of the packages")
    here.add_argument("--order", type=Path, default=Path(__file__).with_name("campaign.yaml"), help="what to run")
    here.add_argument("--runs", type=Path, default=Path("runs/campaign"), help="runs so far, to be continued")
    here.add_argument("--limit", type=size, default="64MB", help="largest package")
    here.add_argument("--no-wheels", action="store_true", help="do not download wheels")
    there = commands.add_parser("go", help="run the tables on the other machine")
    there.add_argument("folder", type=Path, help="a package")
    there.add_argument("--seconds", type=float, required=True, help="time of this command")
    there.add_argument("--reserve", type=float, default=RESERVE, help="seconds of these to end and to pack")
    there.add_argument("--out", type=Path, required=True, help="folder of the archive, runs.zip")
    there.add_argument(
        "--store", type=Path, default=Path(tempfile.gettempdir()) / "campaign", help="where packages are kept"
    )
    there.add_argument("--max", default="16MB", help="largest archive")
    there.add_argument("--workers", type=int, default=1, help="concurrent runs")
    back = commands.add_parser("merge", help="add the runs of an archive")
    back.add_argument("archive", type=Path)
    back.add_argument("--runs", type=Path, default=Path("runs/campaign"), help="folder of the campaign's runs")
    given = parser.parse_args()
    if given.command == "prepare":
        prepare(given.out, given.order, given.runs, given.limit, not given.no_wheels)
    elif given.command == "go":
        sys.exit(
            go(given.folder, given.seconds, given.reserve, given.out, given.store.resolve(), given.max, given.workers)
        )
    else:
        sys.exit(fedtide("runs", "merge", given.archive, "--runs", given.runs))


if __name__ == "__main__":
    main()
