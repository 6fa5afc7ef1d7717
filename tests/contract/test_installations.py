"""A wheel in environments of its own: it trains with what it depends on alone, and with every extra alone.

Environments are made of links to the packages of this one, so that no package index is needed.
"""

import email
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[2]
PACKAGES = Path(sysconfig.get_path("purelib"))
EXTRAS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
UNTRIED = {"dev", "docs", "notebooks", "he", "pretrained", "transformers", "tune"}
"""Extras of developers, for networks of one's own, with packages for few machines, or contained in another (``tuning``)."""
READERS = {"baseball", "data", "drift", "flights", "huggingface", "vision"}
"""What they add reads data, or streams of losses; tried together."""
NEEDED = {"reproduce": "reproduce --list", "dvc": "init --dvc", "data": "predict RUN rows.csv"}
"""Commands that are refused without an extra."""
SMALL = "--set scenario.rounds_per_session=1 --set compare.algorithms=[fedavg] --set compare.seeds=[0]"
MADE: dict[str, dict[str, str | None]] = {
    "report": {f"compare {SMALL}": None, f"report {SMALL}": "report/report.html"},
    "tide": {"tide board": "report/tide/board.html"},
}
"""Commands of an extra, and what they write."""
PROGRAM = """
import fedtide
from fedtide.core.discovery.shipped import DEFAULTS
assert fedtide.__file__.startswith({root!r}), fedtide.__file__
assert DEFAULTS.read_bytes() == open({params!r}, "rb").read() and not DEFAULTS.is_symlink()
print(fedtide.run(fedtide.Params.read(fedtide.Params().raw, "scenario.rounds_per_session=1"), "python"))
"""


def requirements(extras):
    """Names of the installed distributions that fedtide needs, with some of its extras."""
    todo, seen = [("fedtide", extra) for extra in ("", *extras)], set()
    while todo:
        if (pair := todo.pop()) in seen:
            continue
        seen.add(pair)
        for requirement in map(Requirement, distribution(pair[0]).requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": pair[1]}):
                todo += [(canonicalize_name(requirement.name), part) for part in {"", *requirement.extras}]
    return {name for name, _ in seen} - {"fedtide"}


def top_level(name):
    """What a distribution has put into the folder of packages."""
    files = distribution(name).files or ()
    return {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}


@pytest.fixture(scope="module")
def wheel(shared):
    """Built once: builds of one source tree disturb each other."""

    def build(folder):
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, PROJECT]
        subprocess.run(command, check=True, capture_output=True)
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir()], check=True)

    return next(shared("distributions", build).glob("*.whl"))


def installed(wheel, folder, extras):
    """A new environment with the wheel and what it requires; its ``bin``."""
    venv.create(folder, symlinks=True)
    target = next(folder.glob("lib/python*/site-packages"))
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "-q", "--no-deps", wheel],
        check=True,
    )
    (metadata,) = target.glob("fedtide-*.dist-info/METADATA")
    written = email.message_from_string(metadata.read_text()).get_all("Requires-Dist")
    assert sorted(written) == sorted(distribution("fedtide").requires), "install the project again: pip install -e ."
    for entry in {entry for name in requirements(extras) for entry in top_level(name)}:
        if not (target / entry).exists():
            (target / entry).symlink_to(PACKAGES / entry)
    return folder / "bin"


@pytest.mark.slow
def test_the_description_has_no_link_into_the_repository(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    assert "## Quick start" in text
    assert re.findall(r"\]\((?!https://)[^)]*\)", text) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "extras",
    [set(), READERS, *({extra} for extra in sorted(EXTRAS.keys() - UNTRIED - READERS))],
    ids=lambda extras: " ".join(sorted(extras)) or "none",
)
def test_an_installation_trains_outside_of_the_project(wheel, tmp_path, extras):
    programs, here = installed(wheel, tmp_path / "environment", extras), tmp_path / "elsewhere"
    here.mkdir()

    def call(command):
        return subprocess.run([programs / "fedtide", *command.split()], cwd=here, capture_output=True, text=True)

    done = call("run -q --set scenario.rounds_per_session=1")
    assert done.returncode == 0, done.stderr
    assert "final accuracy" in done.stdout
    assert (here / "mlruns").exists() == bool(extras & {"mlflow", "all"})
    for needs, command in NEEDED.items():
        if not extras or extras & {needs, "all"}:
            called = call(command)
            assert called.returncode in (0, 2), called.stderr
            assert called.stderr.endswith(f"pip install '.[{needs}]'\n") == (not extras), called.stderr
    for extra in extras & MADE.keys():
        for command, written in MADE[extra].items():
            called = call(command)
            assert called.returncode == 0, called.stderr
            assert written is None or (here / written).is_file()
    if not extras:
        program = PROGRAM.format(root=str(tmp_path / "environment"), params=str(PROJECT / "params.yaml"))
        script = subprocess.run([programs / "python", "-c", program], cwd=here, capture_output=True, text=True)
        assert script.returncode == 0, script.stderr
