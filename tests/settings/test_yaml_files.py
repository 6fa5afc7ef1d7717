"""YAML as people write it, and what a settings file must not be."""

from pathlib import Path

import pytest

from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params
from fedtide.settings.reading.yaml_files import read_mapping, read_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1E3", 1000.0),
        ("-2.5e+1", -25.0),
        ("1e", "1e"),
        ("e3", "e3"),
        ("7", 7),
        ("-1_000", -1000),
        ("0x1f", 31),
        ("0012", "0012"),
        ("12:30", "12:30"),
    ],
)
def test_numbers_with_an_exponent_are_numbers(text: str, value: object) -> None:
    found = read_value(text)
    assert found == value
    assert type(found) is type(value)


def test_a_rate_with_an_exponent_is_accepted_in_a_file_and_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text("local: {lr: 1e-3}\n")
    assert Params.read(file).run().local.lr == 1e-3
    assert Params.read(file, ["local.lr=5E-2"]).run().local.lr == 5e-2


def test_a_number_with_leading_zeros_is_no_octal_one() -> None:
    with pytest.raises(SettingsError, match="--set seed=0012: seed = '0012': should be a valid integer"):
        Params.read(Path("params.yaml"), ["seed=0012"])


def test_merge_keys_may_be_overridden(tmp_path: Path) -> None:
    file = tmp_path / "given.yaml"
    file.write_text("base: &base {lr: 1}\nlocal: {<<: *base, lr: 2}\n")
    assert read_mapping(file)["local"] == {"lr": 2}
