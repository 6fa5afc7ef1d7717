"""``fedtide new`` writes plug-ins that keep their contract, and nothing else, anywhere."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from commands import Fedtide
from fedtide.authoring.trial import Trial
from fedtide.authoring.writing import TEMPLATES
from fedtide.core import plugins

GUIDE = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parents[2] / "docs").glob("extend_*.md"))
)
WORDS = {
    "algorithms": "algorithm", "data": "dataset", "detectors": "detector", "models": "model", "partitions": "partition",
    "scenarios": "scenario", "uplink": "link",
}  # fmt: skip


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_template_is_the_example_of_the_guide(kind: str) -> None:
    template = TEMPLATES[kind]
    assert f"```python\n# {kind}/{template.name}\n{template.read_text()}```" in GUIDE


@pytest.mark.slow
@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_new_plugin_keeps_its_contract(fedtide: Fedtide, own: Path, kind: str) -> None:
    called = fedtide("new", WORDS[kind], "my_own_2")
    plugin, test = own / kind / "my_own_2.py", own / "tests" / f"test_{kind}_my_own_2.py"
    assert called.out == [f"wrote {plugin} and {test}; next: fedtide test my_own_2"]
    module = runpy.run_path(str(test))
    trial = Trial(kind, "my_own_2")
    for requirement in module["CONTRACT"]:
        module["test_contract"](trial, requirement)
    assert plugins.load(kind, "my_own_2").__name__ == "MyOwn2"
    template = TEMPLATES[kind]
    cls = re.findall(r"^class (\w+)", template.read_text(), re.MULTILINE)[-1]
    assert not re.search(rf"class {cls}\b|[\".]{template.stem}\"", plugin.read_text())


@pytest.mark.slow
def test_fedtide_test_runs_the_contract(fedtide: Fedtide, own: Path) -> None:
    called = fedtide("new", "link", "iid")
    assert called.out[0].endswith("; next: fedtide test iid --kind link")  # iid is a partition, too
    called = fedtide("test", "iid")
    assert (called.status, called.out) == (2, [])
    assert called.err == ["fedtide: partitions and uplink have a plug-in named 'iid': choose one with --kind"]
    called = fedtide("test", "iid", "--kind", "link")
    promises = ("is documented", "rejects invalid settings", "trains", "repeats", "resumes, on any engine")
    assert (called.status, called.out) == (0, [f"PASSED iid: {requirement}" for requirement in promises])
    called = fedtide("test", "iid", "--kind", "partition", "--set", "local.lr=fast")
    assert (called.status, called.out) == (1, [f"PASSED iid: {requirement}" for requirement in promises[:2]])
    assert called.err == ["FAILED iid: trains: --set local.lr=fast: local.lr = 'fast': should be a valid number"]
    called = fedtide("test", "iid", "--kind", "partition", "--set", "local.lr=fast", "--json")
    problems = [None, None, "--set local.lr=fast: local.lr = 'fast': should be a valid number"]
    listed = [{"requirement": text, "problem": problem} for text, problem in zip(promises, problems, strict=False)]
    assert (called.status, called.err, json.loads(called.out[-1])) == (1, [], listed)


def test_the_folder_need_not_be_known_yet(fedtide: Fedtide, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDTIDE_PLUGINS", raising=False)
    called = fedtide("new", "detector", "louder")
    assert called.out[0].endswith(f"; next: export FEDTIDE_PLUGINS={folder / 'plugins'} && fedtide test louder")
    assert (folder / "plugins" / "detectors" / "louder.py").is_file()


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("algorithm", "Mine"), "name = 'Mine': should be a lower-case letter and at most 49 more, digits or _; it names a"),
        (("algorithm", "lambda"), "name = 'lambda': is reserved in Python"),
        (("algorithm", "round"), "name = 'round': its class would be Round, which already exists; choose another name"),
        (("algorithm", "scaffold"), "name = 'scaffold': a plug-in of this name exists in algorithms; choose another"),
        (("objective", "mine"), "no template for objectives; templates exist for algorithms, data, detectors,"),
        (("thing", "mine"), "no kind 'thing'; known: "),
        (("algorithm", "mine", "--folder", "params.yaml"), "folder = 'params.yaml': params.yaml is not a folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_one_line_and_nothing_is_written(
    fedtide: Fedtide, own: Path, arguments: tuple[str, ...], wanted: str
) -> None:
    called = fedtide("new", *arguments)
    assert (called.status, called.out) == (2, [])
    (line,) = called.err
    assert line.startswith(f"fedtide: {wanted}")
    assert not own.exists()


def test_settings_that_have_to_be_given_are(fedtide: Fedtide) -> None:
    called = fedtide("test", "krum", "--set", "aggregation.f=1")
    assert (called.status, len(called.out)) == (0, 5), called.err
    assert fedtide("test", "krum").status == 1


@pytest.mark.parametrize("taken", ["algorithms/mine.py", "tests/test_algorithms_mine.py"])
def test_no_file_is_written_over(fedtide: Fedtide, own: Path, taken: str) -> None:
    (own / taken).parent.mkdir(parents=True)
    (own / taken).write_text("mine")
    called = fedtide("new", "algorithm", "mine")
    assert called.status == 2
    assert "mine" in called.err[0]
    assert [(path.relative_to(own).as_posix(), path.read_text()) for path in own.rglob("*.py")] == [(taken, "mine")]


def test_an_unknown_plugin_is_one_line(fedtide: Fedtide) -> None:
    called = fedtide("test", "scafold")
    assert called.status == 2
    assert called.err == ["fedtide: no plug-in named 'scafold'; did you mean 'scaffold'?"]
    assert fedtide("test", "zzz").err == ["fedtide: no plug-in named 'zzz'; is its folder in FEDTIDE_PLUGINS?"]
    called = fedtide("test", "scaffold", "--kind", "model")
    assert called.err[0].startswith("fedtide: no plug-in named 'scaffold' in models (known: ")
