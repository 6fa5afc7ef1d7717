"""From `fedtide.run` to the first local step: the files that somebody passes who reads along."""

import sys
import threading
from pathlib import Path

import fedtide
from fedtide.training.engine.executors.rows import Rows

SOURCE = Path(fedtide.__file__).parent

HANDED_OUT = {"training/engine/executors/executor.py", "training/resources/workers.py"}
"""Between a round and its executor: they hand clients to threads, and have no part in what is trained."""

PARAMS = {
    "scenario": {"name": "static", "num_clients": 3, "rounds": 2},
    "model": "softmax_regression",
    "local": {"steps": 1, "batch_size": 8},
    "engine": {"executor": "threads", "workers": 1, "accelerator": "cpu"},
}


def files(thread):
    """The project's files on the stack of a thread, the first caller first."""
    frame, found = sys._current_frames()[thread], []
    while frame is not None:
        found.append(Path(frame.f_code.co_filename))
        frame = frame.f_back
    return [str(file.relative_to(SOURCE)) for file in reversed(found) if file.is_relative_to(SOURCE)]


def test_the_first_local_step_is_eight_files_away(tmp_path, monkeypatch):
    caller, walks, step = threading.get_ident(), [], Rows.step

    def first(self, *arguments):
        if not walks:  # the caller waits for this thread
            walks.append([*files(caller), *files(threading.get_ident()), "training/engine/executors/rows.py"])
        return step(self, *arguments)

    monkeypatch.setattr(Rows, "step", first)
    records = fedtide.run(
        fedtide.Params({**PARAMS, "data": {"name": "digits", "root": str(tmp_path)}}), tmp_path / "runs"
    )
    assert len(records.history) == 2
    walk = [file for file in dict.fromkeys(walks[0]) if file not in HANDED_OUT]
    assert walk[0] == "runs/execution.py"
    assert "federation/rounds/round.py" in walk
    assert walk[-1] == "training/engine/executors/rows.py"
    assert len(walk) <= 8, walk
