"""FedSSG's tables on data that is not at hand: two rounds on small files in the published formats."""

import csv

import numpy as np
import pytest

from commands import fedtide, folder, shared_data
from raw_files import batch, noise, write_emnist, write_tar

__all__ = ["fedtide", "folder", "shared_data"]

CIFAR = {
    "cifar10": ("labels", "cifar-10-batches-py", {f"data_batch_{n}": 200 for n in range(1, 6)} | {"test_batch": 100}),
    "cifar100": ("fine_labels", "cifar-100-python", {"train": 1000, "test": 100}),
}
"""Key of the labels, folder, and samples by file."""


def write_files(name, data):
    """A thousand training samples and a hundred for the test, under names whose checksums are not known."""
    kind = "emnist_letters" if "emnist" in name else name.split("_")[1]
    raw = data / kind / "raw"
    raw.mkdir(parents=True)
    if kind == "emnist_letters":
        write_emnist(raw / "emnist-gzip.zip", train=100, test=10)
        return
    (key, folder, sizes), classes = CIFAR[kind], int(kind.removeprefix("cifar"))
    files = {
        f"{folder}/{file}": batch(key, noise(place, size, 3072), np.tile(np.arange(classes), size // classes).tolist())
        for place, (file, size) in enumerate(sizes.items())
    }
    write_tar(raw / f"{folder}.tar.xz", "w:xz", files)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table4_emnist_15", "table1_cifar10_500", "table1_cifar100_100"])
def test_two_rounds(name, fedtide, folder, request):
    (folder / "experiments").symlink_to(request.config.rootpath / "experiments")
    write_files(name, folder / "data")
    part = ("--only", "distribution=DiD1", "--only", "algorithm=fedavg,fedssg")
    short = ("--set", "scenario.rounds=2", "--set", "algorithms.fedssg.horizon=300", "--set", "local.epochs=1")
    called = fedtide("reproduce", name, *part, *short, "--workers", "1", "-q")
    assert called.status == 0, called.err
    assert any(line.startswith("missing: distribution=IID") for line in called.out)
    with (folder / f"results/{name}/released.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["quantity"] == "accuracy" and row["obtained"]]
    assert [(row["distribution"], row["algorithm"]) for row in rows] == [("DiD1", "fedavg"), ("DiD1", "fedssg")]
    for run in (folder / "runs").iterdir():
        with (run / "history.csv").open(newline="") as stream:
            history = list(csv.DictReader(stream))
        assert [int(row["round"]) for row in history] == [1, 2]
        assert all(float(row[f"test_accuracy_{model}"]) >= 0 for row in history for model in ("global", "participants"))
        assert all(np.isfinite(float(row["test_loss"])) for row in history)
