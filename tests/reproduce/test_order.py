"""``fedtide reproduce`` of several tables: in the order given, within a time limit."""

import json

import pytest

from alarms import alarm
from commands import sets

__all__ = ["alarm"]


@pytest.fixture
def two(tiny):
    """A second experiment of the same settings with another seed; its published table is the first one's."""
    (tiny.parent / "small.yaml").write_text(tiny.read_text().replace("seeds: [1, 2]", "seeds: [3]"))
    return tiny


def labels(folder):
    """Label, initializer and seed of the runs, in the order in which they began."""
    begun = sorted((folder / "runs").iterdir(), key=lambda path: (path / "settings.json").stat().st_mtime_ns)
    return [path.name.rpartition("-")[0] for path in begun]


@pytest.mark.slow
def test_tables_are_run_in_the_order_of_the_file(fedtide, folder, two):
    (folder / "order.yaml").write_text(
        "- {name: tiny, only: [algorithm=scaffold]}\n"
        "- {name: small, profile: fast, only: [algorithm=fedavg], minutes: 2.5}\n- {name: tiny}\n"
    )
    listed = fedtide("reproduce", "--order", "order.yaml", "--list", "--json")
    assert json.loads(listed.out[-1])[1] == {
        "name": "small", "profile": "fast", "only": "algorithm=fedavg", "runs": "1", "minutes": "2.5"
    }  # fmt: skip
    assert not (folder / "runs").exists()
    called = fedtide("reproduce", "--order", "order.yaml", "-q")
    assert called.status == 0
    assert labels(folder) == [
        *(f"scaffold-average-s{n}" for n in (1, 2)),
        *(f"fedavg-previous-s{n}" for n in (3, 1, 2)),
    ]
    written = [f"results: results/{name}.csv and .md" for name in ("tiny/plain", "small/fast")]
    assert [line for line in called.out if line.startswith("results: ")] == written
    page = (folder / "results/tiny/plain.md").read_text()
    assert "Missing runs" not in page
    assert "    fedtide reproduce tiny --profile plain\n" in page
    tables = json.loads(fedtide("reproduce", "small", "tiny", "--only", "alpha=0.7", "--json", "-q").out[-1])
    assert [(table["name"], table["profile"]) for table in tables] == [("small", "plain"), ("tiny", "plain")]
    assert len(list((folder / "runs").iterdir())) == 6


@pytest.mark.slow
def test_time_that_ends_leaves_what_the_same_command_continues(fedtide, folder, two, alarm, monkeypatch):
    command = ("reproduce", "tiny", "small", "-q", *sets(alarm.format(9)), "--seconds", "600")
    called = fedtide(*command)
    assert called.status == 0
    assert called.err[-1] == "--seconds 600: 2 of 2 tables left; re-run the same command to resume"
    assert not (folder / "results/small").exists()
    assert 0 < len(list((folder / "runs").glob("*/summary.json"))) < 4
    monkeypatch.delenv("COMMAND")
    called = fedtide(*command)
    assert (called.status, [line for line in called.err if "--seconds" in line]) == (0, [])
    assert len(list((folder / "runs").glob("*/summary.json"))) == 6
    assert "Missing runs" not in (folder / "results/small/plain.md").read_text()


@pytest.mark.slow
def test_a_table_that_is_refused_stops_no_other(fedtide, folder, two):
    """The first one asks for a device that no Linux machine has."""
    broken = two.parent / "small.yaml"
    broken.write_text(
        broken.read_text().replace(
            "local: {steps: 1, lr: 0.1}", "local: {steps: 1, lr: 0.1, batch_size: 1}\nengine: {accelerator: mps}"
        )
    )
    called = fedtide("reproduce", "small", "tiny", "--only", "algorithm=scaffold", "-q")
    assert called.status == 2
    assert called.err[-1].startswith("fedtide: small: ")
    assert len(list((folder / "runs").glob("*/summary.json"))) == 2


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (None, (), "--order order.yaml: [Errno 2] No such file or directory: 'order.yaml'"),
        ("a: [", (), "--order order.yaml: while parsing a flow node"),
        ("name: tiny", (), "order.yaml: entries: "),
        ("- {name: tiny, minute: 3}", (), "order.yaml: unknown key 'entries.0.minute'"),
        ("- {name: tiny}\n- {name: teny}", (), "unknown experiment 'teny'; did you mean 'tiny'?"),
        ("- {name: tiny}\n- {name: tiny, profile: quick}", (), "tiny.yaml has no profile 'quick'"),
        ("- {name: tiny}", ("tiny",), "--order order.yaml gives names, profiles and cells; leave out NAME, --profile"),
    ],
)
def test_a_bad_order_is_one_line_before_any_run(fedtide, folder, tiny, text, words, message):
    if text is not None:
        (folder / "order.yaml").write_text(text)
    assert fedtide("reproduce", *words, "--order", "order.yaml").refusal.startswith(message)
    assert not (folder / "runs").exists()
