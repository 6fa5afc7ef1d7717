"""Commands of the documentation as bash sees them: it executes blocks as printed, with programs that note their calls."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (
        *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs/reports").glob("*.md")),
    )
}
LANGUAGES = {"", "text", "python", "yaml", "sh", "bash", "console", "{toctree}"}
PROGRAMS = (
    *("fedtide", "python", "python3", "make", "pip", "dvc", "uv", "kubectl", "torchrun", "srun", "tensorboard"),
    "docker",
    *("ls", "cut", "head", "id"),
)
_NOTED = r"""#!/bin/bash
text=
[[ ${0##*/} == python && $1 == - ]] && IFS= read -r -d '' text
printf '%s\0' "${0##*/}" "$FEDTIDE_PLUGINS" "$text" "$@" $'\1' >> "$CALLS"
"""
_SHELL = r"""
command_not_found_handle() { printf '%s\0' "$1" '' '' "${@:2}" $'\1' >> "$CALLS"; }
"""


class Call(NamedTuple):
    """A program that a page calls, its arguments, what it reads from standard input, and where plug-ins are."""

    program: str
    arguments: list[str]
    stdin: str
    plugins: str

    def __str__(self) -> str:
        return " ".join([self.program, *self.arguments])


def blocks(text: str) -> list[tuple[str, str]]:
    """Language and content of the fenced blocks of a page."""
    return re.findall(r"^[ ]*```([^\n`]*)\n(.*?)^[ ]*```$", text, re.DOTALL | re.MULTILINE)


def script(text: str) -> str:
    """What a reader of a page types."""
    typed = []
    for language, content in blocks(text):
        if language in ("sh", "bash"):
            typed.append(content)
        elif language == "console":
            typed += [line[2:] for line in content.splitlines() if line.startswith("$ ")]
    return "\n".join(typed)


def files(text: str) -> dict[str, str]:
    """Files that a page shows: Python blocks that begin with their name."""
    shown = (re.match(r"# ([\w/]+\.py)\n", content) for language, content in blocks(text) if language == "python")
    content = [content for language, content in blocks(text) if language == "python"]
    return {match[1]: text for match, text in zip(shown, content, strict=True) if match}


def calls(text: str, folder: Path) -> list[Call]:
    """The calls of a page, in order, made in an empty folder."""
    programs, noted = folder / "programs", folder / "calls"
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).write_text(_NOTED)
        (programs / name).chmod(0o755)
    typed = folder / "typed"
    (typed / ".venv/bin").mkdir(parents=True)
    (typed / ".venv/bin/activate").touch()
    noted.touch()
    given = {"PATH": str(programs), "HOME": str(folder / "home"), "CALLS": str(noted)}
    bash = shutil.which("bash") or "bash"
    done = subprocess.run(
        [bash, "-euc", _SHELL + script(text) + "\nwait\n"], cwd=typed, env=given, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found = []
    for item in noted.read_text().split("\0\1\0")[:-1]:
        program, plugins, stdin, *arguments = item.split("\0")
        found.append(Call(program, arguments, stdin, plugins))
    return found


def copy_of_the_repository(folder: Path) -> Path:
    """The tracked files as they are."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder
