"""Bytes that processes sharing a round send each other.

    unshare --net sh -c 'ip link set lo up; python benchmarks/processes.py'

counts what passes through the loopback interface, so nothing else may use it: hence a network of its own. ``scaffold`` keeps
memories of its clients, so every process gets all local models; FedAvg needs their sum.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

PARAMS = """
scenario: {{name: static, num_clients: 100, rounds: {rounds}}}
partition: iid
participation: {{name: fixed, count: 20}}
model: {{name: mlp, widths: [200, 200]}}
local: {{steps: 2, batch_size: 8, lr: 0.1}}
initializer: previous
evaluation: {{every: {rounds}, session_start_losses: false}}
tracking: {{mlflow: false}}
"""


def passed() -> int:
    """Bytes that the loopback interface has received."""
    lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.strip().startswith("lo:"))


def sent(folder: Path, algorithm: str, processes: int, rounds: int) -> int:
    """Bytes of a run."""
    chosen = [f"algorithm={algorithm}", f"engine.devices={processes}", "engine.accelerator=cpu", "engine.workers=1"]
    chosen += [f"scenario.rounds={rounds}"]
    options = ["--nnodes=1", f"--nproc-per-node={processes}", "--master-addr=127.0.0.1", "--master-port=29500"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "fedtide", "run", "--quiet"]
    overrides = [part for item in chosen for part in ("--set", item)]
    before = passed()
    subprocess.run([*command, *overrides], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return passed() - before


def main() -> None:
    """Print bytes per round, in models of 4 bytes a parameter."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--algorithms", nargs="+", default=["fedavg", "scaffold"])
    parser.add_argument("--rounds", type=int, default=20, help="two or more; start-up is that of a run of one round")
    options = parser.parse_args()
    model = 4 * (64 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "params.yaml").write_text(PARAMS.format(rounds=options.rounds), encoding="utf-8")
        for processes in options.processes:
            for algorithm in options.algorithms:
                more = sent(folder, algorithm, processes, options.rounds) - sent(folder, algorithm, processes, 1)
                print(f"{algorithm}, {processes} processes: {more / (options.rounds - 1) / model:.1f} models a round")


if __name__ == "__main__":
    main()
