import io
import tarfile
import zipfile

import pytest

from fedtide.world.storage.sources import read_all


def everything(name):
    return True


def write_tar(path, mode, files=(), links=()):
    with tarfile.open(path, mode) as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, kind, target in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)


def write_zip(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files:
            archive.writestr(name, content)


@pytest.mark.parametrize("ending", ["gz", "zip"])
def test_wanted_members(tmp_path, ending):
    path, files = tmp_path / "some", [("a/one", b"1"), ("a/two", b"22"), ("a/b/../three", b"333")]
    if ending == "zip":
        write_zip(path, [("a/", b""), *files])
    else:
        write_tar(path, f"w:{ending}", files, [("a/b/link", tarfile.SYMTYPE, "../fine")])
    assert read_all(path, everything) == dict(files)
    assert read_all(path, lambda name: name.endswith("two")) == {"a/two": b"22"}


def test_what_names_a_place_outside_is_read_without_leaving_anything(tmp_path):
    path = tmp_path / "deep" / "some"
    path.parent.mkdir()
    write_tar(path, "w:gz", [("../evil", b"2")], [("a/link", tarfile.SYMTYPE, "../../secret")])
    assert read_all(path, everything) == {"../evil": b"2"}
    assert sorted(item.name for item in tmp_path.rglob("*")) == ["deep", "some"]
