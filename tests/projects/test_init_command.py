"""``fedtide init``: what it writes runs; nothing is overwritten, nothing is written beside an error."""

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from commands import sets
from fedtide.authoring.project.pipeline import pipeline_files
from fedtide.authoring.project.templates import TEMPLATES, template
from fedtide.core import plugins
from fedtide.core.discovery.shipped import DEFAULTS
from fedtide.settings.experiment import Experiment
from fedtide.settings.params import Params

ONE = ("compare.seeds=[0]", "compare.workers=1", "tracking.mlflow=false", "local.lr=0.5")
PROJECT = Path(__file__).parents[2]
ROWS = [f"2024-{1 + n % 3:02}-{1 + n % 28:02},shop {n % 4},{n % 7},{('yes', 'no')[n * n % 5 % 2]}" for n in range(240)]


@pytest.fixture
def empty(folder):
    (folder / "params.yaml").unlink()
    (folder / "orders.csv").write_text("\n".join(["day,shop,price,returned", *ROWS, ""]))
    return folder


def written(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != "orders.csv")


def test_the_default_experiment_is_one_file():
    assert DEFAULTS.samefile(PROJECT / "params.yaml")
    assert Params().raw == Params.read(PROJECT / "params.yaml").raw


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_valid_and_has_all_groups_that_the_pipeline_depends_on(name):
    params = Params(yaml.safe_load(template(name)))
    assert params.raw.keys() == Params().raw.keys()
    assert len(params.grid()) > 1
    for settings in params.grid():
        plugins.load("data", settings.data.name)
    assert all("#" in line for line in template(name).splitlines()[:2])


@pytest.mark.slow
def test_settings_are_written_once(fedtide, empty):
    assert fedtide("init").status == 0
    first, _, rest = (empty / "params.yaml").read_text().partition("\n")
    assert first == "# yaml-language-server: $schema=params.schema.json"
    assert rest == DEFAULTS.read_text()
    schema = json.loads(json.dumps(Experiment.model_json_schema()))
    assert json.loads((empty / "params.schema.json").read_text()) == schema
    again, shipped = ([run.canonical() for run in params.grid()] for params in (Params.read("params.yaml"), Params()))
    assert again == shipped
    line = "params.yaml already exists and is not overwritten; rename it, or use another folder"
    assert fedtide("init", "--template", "drift").refusal == line
    assert (empty / "params.yaml").read_text() == f"{first}\n{rest}"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--template", "drift", "--from", "orders.csv"), "--template and --from exclude each other; give one of them"),
        (("--from", "absent.csv"), "data.file = 'absent.csv': no such file"),
        (("--from", "params.txt"), "params.txt: no column can be a label"),
        (("--from", "absent.csv", "--dvc"), "data.file = 'absent.csv': no such file"),
        (("--client", "shop"), "--client requires --from, the table that has the column"),
        (("--from", "orders.csv", "--time", "dya"), "orders.csv: --time: no column 'dya'; did you mean 'day'?"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(fedtide, empty, arguments, wanted):
    (empty / "params.txt").write_text("a,b\n" + "".join(f"t{n},u{n}\n" for n in range(30)))
    assert wanted in fedtide("init", *arguments).refusal
    assert written(empty) == ["params.txt"]


@pytest.mark.slow
def test_settings_for_a_table_run(fedtide, empty):
    call = fedtide("init", "--from", "orders.csv", "--client", "shop")
    assert call.out[:4] == [
        "label: using column 'returned' (2 classes; matched by name).",
        "client: using column 'shop' (4 clients, 60 rows per client on average; as given).",
        "time: using column 'day' (dates such as 2024-01-01; matched by name).",
        "scenario: every month is a session with the clients that have rows in it.",
    ]
    assert written(empty) == ["params.schema.json", "params.yaml"]
    small = ("--set", "scenario.rounds_per_period=1", "--set", "tracking.mlflow=false")
    assert fedtide("run", "-q", *small).out[-1].endswith("%")


@pytest.mark.slow
def test_auroc_is_the_headline_where_a_class_is_rare(fedtide, empty):
    rows = [row.rpartition(",")[0] + (",no", ",yes")[n % 8 == 0] for n, row in enumerate(ROWS)]
    (empty / "orders.csv").write_text("\n".join(["day,shop,price,returned", *rows, ""]))
    (line,) = [line for line in fedtide("init", "--from", "orders.csv").out if line.startswith("metric: ")]
    assert "'yes' has 12.5% of the rows" in line
    chosen = Params.read("params.yaml").experiment
    assert (chosen.report.metric, chosen.evaluation.metrics[0]) == ("served_auroc_next", "auroc")
    called = fedtide("compare", *sets("compare.algorithms=[fedavg, fedprox]", "scenario.rounds_per_period=3", *ONE))
    (said,) = [line for line in called.err if "the final model is right on all test samples of class 'no'" in line]
    assert "use evaluation.metrics, such as balanced_accuracy, auroc and average_precision" in said
    (empty / "params.yaml").unlink()
    (empty / "orders.csv").write_text(
        "\n".join(["a,b,label", *(f"{n % 7},{n % 5},{int(n % 9 == 0)}" for n in range(90)), ""])
    )
    assert fedtide("init", "--from", "orders.csv").status == 0
    assert Params.read("params.yaml").experiment.report.metric == "auroc"


@pytest.mark.slow
def test_a_table_outside_of_the_folder_is_found_from_anywhere(fedtide, empty, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "orders.csv"
    (empty / "orders.csv").rename(outside)
    assert fedtide("init", "--from", os.path.relpath(outside)).status == 0
    assert yaml.safe_load((empty / "params.yaml").read_text())["data"]["file"] == str(outside.resolve())


def test_the_pipeline_comes_with_settings_that_are_there(fedtide, empty):
    (empty / "params.yaml").write_text("seed: 5\n")
    (empty / ".gitignore").write_text("# mine\n\n/runs/\n\n*.log")
    call = fedtide("init", "--dvc")
    assert call.status == 0
    assert call.out[1:] == [
        "this folder is not in git, which `dvc exp` requires: `git init && dvc config --unset core.no_scm`",
        "params.yaml: `dvc repro` requires compare.algorithms, such as `compare: {algorithms: [fedavg]}`",
    ]
    ignored = (empty / ".gitignore").read_text()
    assert ignored.startswith("# mine\n\n/runs/\n\n*.log\n")
    assert ignored.count("/runs/\n") == 1
    stages = yaml.safe_load((empty / "dvc.yaml").read_text())["stages"].values()
    outputs = [next(iter(out), out) if isinstance(out, dict) else out for kind in ("outs", "metrics", "plots")
               for stage in stages for out in stage.get(kind, ())]  # fmt: skip
    assert {path.partition("/")[0] for path in outputs} <= set(re.findall(r"^/(.*)/$", ignored, re.MULTILINE))
    assert (empty / "params.yaml").read_text() == "seed: 5\n"
    assert {"dvc.yaml", "pipeline", ".dvc", ".gitignore"} <= set(written(empty))
    assert "dvc.yaml already exists and is not overwritten" in fedtide("init", "--dvc").err[0]


def test_the_pipeline_is_that_of_the_project_without_its_sources(tmp_path):
    files = {path.relative_to(tmp_path).as_posix(): text for path, text in pipeline_files(tmp_path).items()}
    shipped = yaml.safe_load((PROJECT / "dvc.yaml").read_text())["stages"]
    stages = yaml.safe_load(files.pop("dvc.yaml"))["stages"]
    for name, stage in shipped.items():
        if "deps" in stage:
            stage["deps"] = [path for path in stage["deps"] if not path.startswith("src/")]
        assert stages[name] == stage
    assert files == {f"pipeline/{path.name}": path.read_text() for path in (PROJECT / "pipeline").glob("*.py")}
    assert {re.search(r"pipeline/\w+\.py", stage["cmd"])[0] for stage in stages.values()} <= files.keys()
