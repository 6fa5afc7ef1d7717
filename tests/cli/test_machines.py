"""What a command finds around it: a pipe that takes few characters, a system on which it does not run."""

import importlib
import io
import sys

import pytest

import fedtide.cli
from fedtide.cli.exits import guarded


@pytest.mark.parametrize(
    ("encoding", "errors", "written"),
    [
        ("latin-1", "strict", b"a \xb1 \\u2192\n"),
        ("ascii", "surrogateescape", b"a \\xb1 \\u2192\n"),  # Python's for the locale C
        ("utf-8", "strict", "a ± →\n".encode()),
    ],
)
def test_output_goes_into_a_pipe_of_any_encoding(monkeypatch, encoding, errors, written):
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding=encoding, errors=errors))
    guarded(lambda: print("a ± →"))
    sys.stdout.flush()
    assert pipe.getvalue() == written


def test_windows_is_refused_in_one_line_before_anything_is_imported(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as left:
        importlib.reload(fedtide.cli)
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedtide: runs on Linux and macOS, not on Windows; use it in WSL 2")
