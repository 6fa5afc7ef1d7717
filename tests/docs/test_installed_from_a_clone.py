"""No file tells anybody to install the project by its name: no index has it, so whoever registers it is installed."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BY_NAME = re.compile(
    r"""
    \b (?: (?:pip3?|pipx|uv\s+pip|uv\s+tool) \s+ (?:-\S+\s+)* (?:install|download|wheel|run) | uv\s+add | uvx )
    (?: (?:[ ]+[^\s`;&|]+)* [ ]+     # options and other requirements, on the same line
      | \s+ (?:[#*>]\s+)? )          # a sentence may go on in the next line
    \\? ['"]? fedtide (?![\w/-])
    """,
    re.IGNORECASE | re.VERBOSE,
)


def by_name(text: str) -> list[str]:
    """Installations of a requirement on fedtide."""
    return [match[0] for match in BY_NAME.finditer(text.replace("\\\n", " "))]


@pytest.mark.slow
def test_no_file_installs_the_project_by_its_name() -> None:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found, read = {}, set()
    for name in filter(None, names.split("\0")):
        try:
            found[name] = by_name((ROOT / name).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, OSError):  # a picture, a link to a folder, or a file that is being removed
            continue
        read.add(Path(name).suffix)
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert read >= {".md", ".py", ".yaml", ".ipynb", ".toml", ".txt", ""}


@pytest.mark.parametrize(
    "line",
    [
        "Detectors: `pip install '{}[drift]'`.",
        'RUN pip install --no-cache-dir -c constraints.txt \\\n  "{}[all]"',
        "# an optional dependency: pip install\n# {}[data].",
        "python -m pip -q install -U numpy {}==0.2.0",
        "pipx run {} compare",
        '"source": ["!pip install \\"{}[report]\\""]',
    ],
)
def test_an_installation_by_name_is_found(line: str) -> None:
    assert len(by_name(line.format("fedtide"))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "in a clone of fedtide: pip install '.[drift]'",
        "```sh\npip install '.[cluster]'\nfedtide compare --cluster local\n```",
        "pip install dist/fedtide-0.2.0-py3-none-any.whl",
        "`pip install .` installs what fedtide needs",
    ],
)
def test_an_installation_of_files_is_not(line: str) -> None:
    assert by_name(line) == []
