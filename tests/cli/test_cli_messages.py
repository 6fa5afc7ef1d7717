"""Bad input: exit status 2, one line that says what is wrong and what is allowed, and nothing on the disk."""

import sys

import pytest

from commands import sets

UNKNOWN = [
    ("locl.lr=0.1", "unknown key 'locl'; did you mean 'local'?"),
    ("algorithm={name: fedprox, nu: 1}", "unknown key 'algorithm.nu'; did you mean 'mu'?"),
    ("algorithm=fedprx", "unknown name 'fedprx' in algorithms; did you mean 'fedprox'?"),
    ("algorithm=FedProx", "unknown name 'FedProx' in algorithms; did you mean 'fedprox'?"),
    ("algorithm.weighting=sampels", "unknown name 'sampels' in weighting; did you mean 'samples'?"),
    ("compare.algorithms=[fedavgg]", "unknown label 'fedavgg' in algorithms; did you mean 'fedavg'?"),
    ("algorithms={mine: {mu: 1}}", "algorithms.mine requires a name"),
]
WRONG_TYPE = [
    ("local.lr=fast", "local.lr = 'fast': should be a valid number"),
    ("local.lr=true", "local.lr = true: should be a valid number"),
    ("compare.algorithms=fedavg", "compare.algorithms = 'fedavg': should be a valid array"),
    ("evaluation.clients_every=null", "evaluation.clients_every = null: should be a valid integer; 0: off"),
    ("data={name: table, split: {period: x}}", "data.split.period = 'x': should be 'year', 'month', 'week', 'day' or"),
    ("data={name: image_folder, client: [1]}", "data.client: should be a valid integer, or a valid string"),
    ("label=a/b", "label: 'a/b' should consist of letters, digits"),
]
OUT_OF_BOUNDS = [
    ("local.lr=-1", "local.lr = -1: should be greater than 0"),
    ("seed=9223372036854775808", "seed = 9223372036854775808: should be less than 9223372036854775808"),
    ("engine.precision=fp8", "engine.precision = 'fp8': should be '32-true', '64-true'"),
    ("evaluation.splits=[train]", "evaluation.splits.0 = 'train': should be 'test' or 'validation'"),
    ("local.lr=.nan", "local.lr = nan: should be a finite number"),
    ("tune.space={local.lr: {low: .nan, high: 1}}", "tune.space.local.lr.low = nan: should be a finite number"),
]
IMPOSSIBLE = [
    ("local.nesterov=true", "local.nesterov = true requires local.momentum > 0"),
    ("scenario.pilot_sessions=5", "pilot_sessions = 5 should be at most num_sessions = 2"),
    ("scenario.num_devices=100000", "is too large: 648 samples, at least one per client"),
    ("local={optimizer: adamw, momentum: 0.9}", "local.momentum = 0.9 is not supported with local.optimizer = adamw"),
    ("compare.algorithms=[fedavg, fedavg]", "compare.algorithms: lists 'fedavg' twice"),
    ("tune.space={local.lr: {low: 1, high: 0.1}}", "requires low < high"),
    ("engine={accelerator: mps, precision: 64-true}", "engine: accelerator mps"),
    ("tracking={register: digits, model: false}", "register = 'digits' requires model = true"),
    ("tracking.uri=sqlite:///mlflow.db", "tracking.uri: should be the address of a server, such as http://"),
]
MALFORMED = [
    ("nonsense", "--set 'nonsense': write it as key=value"),
    ("a..b=1", "--set 'a..b=1': write it as key=value"),
    ("local.lr=[", "--set 'local.lr=[': '[' is not a YAML value"),
    ("seed.x=1", "seed"),
]


def refused(called, wanted, folder):
    assert wanted in called.refusal
    assert not list(folder.glob("runs/*"))


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [*UNKNOWN, *WRONG_TYPE, *OUT_OF_BOUNDS, *IMPOSSIBLE, *MALFORMED],
    ids=lambda value: value.replace("/", "|") if "=" in value else "",
)
def test_a_wrong_setting(fedtide, folder, setting, wanted):
    refused(fedtide("run", "--set", setting), wanted, folder)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"- a\n- b\n", "given.yaml should be a mapping of settings, got list"),
        (b"a: [1, 2\nb: }", "given.yaml is not YAML: "),
        (b"1: 2\n", "given.yaml: unknown key '1'"),
        (None, "no settings file given.yaml"),
    ],
)
def test_a_wrong_settings_file(fedtide, folder, content, wanted):
    if content is not None:
        (folder / "given.yaml").write_bytes(content)
    refused(fedtide("run", "--params", "given.yaml"), wanted, folder)


def test_a_folder_is_no_settings_file(fedtide, folder):
    (folder / "params.yaml").unlink()
    (folder / "params.yaml").mkdir()
    line = "params.yaml is a folder, not a settings file; give one with --params, or write one with `fedtide init`"
    assert fedtide("run").refusal == line


@pytest.mark.parametrize("command", ["run", "compare", "tune", "timeline"])
def test_a_refused_table_leaves_nothing(fedtide, folder, command):
    (folder / "own").mkdir()
    (folder / "own" / "rows.csv").write_text("a,b\n1,2\n")
    before = sorted(folder.rglob("*"))
    settings = f"data={{name: table, file: {folder}/own/rows.csv, label: c, root: {folder}/own/data}}"
    refused(fedtide(command, "--set", settings), "data.label: no column 'c'", folder)
    assert sorted(folder.rglob("*")) == before


BAD_NAME = "should consist of letters, digits"
SGD = sets("algorithm=fednova", "local.optimizer=adam")
ONLY_SGD = "local.optimizer = adam: the formulas of algorithm fednova, with these settings, hold for sgd"


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (["list", "fruit"], "no kind 'fruit'; known: aggregation, algorithms"),
        (["show", "algorithm", "fedavgg"], "did you mean 'fedavg'?"),
        (["report"], "no runs to report"),
        (["mlflow", "sync"], "no run directories in this folder"),
        (["ui"], "no MLflow store in this folder"),
        (["cite", "fedavg", "scafold"], "no algorithm, initializer or eraser 'scafold'; did you mean 'scaffold'? ("),
        (["compare", "--cluster=127.0.0.1:9"], "compare.cluster = 127.0.0.1:9: no Dask scheduler can be reached ("),
        (["compare", "--cluster=slrum"], "'slrum' is neither an address such as tcp://host:8786"),
        (["compare", "--cluster=slurm"], "compare.cluster = slurm: set compare.workers to the number of runs at once"),
        (["run", "--runs", "params.yaml"], "params.yaml: cannot create this folder (params.yaml is a file)"),
        (["download", "--out", "params.yaml/facts.json"], "params.yaml: cannot create this folder (params.yaml is a"),
        (["run", "--name", "../elsewhere"], f"'../elsewhere' {BAD_NAME}"),
        (["run", "--name", ""], f"'' {BAD_NAME}"),
        (["run", "--name", "."], f"'.' {BAD_NAME}"),
        (["run", *SGD], ONLY_SGD),
        (["compare", *SGD, "--set", "compare.algorithms=[fedavg, fednova]"], ONLY_SGD),  # before its first run
        (["compare", "--set", "engine.devices=2"], "engine.devices = 2"),
        (["tune", "--set", "engine.devices=2"], "engine.devices = 2"),
        (
            ["run", *sets("validation=0", "evaluation.splits=[test, validation]")],
            "validation = 0: evaluation.splits requires a share > 0",
        ),
    ],
)
def test_other_commands(fedtide, folder, monkeypatch, command, wanted):
    monkeypatch.setattr("fedtide.runs.jobs.cluster.connect._PATIENCE", 1)
    refused(fedtide(*command), wanted, folder)


@pytest.mark.parametrize(
    ("content", "settings", "wanted"),
    [
        ("", ["local.lr=fast"], "--set local.lr=fast: local.lr = 'fast': should be a valid number"),
        (
            "algorithms: {fedavg: {with: {locl: {lr: 9}}}}\n",
            [],
            "given.yaml: algorithms.fedavg.with: 'locl' is not a setting of a run; did you mean 'local'?",
        ),
        (
            "",
            ["local.lr=fast", "local.lr=0.1", "local.nesterov=true"],
            "--set local.nesterov=true: local: local.nesterov",
        ),
        (
            "",
            ["algorithms.mine={name: fedprox, mu: x}", "compare.algorithms=[mine]"],
            "--set algorithms.mine={name: fedprox",
        ),
        ("", ["algorithms.mine={name: fedavg, with: {local: {lr: x}}}"], "--set algorithms.mine={name: fedavg, with"),
        ("", ["compare.algorithms=[mine]"], "--set compare.algorithms=[mine]: unknown label 'mine'"),
        (
            "local: {momentum: 0.1}\n",
            ["local.nonsense=1"],
            "unknown key 'local.nonsense' (known: accumulate, batch_size, batches_span_epochs",
        ),
        ("", ["local.lr=" + "x" * 5000], "should be a valid number"),
    ],
)
def test_a_message_names_where_the_setting_comes_from(fedtide, folder, content, settings, wanted):
    (folder / "given.yaml").write_text(content)
    called = fedtide("run", "--params", "given.yaml", *sets(*settings))
    refused(called, wanted, folder)
    assert ("given.yaml" in called.err[0]) == wanted.startswith("given.yaml")
    assert len(called.err[0]) < 1500


@pytest.mark.parametrize("command", ["compare", "tune"])
def test_a_package_that_a_cluster_needs(fedtide, folder, monkeypatch, command):
    monkeypatch.setitem(sys.modules, "distributed", None)
    options = ("--set=validation=0.2", "--set=tune.space={local.lr: {low: 0.1, high: 1}}")
    wanted = (
        "compare.cluster = local requires a package that is not installed (distributed); "
        "in a clone of fedtide: pip install '.[cluster]'"
    )
    assert fedtide(command, "--cluster=local", *options).err[-1] == f"fedtide: {wanted}"
