"""Arrays in files: equal bytes for equal arrays, and no damage goes unnoticed."""

import io
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from fedtide.core.errors import SettingsError
from fedtide.core.storage.arrays import read_arrays, write_arrays

ARRAYS = {
    "numbers": np.arange(300.0).reshape(3, 100),
    "flags": np.array([True, False]),
    "empty": np.zeros((0, 2), dtype=np.int64),
    "bytes": np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3)),
    "text": np.array("a text"),
}


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "a.npz"
    write_arrays(path, ARRAYS)
    return path.read_bytes()


def test_arrays_come_back_as_they_were_also_to_numpy(tmp_path, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with np.load(path, allow_pickle=False) as plain:
        for found in (read_arrays(path), dict(plain)):
            assert list(found) == list(ARRAYS)
            for name, values in ARRAYS.items():
                assert found[name].dtype == values.dtype
                assert found[name].shape == values.shape
                assert np.array_equal(found[name], values)


def test_the_bytes_are_those_of_a_plain_archive_with_a_comment(content):
    """Neither times nor what Python's versions write differently for files of unknown size."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, values in ARRAYS.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, values)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
    assert content[:-66] == stream.getvalue()[:-2]
    assert content[-66:-64] == (64).to_bytes(2, "little")


def refused(path, content):
    path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        read_arrays(path)
    assert str(caught.value) == f"{path} is damaged, or an earlier version wrote it"


@given(data=st.data())
@effort(max_examples=150, deadline=None)
def test_any_changed_cut_or_added_byte_is_noticed(tmp_path_factory, content, data):
    place = data.draw(st.integers(0, len(content) - 1))
    change = data.draw(st.sampled_from(["flip", "cut", "drop", "insert", "append", "zero"]))
    changed = {
        "flip": content[:place] + bytes((content[place] ^ (1 << data.draw(st.integers(0, 7))),)) + content[place + 1 :],
        "cut": content[:place],
        "drop": content[:place] + content[place + 1 + data.draw(st.integers(0, 20)) :],
        "insert": content[:place] + data.draw(st.binary(min_size=1, max_size=70)) + content[place:],
        "append": content + data.draw(st.binary(min_size=1, max_size=70)),
        "zero": content[:place].ljust(len(content), b"\0"),
    }[change]
    if changed != content:
        refused(tmp_path_factory.getbasetemp() / "changed.npz", changed)


def test_arrays_changed_by_another_program_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, **{**ARRAYS, "numbers": np.arange(3)})
    refused(path, path.read_bytes())
