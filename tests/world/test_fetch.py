import gzip
import hashlib
import io
import signal
import subprocess
import sys
import tarfile

import pytest

from fedtide.core.errors import SettingsError
from fedtide.world.storage.sources import Resource, fetch, read_all

CONTENT = bytes(range(256)) * 40
MD5 = hashlib.md5(CONTENT).hexdigest()


def resource(*urls, file="file.bin", checksum=f"md5:{MD5}", **options):
    return Resource(file, urls, checksum, **options)


def write(path, content=CONTENT):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def raw_names(root):
    return sorted(path.name for path in (root / "toy" / "raw").iterdir())


def refusal(root, *resources, mirror=None):
    with pytest.raises(SettingsError) as caught:
        fetch("toy", resources, root, mirror)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_download_is_complete_and_done_once(site, tmp_path):
    site.files["file.bin"] = CONTENT
    raw = fetch("toy", [resource(site.url("file.bin"))], tmp_path)
    assert raw == tmp_path / "toy" / "raw"
    assert (raw / "file.bin").read_bytes() == CONTENT
    assert raw_names(tmp_path) == ["file.bin"]
    fetch("toy", [resource(site.url("file.bin"))], tmp_path)
    assert site.requests == ["file.bin"]


def test_interrupted_download_leaves_nothing_and_starts_again(site, tmp_path):
    site.files["file.bin"], site.cut_after = CONTENT, 4000
    wanted = resource(site.url("file.bin"), checksum="")
    message = refusal(tmp_path, wanted)
    assert f"the connection ended {len(CONTENT) - 4000} bytes too early" in message
    assert raw_names(tmp_path) == []
    site.cut_after = None
    raw = fetch("toy", [wanted], tmp_path)
    assert (raw / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b"<p>moved</p>", "text/html; charset=utf-8"),
        (b"\n<!DOCTYPE html><html>Please log in</html>", "application/octet-stream"),
    ],
)
def test_web_page_is_not_taken_for_data(site, tmp_path, content, content_type):
    site.files["file.bin"], site.content_type = content, content_type
    message = refusal(tmp_path, resource(site.url("file.bin"), checksum=""))
    assert "a web page instead of data" in message
    assert raw_names(tmp_path) == []


def test_wrong_checksum_names_the_expected_one_and_the_remedy(site, tmp_path):
    site.files["file.bin"] = CONTENT[:-1] + b"!"
    message = refusal(tmp_path, resource(site.url("file.bin")))
    assert f"expected {MD5}" in message
    assert f"place file.bin (md5 {MD5}) in {tmp_path / 'toy' / 'raw'} or set data.mirror" in message
    assert raw_names(tmp_path) == []


def test_next_address_is_tried(site, tmp_path):
    site.files["second.bin"] = CONTENT
    raw = fetch("toy", [resource(site.url("first.bin"), site.url("second.bin"))], tmp_path)
    assert (raw / "file.bin").read_bytes() == CONTENT
    assert site.requests == ["first.bin", "second.bin"]


def test_file_without_an_address_is_asked_for(tmp_path):
    message = refusal(tmp_path, Resource("all_*.json"))
    assert "it has no download address; place all_*.json in" in message


def test_wrong_file_placed_by_hand_is_refused_and_left_alone(site, tmp_path):
    site.files["file.bin"] = CONTENT
    placed = write(tmp_path / "toy" / "raw" / "file.bin", CONTENT[:100])
    message = refusal(tmp_path, resource(site.url("file.bin")))
    assert f"{placed} has md5 {hashlib.md5(CONTENT[:100]).hexdigest()}, expected {MD5}; delete it" in message
    assert placed.read_bytes() == CONTENT[:100]
    assert site.requests == []


def test_mirror_comes_before_the_network(site, tmp_path):
    site.files["file.bin"] = CONTENT
    write(tmp_path / "mirror" / "deep" / "down" / "file.bin")
    raw = fetch("toy", [resource(site.url("file.bin"))], tmp_path / "root", tmp_path / "mirror")
    assert (raw / "file.bin").read_bytes() == CONTENT
    assert site.requests == []


def test_mirror_of_the_environment(tmp_path, monkeypatch):
    write(tmp_path / "mirror" / "file.bin")
    monkeypatch.setenv("FEDTIDE_MIRROR", str(tmp_path / "mirror"))
    assert (fetch("toy", [resource()], tmp_path) / "file.bin").read_bytes() == CONTENT


def test_compressed_spelling_in_the_mirror_is_unpacked_and_checked(tmp_path):
    mirror = write(tmp_path / "mirror" / "file.bin.gz", gzip.compress(CONTENT)).parent
    fetch("toy", [resource()], tmp_path, mirror)
    assert raw_names(tmp_path) == ["file.bin"]
    (mirror / "file.bin.gz").write_bytes(gzip.compress(CONTENT[:-1]))
    assert f"expected {MD5}" in refusal(tmp_path / "second", resource(), mirror=mirror)
    (mirror / "file.bin.gz").write_bytes(gzip.compress(CONTENT)[:-5])
    assert "file.bin.gz" in refusal(tmp_path / "third", resource(), mirror=mirror)
    assert raw_names(tmp_path / "third") == []


def test_file_of_the_same_name_from_another_dataset_is_skipped(tmp_path):
    for folder, content in (("a", b"other"), ("b", CONTENT), ("c", b"third")):
        write(tmp_path / "mirror" / folder / "file.bin", content)
    raw = fetch("toy", [resource()], tmp_path, tmp_path / "mirror")
    assert (raw / "file.bin").read_bytes() == CONTENT


def test_other_wrapping_keeps_its_name_and_counts_as_present(tmp_path):
    wanted = resource(file="set.tar.gz", alternatives=("set.tar.xz",))
    write(tmp_path / "mirror" / "set.tar.xz", b"wrapped otherwise")
    raw = fetch("toy", [wanted], tmp_path, tmp_path / "mirror")
    assert wanted.path(raw) == raw / "set.tar.xz"
    assert wanted.path(fetch("toy", [wanted], tmp_path)).read_bytes() == b"wrapped otherwise"


def test_pattern_brings_all_files_of_one_folder(tmp_path):
    for folder in ("a", "b"):
        for number in (1, 0):
            write(tmp_path / "mirror" / folder / f"part_{number}.json", folder.encode())
    wanted = Resource("part_*.json")
    raw = fetch("toy", [wanted], tmp_path, tmp_path / "mirror")
    assert [path.name for path in wanted.paths(raw)] == ["part_0.json", "part_1.json"]
    assert {path.read_text() for path in wanted.paths(raw)} == {"a"}


def test_mirror_that_is_no_folder_is_refused(tmp_path):
    message = refusal(tmp_path, resource(), mirror=tmp_path / "absent")
    assert message == f"data.mirror: {tmp_path / 'absent'} is not a folder"


def test_root_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert "data.root: cannot create" in refusal(tmp_path / "file", resource())


def test_second_process_waits_for_the_first(site, tmp_path, together):
    site.files["file.bin"] = CONTENT
    assert together(lambda: fetch("toy", [resource(site.url("file.bin"))], tmp_path), 2) == [0, 0]
    assert site.requests == ["file.bin"]
    assert (tmp_path / "toy" / "raw" / "file.bin").read_bytes() == CONTENT


def test_what_a_killed_process_began_to_copy_or_download_is_removed(tmp_path):
    write(tmp_path / "mirror" / "file.bin")
    script = "import os, sys, pathlib\nfrom fedtide.world.storage.sources import Resource, fetch\n"
    script += "class Deadly(Resource):\n    def check(self, path):\n        os.kill(os.getpid(), 9)\n"
    script += "fetch('toy', [Deadly('file.bin')], pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))\n"
    command = [sys.executable, "-c", script, str(tmp_path), str(tmp_path / "mirror")]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert raw_names(tmp_path) == []
    assert (tmp_path / "toy" / "incomplete" / "file.bin").exists()
    (tmp_path / "toy" / "raw" / "file.bin").write_bytes(CONTENT)  # placed by hand
    fetch("toy", [resource()], tmp_path)
    assert sorted(path.name for path in (tmp_path / "toy").iterdir()) == ["raw", "raw.lock"]


def test_an_archive_that_names_a_place_outside_is_read_without_leaving_anything(tmp_path):
    path, evil, link = tmp_path / "deep" / "some", tarfile.TarInfo("../evil"), tarfile.TarInfo("a/link")
    path.parent.mkdir()
    evil.size, link.type, link.linkname = 1, tarfile.SYMTYPE, "../../secret"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(evil, io.BytesIO(b"2"))
        archive.addfile(link)
    assert read_all(path, lambda name: True) == {"../evil": b"2"}
    assert sorted(item.name for item in tmp_path.rglob("*")) == ["deep", "some"]
