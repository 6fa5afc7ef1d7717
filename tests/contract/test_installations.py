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
UNTRIED = {"dev", "docs", "notebooks", "he", "pretrained"}  # of developers, or with packages for few machines
PROGRAM = """
import fedtide
from fedtide.core.discovery.shipped import DEFAULTS
assert fedtide.__file__.startswith({root!r}), fedtide.__file__
assert DEFAULTS.read_bytes() == open({params!r}, "rb").read() and not DEFAULTS.is_symlink()
print(fedtide.run(fedtide.Params.read(fedtide.Params().raw, "scenario.rounds_per_session=1"), "python"))
"""


def requirements(extra):
    """Names of the installed distributions that fedtide needs, with one of its extras or none."""
    todo, seen = [("fedtide", ""), ("fedtide", extra or "")], set()
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
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, PROJECT]
    subprocess.run(build, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir()], check=True)
    return next(folder.glob("*.whl"))


def installed(wheel, folder, extra):
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
    for entry in {entry for name in requirements(extra) for entry in top_level(name)}:
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
@pytest.mark.parametrize("extra", [None, *sorted(EXTRAS.keys() - UNTRIED)])
def test_an_installation_trains_outside_of_the_project(wheel, tmp_path, extra):
    programs, here = installed(wheel, tmp_path / "environment", extra), tmp_path / "elsewhere"
    here.mkdir()
    run = [programs / "fedtide", "run", "-q", "--set", "scenario.rounds_per_session=1"]
    done = subprocess.run(run, cwd=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "final accuracy" in done.stdout
    assert (here / "mlruns").exists() == (extra in ("mlflow", "all"))
    for command, needs in (("reproduce --list", "reproduce"), ("init --dvc", "dvc"), ("predict RUN rows.csv", "data")):
        called = subprocess.run([programs / "fedtide", *command.split()], cwd=here, capture_output=True, text=True)
        assert called.returncode in (0, 2), called.stderr
        if extra is None:
            assert called.stderr.endswith(f"pip install '.[{needs}]'\n")
        elif extra in (needs, "all"):
            assert "pip install" not in called.stderr
    if extra == "report":
        chosen = ["scenario.rounds_per_session=1", "compare.algorithms=[fedavg]", "compare.seeds=[0]"]
        for command in ("compare", "report"):
            small = [programs / "fedtide", command, *(word for item in chosen for word in ("--set", item))]
            called = subprocess.run(small, cwd=here, capture_output=True, text=True)
            assert called.returncode == 0, called.stderr
        assert (here / "report/report.html").is_file()
    if extra == "tide":
        called = subprocess.run([programs / "fedtide", "tide", "board"], cwd=here, capture_output=True, text=True)
        assert called.returncode == 0, called.stderr
        assert (here / "report/tide/board.html").is_file()
    program = PROGRAM.format(root=str(tmp_path / "environment"), params=str(PROJECT / "params.yaml"))
    script = subprocess.run([programs / "python", "-c", program], cwd=here, capture_output=True, text=True)
    assert script.returncode == 0, script.stderr
