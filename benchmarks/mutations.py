"""Small defects, one at a time, and whether the tests find them, slow ones and all cases included.

A defect is a slip that is easy to make: a sign, an index, a missing factor, something that is not saved; ``defects.txt`` has
them, and says how to add one. It is put into a copy of the tree, and tests run until one fails: first the likely files, then
the likely folders, then the rest of the suite.
Finally all tests that failed run without any defect, on edited files that only gain an unused constant. A test that fails
there as well does not count, and its defects are judged again without it.

    python benchmarks/mutations.py --list                      # check that every defect fits the tree
    python benchmarks/mutations.py --likely --limit 360        # the likely tests, at most six minutes each
    python benchmarks/mutations.py --jobs 4                    # continue with the whole suite
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

DEFECTS = Path(__file__).with_name("defects.txt")

PRIVATE = ("FEDTIDE_MIRROR", "FEDTIDE_MLRUNS", "FEDTIDE_PLUGINS", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST")
STAGES = ("files", "folders", "suite")

Row = dict[str, Any]


class Defect(NamedTuple):
    """One defect: pairs of an old text, which occurs once in ``file``, and a new one; ``look`` are paths below ``tests``."""

    id: str
    what: str
    file: str
    edits: tuple[tuple[str, str], ...]
    look: tuple[str, ...]


def parse(text: str) -> list[Defect]:
    """The defects of a text in the format that ``defects.txt`` describes."""
    found = []
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for block in re.split(r"\n(?=\S)", plain.strip()):
        head, where, *lines = block.splitlines()
        id_, what = head.split(": ", 1)
        file, look = where.strip().split(" < ")
        edits: list[tuple[list[str], list[str]]] = []
        for line in lines:
            if line.startswith("    - "):
                if not edits or edits[-1][1]:
                    edits.append(([], []))
                edits[-1][0].append(line[6:])
            else:
                edits[-1][1].append(line[6:])
        pairs = tuple(("\n".join(old), "\n".join(new)) for old, new in edits)
        found.append(Defect(id_, what, file, pairs, tuple(look.split())))
    return found


def edited(text: str, defect: Defect) -> str:
    """The text of a file with a defect.

    Raises:
        SystemExit: an old text does not occur exactly once.
    """
    for old, new in defect.edits:
        if text.count(old) != 1:
            sys.exit(f"{defect.id}: {defect.file} has this text {text.count(old)} times, not once: {old!r}")
        text = text.replace(old, new)
    ast.parse(text)
    return text


class Tree:
    """A copy of the files of a project that git tracks, as they are in the working tree."""

    def __init__(self, project: Path, root: Path) -> None:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=project, check=True, capture_output=True, text=True)
        self.root = root
        for name in filter(None, listed.stdout.split("\0")):
            if (project / name).is_file() or (project / name).is_symlink():  # a link to a folder is no file
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(project / name, root / name, follow_symlinks=False)

    @contextmanager
    def changed(self, texts: dict[str, str]) -> Iterator[None]:
        """Files below ``src/fedtide`` with other contents for a while."""
        paths = {self.root / "src/fedtide" / file: text for file, text in texts.items()}
        before = {path: path.read_text(encoding="utf-8") for path in paths}
        for path, text in paths.items():
            path.write_text(text, encoding="utf-8")
        try:
            yield
        finally:
            for path, text in before.items():
                path.write_text(text, encoding="utf-8")

    def source(self, file: str) -> str:
        """A file below ``src/fedtide``."""
        return (self.root / "src/fedtide" / file).read_text(encoding="utf-8")

    def tests(self, jobs: int, limit: float, *arguments: str) -> list[str] | None:
        """The tests that fail, none if all pass, ``None`` if pytest takes longer than ``limit`` seconds or is killed."""
        kept = {name: value for name, value in os.environ.items() if name not in PRIVATE}
        kept |= {"PYTHONPATH": str(self.root / "src"), "DVC_NO_ANALYTICS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-m", "", "-n"]
        command += [str(jobs if jobs > 1 else 0), *arguments]
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)  # examples that failed with another defect
        pipes: dict[str, Any] = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        # A session of its own: what a test has started ends with it.
        with subprocess.Popen(command, cwd=self.root, env=kept, start_new_session=True, **pipes) as process:
            try:
                printed, _ = process.communicate(timeout=limit)
            except BaseException as stop:
                os.killpg(process.pid, 9)
                if not isinstance(stop, subprocess.TimeoutExpired):
                    raise
                return None
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+?\.py\S*(?: .*?)??)(?: - .*)?$", printed, re.MULTILINE)
        if process.returncode in (0, 5):
            return []
        if not failed:
            print(printed[-2000:], file=sys.stderr)
        return failed or None


def judge(tree: Tree, defect: Defect, jobs: int, limit: float, ignored: set[str], done: str, last: str) -> Row:
    """Search the stages after ``done`` up to ``last`` for a test that finds a defect."""
    began, found, searched = time.monotonic(), "", done
    look = [f"tests/{name}" for name in defect.look if (tree.root / "tests" / name).exists()]
    files, folders = ([name for name in look if name.endswith(".py") == wanted] for wanted in (True, False))
    skip = [f"--deselect={name}" for name in sorted(ignored)]
    parts = {"files": files, "folders": folders, "suite": ["tests"]}
    first = STAGES.index(done) + 1 if done else 0
    with tree.changed({defect.file: edited(tree.source(defect.file), defect)}):
        for stage in STAGES[first : STAGES.index(last) + 1]:
            passed = [name for earlier in STAGES[: STAGES.index(stage)] for name in parts[earlier]]
            if parts[stage]:
                left = limit - (time.monotonic() - began)
                failed = tree.tests(jobs, left, "-x", *parts[stage], *(f"--ignore={name}" for name in passed), *skip)
                if failed is None:
                    break
                found = failed[0] if failed else ""
            searched = stage
            if found:
                break
    seconds = round(time.monotonic() - began, 1)
    return {"id": defect.id, "what": defect.what, "found_by": found or None, "searched": searched, "seconds": seconds}


def sensitive(tree: Tree, defects: list[Defect], tests: set[str], jobs: int) -> set[str]:
    """Those of some tests that fail without a defect as well, after a harmless change of the same files."""
    harmless = {defect.file: tree.source(defect.file) + "\n_NOTHING = 0\n" for defect in defects}
    with tree.changed(harmless):
        return set(tree.tests(jobs, 3600, *sorted(tests)) or ()) if tests else set()


def read(results: Path) -> dict[str, Row]:
    """What is known already, by id; the last line may be torn."""
    known = {}
    for line in results.read_text(encoding="utf-8").splitlines() if results.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        known[row["id"]] = row
    return known


def print_table(rows: list[Row]) -> None:
    """The results, in Markdown."""
    print("| defect | what | found by | s |\n|---|---|---|---:|")
    for row in rows:
        missed = (
            "**not found**" if row["searched"] == STAGES[-1] else f"not found so far ({row['searched'] or 'limit'})"
        )
        test = f"`{row['found_by']}`" if row["found_by"] else missed
        print(f"| {row['id']} | {row['what']} | {test} | {row['seconds']:.0f} |")
    print(f"\n{sum(bool(row['found_by']) for row in rows)} of {len(rows)} found")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    project = Path(__file__).resolve().parents[1]
    parser.add_argument("--tree", type=Path, default=project, help="the project, of which a copy is tested")
    parser.add_argument(
        "--defects", type=Path, default=DEFECTS, help="file of defects, by default defects.txt beside this one"
    )
    parser.add_argument("--only", nargs="+", metavar="ID", help="these defects, or all whose id begins like this")
    parser.add_argument("--jobs", type=int, default=1, help="processes of pytest")
    parser.add_argument("--likely", action="store_true", help="only the tests most likely to fail, not the whole suite")
    parser.add_argument("--limit", type=float, default=3600, help="seconds for each defect")
    parser.add_argument("--results", type=Path, default=Path("mutations.jsonl"), help="JSON lines, continued")
    parser.add_argument("--list", action="store_true", help="only check that every defect fits the tree, and name them")
    given = parser.parse_args()
    chosen = [
        d
        for d in parse(given.defects.read_text(encoding="utf-8"))
        if not given.only or any(d.id.startswith(name) for name in given.only)
    ]
    if given.list:
        for defect in chosen:
            edited((given.tree / "src/fedtide" / defect.file).read_text(encoding="utf-8"), defect)
            print(f"{defect.id:34}{defect.what}")
        return
    known, ignored, last = read(given.results), set[str](), STAGES[1 if given.likely else 2]
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        tree = Tree(given.tree.resolve(), Path(folder) / "tree")
        while True:
            for defect in chosen:
                row = known.get(defect.id, {"found_by": None, "searched": ""})
                if row["found_by"] or row["searched"] in ("suite", last):
                    continue
                row = known[defect.id] = judge(tree, defect, given.jobs, given.limit, ignored, row["searched"], last)
                with given.results.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(row) + "\n")
                print(f"{row['id']}: {row['found_by']} ({row['seconds']} s)", file=sys.stderr, flush=True)
            found = {defect.id: known[defect.id]["found_by"] for defect in chosen if known[defect.id]["found_by"]}
            false = sensitive(
                tree, [defect for defect in chosen if defect.id in found], set(found.values()), given.jobs
            )
            if not false:
                break
            ignored |= false
            known = {id_: row for id_, row in known.items() if row["found_by"] not in false}
    print_table([known[defect.id] for defect in chosen])


if __name__ == "__main__":
    main()
