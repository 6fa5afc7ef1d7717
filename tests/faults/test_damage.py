import re
import signal

import pytest
from attempt import Attempt, Moment, rows_of

from fedtide.core.randomness import generator
from records import same_records


@pytest.fixture
def killed(folder):
    """A run directory left behind by a kill in round 11: states of rounds 6 and 9, each with a log, eleven rows."""
    attempt = Attempt(folder, moments=(Moment(11),))
    assert attempt.end() == -signal.SIGKILL
    assert [path.name for path in sorted((attempt.run / "state").iterdir())] == [
        "rows-00000006.npys", "rows-00000009.npys", "state-00000006.pt", "state-00000009.pt"
    ]  # fmt: skip
    return attempt.run


def flip_a_byte(path, seed):
    content = bytearray(path.read_bytes())
    content[generator(seed, "damage").integers(len(content))] ^= 1
    path.write_bytes(content)


def cut_off(path, seed):
    content = path.read_bytes()
    path.write_bytes(content[: generator(seed, "damage").integers(len(content))])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "file"),
    [
        (flip_a_byte, "state-00000009.pt"),
        (cut_off, "rows-00000009.npys"),
        (cut_off, "state-00000009.pt"),
        (flip_a_byte, "rows-00000009.npys"),
    ],
)
def test_a_torn_record_and_a_damaged_state_fall_back_to_the_state_before(folder, killed, damage, file):
    assert Attempt(folder, name="whole").end() == 0
    damage(killed / "state" / file, 0)
    with (killed / "history.csv").open("a") as torn:
        torn.write("12,3,0.5")
    with (killed / "per_class.csv").open("a") as torn:
        torn.write("12,test")
    again = Attempt(folder)
    assert again.end() == 0
    assert again.lines[:2] == [
        "state-00000009.pt is damaged; continuing from an older state", "run: continuing from round 6"
    ]  # fmt: skip
    same_records(killed, folder / "runs/whole")


@pytest.mark.slow
def test_a_full_disk_tears_files_and_the_next_attempt_mends_them(folder):
    assert Attempt(folder, "--set", "checkpoint.keep_finished=true", name="whole").end() == 0
    whole = folder / "runs/whole"
    sizes = {(whole / name).stat().st_size for name in ("history.csv", "per_class.csv")}
    sizes.add((whole / "state/state-00000012.pt").stat().st_size)
    # no file may grow beyond a byte in the middle of the largest ones: a row, or a state, is written in part
    for largest in sorted(int(generator(0, "full disk", size).integers(size // 2, size)) for size in sizes):
        attempt = Attempt(folder, largest=largest)
        assert attempt.end() == 1
        line = r"fedtide: \[Errno 27\] File too large; [\d,]+ bytes free: 'runs/run/.+'"
        assert re.fullmatch(line, attempt.lines[-1])
    assert rows_of(folder / "runs/run") < 15
    again = Attempt(folder)
    assert again.end() == 0, again.lines
    same_records(again.run, whole)
