"""The fault campaign: ``python tests/faults/campaign.py --help``; ``make faults`` runs all of it.

The exit status is 1 if a bit changed, something was stuck, or a false word was said; the folders of such cases are kept.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # as pytest does

import kills  # noqa: E402
import pairs  # noqa: E402
from bench import Benches, Verdict  # noqa: E402
from subjects import ALL  # noqa: E402

FAULTS = {"kill": kills, "pair": pairs}
"""Each has ``cases(kills)``, pairs of a subject's name and a number, and ``execute(bench, number, seed, folder)``."""


def main() -> int:
    """Run the campaign, or some cases of it."""
    options = _options()
    chosen = options.case or [
        f"{fault}/{subject}/{number}"
        for fault, module in FAULTS.items()
        for subject, number in module.cases(options.kills)
        if options.subject in (None, subject)
    ]
    root = Path(tempfile.mkdtemp(prefix="faults-"))
    print(f"{len(chosen)} cases in {root}", flush=True)
    _start_server()
    benches = Benches(root)
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = list(pool.map(lambda case: execute(benches, case, options.seed), chosen))
    dirty = sum(not verdict.clean for verdict in verdicts)
    print(f"{sum(verdict.kills for verdict in verdicts)} faults, {dirty} of {len(chosen)} cases with findings")
    return int(dirty > 0)


def execute(benches: Benches, case: str, seed: int) -> Verdict:
    """Execute a case, print what was found, and remove the folder of one without findings."""
    fault, name, number = case.split("/")
    bench = benches.of(name)  # if that fails, so does the campaign
    folder = bench.folder(f"{fault}-{number}")
    try:
        verdict = FAULTS[fault].execute(bench, int(number), seed, folder)
    except Exception:  # a case without a verdict counts as a finding
        verdict = Verdict(false=[f"the case itself failed: {traceback.format_exc()}"])
    if verdict.clean:
        bench.remove(folder)
    else:
        print(f"{case}: {verdict}"[:2000], flush=True)
    return verdict


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="number of kills, about")
    parser.add_argument("--seed", type=int, default=0, help="of the schedule")
    parser.add_argument("--subject", choices=[subject.name for subject in ALL], help="one command")
    parser.add_argument("--case", nargs="+", help="some cases, such as kill/run/17")
    parser.add_argument("--jobs", type=int, default=2, help="cases at once")
    return parser.parse_args()


def _start_server() -> None:
    """The server that commands are forked off; tiny tensors need one thread, and a process with threads must not fork."""
    os.environ.update(OMP_NUM_THREADS="1", MLFLOW_DISABLE_TELEMETRY="true", DVC_NO_ANALYTICS="1", MPLBACKEND="agg")
    for name in ("FEDTIDE_MLRUNS", "FEDTIDE_PLUGINS", "FEDTIDE_MIRROR"):
        os.environ.pop(name, None)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    multiprocessing.set_forkserver_preload(["__main__", "warm"])  # without the first, each process would import it


if __name__ == "__main__":
    sys.exit(main())
