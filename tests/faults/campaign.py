"""The fault campaign: ``python tests/faults/campaign.py --help``; ``make faults`` runs all of it.

Every case is a line of JSON in the results file; a campaign that was stopped goes on with the cases that have none. The exit
status is 1 if a bit changed, something was stuck, or a false word was said.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # as pytest does

import disks  # noqa: E402
import kills  # noqa: E402
import pairs  # noqa: E402
import pipeline_kills  # noqa: E402
from bench import Verdict  # noqa: E402
from benches import Benches  # noqa: E402
from subjects import ALL  # noqa: E402
from table import print_table  # noqa: E402

FAULTS = {"kill": kills, "dvc": pipeline_kills, "full": disks, "pair": pairs}
"""Each has ``cases(kills)``, pairs of a subject's name and a number, and ``execute(bench, number, seed, folder)``."""


def main() -> int:
    """Run the campaign, or some cases of it."""
    options = _options()
    disks.in_own_namespace()
    if options.case:
        chosen = options.case
    else:
        chosen = [
            f"{fault}/{subject}/{number}"
            for fault, module in FAULTS.items()
            if options.only in (None, fault)
            for subject, number in module.cases(options.kills)
            if options.subject in (None, subject)
        ]
    root = options.folder or Path(tempfile.mkdtemp(prefix="faults-"))
    _start_server()
    results = options.results or root / "results.jsonl"
    known = {} if options.case else _read(results)
    with ThreadPoolExecutor(options.jobs) as pool:
        campaign = _Campaign(root, options.seed, results, bool(options.case))
        waiting = [case for case in chosen if case not in known]
        print(f"{len(waiting)} cases of {len(chosen)}; {results}", flush=True)
        list(pool.map(campaign.execute, waiting))
    records = {**known, **campaign.records}
    clean = print_table([records[case] for case in chosen if case in records])
    if clean and options.folder is None and not options.case:
        shutil.rmtree(root)
    return 0 if clean else 1


class _Campaign:
    def __init__(self, root: Path, seed: int, results: Path, keep: bool) -> None:
        self._root, self._seed, self._results, self._keep = root, seed, results, keep
        self._benches, self._lock = Benches(root), threading.Lock()
        self.records: dict[str, dict[str, object]] = {}

    def execute(self, case: str) -> None:
        """Execute a case and write its line; the folder of one with findings is kept."""
        fault, name, number = case.split("/")
        bench = self._benches.of(name)  # if that fails, so does the campaign
        began, folder = time.monotonic(), bench.folder(f"{fault}-{number}")
        try:
            verdict = FAULTS[fault].execute(bench, int(number), self._seed, folder)
        except Exception:  # a case without a verdict counts as a finding
            verdict = Verdict(false=[f"the case itself failed: {traceback.format_exc()}"])
        record = {"case": case, "seed": self._seed, **asdict(verdict), "seconds": round(time.monotonic() - began, 2)}
        with self._lock:
            self.records[case] = record
            with self._results.open("a") as stream:
                stream.write(json.dumps(record) + "\n")
            if not verdict.clean:
                print(
                    f"{case}: {'; '.join(map(str, verdict.changed + verdict.stuck + verdict.false))[:1000]}", flush=True
                )
        if verdict.clean and not self._keep:
            for path in folder.parent.glob(f"{folder.name}*"):
                if path == folder or path.name.startswith(f"{folder.name}-"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="number of kills, about")
    parser.add_argument("--seed", type=int, default=0, help="of the schedule")
    parser.add_argument("--only", choices=FAULTS, help="one kind of fault")
    parser.add_argument(
        "--subject",
        choices=[*(subject.name for subject in ALL), pipeline_kills.SUBJECT],
        help="one command",
    )
    parser.add_argument(
        "--case", nargs="+", help="cases of a results file, such as kill/run/17; their folders are kept"
    )
    parser.add_argument("--jobs", type=int, default=2, help="cases at once")
    parser.add_argument("--results", type=Path, help="file of JSON lines; its cases are not executed again")
    parser.add_argument("--folder", type=Path, help="folder to work in, default a temporary one")
    return parser.parse_args()


def _start_server() -> None:
    """The server that commands are forked off; tiny tensors need one thread, and a process with threads must not fork."""
    os.environ.update(OMP_NUM_THREADS="1", MLFLOW_DISABLE_TELEMETRY="true", DVC_NO_ANALYTICS="1", MPLBACKEND="agg")
    for name in ("FEDTIDE_MLRUNS", "FEDTIDE_PLUGINS", "FEDTIDE_MIRROR"):
        os.environ.pop(name, None)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    multiprocessing.set_forkserver_preload(["__main__", "warm"])  # without the first, each process would import it


def _read(results: Path) -> dict[str, dict[str, object]]:
    lines: Sequence[str] = results.read_text().splitlines() if results.is_file() else []
    return {record["case"]: record for record in map(json.loads, lines)}


if __name__ == "__main__":
    sys.exit(main())
