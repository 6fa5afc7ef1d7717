"""Marks of files that grow."""

import hashlib

from fedtide.records.files.marks import GrowingFiles, problems


def test_marks_are_those_of_the_files(tmp_path):
    (tmp_path / "a").write_text("before\n")
    growing = GrowingFiles(tmp_path)
    growing.append("a", b"one\n")
    first = growing.marks()
    growing.append("a", b"two\n")
    growing.append("b", b"three\n")
    growing.watch("absent")
    second = growing.marks()
    for name in ("a", "b"):
        content = (tmp_path / name).read_bytes()
        assert second[name] == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert set(second) == {"a", "b"}
    assert problems(tmp_path, first, grown=True) == problems(tmp_path, second) == []
    assert problems(tmp_path, first) == ["a has 15 instead of 11 bytes"]


def test_what_is_wrong_is_named(tmp_path):
    growing = GrowingFiles(tmp_path)
    for name in ("changed", "gone", "longer", "shorter"):
        growing.append(name, b"12345\n")
    marks = growing.marks()
    (tmp_path / "changed").write_text("12445\n")
    (tmp_path / "gone").unlink()
    (tmp_path / "longer").write_text("12345\n6")
    (tmp_path / "shorter").write_text("123")
    lengths = ["gone is missing", "longer has 7 instead of 6 bytes", "shorter has 3 instead of 6 bytes"]
    assert problems(tmp_path, marks, read=False) == lengths
    assert problems(tmp_path, marks) == ["changed was changed", *lengths]
    assert problems(tmp_path, marks, grown=True) == ["changed was changed", lengths[0], lengths[2]]
