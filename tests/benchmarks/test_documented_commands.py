"""Every script of ``benchmarks/`` has a test, and accepts the commands that pages and docstrings print."""

import argparse
import re
from pathlib import Path
from typing import Any, NoReturn

import pytest

from benchmark_scripts import SCRIPTS, Call

ROOT = SCRIPTS.parent
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *SCRIPTS.rglob("*.md"), *SCRIPTS.rglob("*.py")]
PRINTED = re.compile(r"python\s+benchmarks/([\w/]+\.py)\b([^`#'\n]*)")
CALLS = sorted(
    {
        (name, " ".join(re.sub(r"[][]", "", words).split()))  # optional words of a docstring are given
        for page in PAGES
        for name, words in PRINTED.findall(page.read_text(encoding="utf-8"))
    }
)


class Accepted(Exception):
    """A script has parsed its options."""


@pytest.fixture
def parse_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts end once their options are parsed."""
    parse = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *given: Any) -> NoReturn:
        parse(parser, *given)
        raise Accepted

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)


def test_printed_commands_are_accepted(call: Call, parse_only: None, capsys: pytest.CaptureFixture[str]) -> None:
    refused = {}
    for name, words in CALLS:
        if name == "tide/freeze.py":  # which takes a folder and would begin
            assert words in ("", "FOLDER")
            continue
        try:
            with pytest.raises(Accepted):
                call(name, *words.split())
        except SystemExit:
            refused[name, words] = capsys.readouterr().err.splitlines()[-1]
    assert refused == {}
    assert len({name for name, _ in CALLS}) > 10


def test_an_option_that_a_script_does_not_have_is_refused(call: Call, parse_only: None) -> None:
    with pytest.raises(SystemExit, match="2"):
        call("rules.py", "--rounds", 1)


def test_every_script_is_called_in_a_test() -> None:
    tests = (*Path(__file__).parent.glob("test_*.py"), ROOT / "tests/tide/conftest.py")
    called = set(re.findall(r'([\w/]+\.py)"', "\n".join(path.read_text(encoding="utf-8") for path in tests)))
    scripts = {
        path.name for path in (*SCRIPTS.glob("*.py"), *SCRIPTS.glob("tide/*.py")) if "__main__" in path.read_text()
    }
    assert scripts <= {Path(name).name for name in called}
