"""Whether two trees of the project compute the same: records, client columns and all state of small runs, bit for bit.

``python benchmarks/compare_trees.py OLD [NEW]`` runs the configurations below in both trees, each in a process of its own, and
prints what differs; exit status 1 if anything does. ``NEW`` is this tree by default. Wall-clock times are left out, and so is
the order of columns. State is compared as a collection of tensors, each by its name, shape and bytes, so that it may move.
"""

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import lightning as L
import torch

ROOT = Path(__file__).resolve().parents[1]
TOP_K = {"name": "top_k", "fraction": 0.3, "error_feedback": True}
QSGD = {"name": "qsgd", "levels": 32}
CLIP = {"name": "clip", "quantile": 0.5, "rate": 1.0}
AFTER = {"name": "after", "losses": 2, "least": 0.1}
SESSIONS = {"name": "sessions", "num_devices": 6, "num_sessions": 2, "rounds_per_session": 3, "pattern": "alternate"}
LEAVING = {"name": "trace", "file": "visits.csv", "rounds": 6}
STEADY = {"name": "static", "num_clients": 6, "rounds": 5}
VISITS = "client,join,leave\n0,0,6\n1,0,2\n1,4,6\n2,0,6\n3,0,6\n4,0,6\n5,0,6\n"

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {"scenario": STEADY},
    "kept models": {
        "scenario": SESSIONS,
        "algorithm": "scaffold",
        "evaluation": {"models": ["global", "all", "participants"]},
    },
    "uplink": {"scenario": LEAVING, "uplink": [CLIP, TOP_K]},
    "attack, uplink, rule": {
        "scenario": LEAVING,
        "uplink": [CLIP, QSGD],
        "attack": {"name": "alie", "share": 0.4},
        "aggregation": {"name": "centered_clipping", "radius": 0.05},
        "evaluation": {"models": ["global", "participants"]},
    },
    "poisoned labels": {"scenario": STEADY, "attack": {"name": "label_flip", "share": 0.4}, "algorithm": "fedcm"},
    "backdoor": {"scenario": STEADY, "attack": {"name": "backdoor", "share": 0.4}},
    "downlink": {
        "scenario": LEAVING,
        "downlink": {"name": "top_k", "fraction": 0.3},
        "uplink": [TOP_K],
        "algorithm": "scaffold",
    },
    "downlink, gradient rounds": {
        "scenario": SESSIONS,
        "downlink": QSGD,
        "uplink": [CLIP, TOP_K],
        "attack": {"name": "scale", "share": 0.3, "start": 2},
        "aggregation": {"name": "median", "bucket": 2},
        "initializer": "dynamic",
    },
    "reset memories": {
        "scenario": SESSIONS,
        "algorithm": "scaffold",
        "detector": {**AFTER, "watch": "clients", "share": 0.2, "response": "reset_memories"},
        "uplink": [TOP_K],
    },
    "reset model": {
        "scenario": LEAVING,
        "detector": {**AFTER, "watch": "server", "response": "reset_model"},
        "downlink": QSGD,
    },
    "start session": {
        "scenario": LEAVING,
        "detector": {**AFTER, "watch": "server", "response": "start_session"},
        "downlink": QSGD,
        "aggregation": {"name": "centered_clipping", "radius": 0.05},
        "initializer": "average",
    },
    "raise rate": {
        "scenario": LEAVING,
        "detector": {**AFTER, "watch": "clients", "response": "raise_rate", "factor": 1.5, "rounds": 2},
        "algorithm": "scaffold",
    },
    "consistency": {
        "scenario": STEADY,
        "evaluation": {"consistency": True},
        "downlink": QSGD,
        "uplink": [TOP_K],
        "algorithm": "fedwcm",
    },
    "departures in weights": {"scenario": LEAVING, "algorithm": "fedau", "uplink": [CLIP]},
    "events": {
        "scenario": LEAVING,
        "algorithm": {"name": "fedbuff", "buffer": 3},
        "mode": "async",
        "downlink": {"name": "top_k", "fraction": 0.3},
        "uplink": [CLIP, QSGD],
        "attack": {"name": "sign_flip", "share": 0.3},
        "aggregation": "median",
    },
    "synthetic samples": {
        "scenario": SESSIONS,
        "algorithm": {"name": "cfl_generative", "size": 3, "steps": 3},
        "attack": {"name": "label_flip", "share": 0.4},
        "uplink": [CLIP],
    },
    "noise": {
        "scenario": STEADY,
        "algorithm": {"name": "fedavg", "weighting": "uniform"},
        "uplink": ["clip", {"name": "noise", "multiplier": 0.5}],
    },
    "personal models": {
        "scenario": LEAVING,
        "algorithm": "ditto",
        "evaluation": {"clients_every": 1, "departed_clients": "last_model"},
        "client_state": {"on_leave": "keep"},
    },
    "exchanges": {
        "scenario": STEADY,
        "communication": {"name": "intervals"},
        "local": {"steps": 4, "batch_size": 3, "lr": 0.2},
    },
    "kept momentum": {
        "scenario": LEAVING,
        "local": {
            "steps": 2,
            "batch_size": 3,
            "lr": 0.2,
            "momentum": 0.5,
            "momentum_scope": "client",
        },
    },
}
COMMON = {
    "local": {"steps": 2, "batch_size": 3, "lr": 0.2},
    "model": "softmax_regression",
    "partition": "dirichlet_equal",
    "tracking": {"mlflow": False},
    "engine": {"precision": "64-true", "workers": 1},
}


class Probe(L.Callback):
    """Writes what the state is made of after every round to ``states.json`` in the working directory."""

    def __init__(self) -> None:
        self.states: list[list[str]] = []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *arguments: Any) -> None:
        self.states.append(sorted(leaves("", pl_module.state.tensors())))
        Path("states.json").write_text(json.dumps(self.states))


def leaves(name: str, value: Any) -> list[str]:
    """Name, shape and hash of every tensor, name and value of every number, of nested mappings."""
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(str(key), item)]
    if isinstance(value, torch.Tensor):
        content = value.detach().cpu().contiguous()
        return [
            f"{name} {content.dtype} {list(content.shape)} {hashlib.sha1(content.numpy().tobytes()).hexdigest()[:12]}"
        ]
    return [] if name == "seconds" else [f"{name} {value!r}"]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def run(configuration: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What a run leaves behind."""
    import fedtide

    folder.mkdir()
    os.chdir(folder)
    Path("visits.csv").write_text(VISITS)
    settings = {**COMMON, **configuration}
    settings["engine"] = {**COMMON["engine"], "callbacks": [{"path": "compare_trees:Probe"}]}
    try:
        fedtide.run(fedtide.Params(settings))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    (found,) = (path.parent for path in Path("runs").rglob("summary.json"))
    tables = {path.name: rows(path) for path in sorted(found.glob("*.csv"))}
    model = leaves("", torch.load(found / "model.pt", weights_only=True))
    events = (found / "events.jsonl").read_text().splitlines()
    states = json.loads(Path("states.json").read_text())
    return {
        **tables,
        "model": sorted(model),
        "events": events,
        **{f"state after round {t + 1}": s for t, s in enumerate(states)},
    }


def runs(tree: Path, only: list[str], folder: Path) -> dict[str, Any]:
    """All runs in a tree, by a process whose ``fedtide`` is that tree's."""
    out = folder / "found.json"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(Path(__file__).parent)]),
        "FEDTIDE_PLUGINS": str(tree / "tests" / "drop_in"),
    }
    arguments = [
        sys.executable,
        "-W",
        "ignore",
        __file__,
        str(tree),
        "--into",
        str(out),
        *(("--only", *only) if only else ()),
    ]
    subprocess.run(arguments, env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def differences(old: Any, new: Any) -> list[str]:
    """Lines that say in what two runs differ."""
    lines = []
    for part in {**old, **new}:
        before, after = old.get(part), new.get(part)
        if before == after:
            continue
        if isinstance(before, list) and isinstance(after, list) and part.startswith(("state", "model")):
            gone, come = Counter(before) - Counter(after), Counter(after) - Counter(before)
            lines.append(f"{part}: {', '.join(gone) or 'nothing'} became {', '.join(come) or 'nothing'}")
        elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
            number, pair = next(
                (number, pair) for number, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]
            )
            if isinstance(pair[0], dict):
                names = {name for name in {**pair[0], **pair[1]} if pair[0].get(name) != pair[1].get(name)}
                pair = tuple({name: row.get(name) for name in sorted(names)} for row in pair)
            lines.append(f"{part}, row {number}: {pair[0]} became {pair[1]}")
        else:
            lines.append(f"{part}: {str(before)[:200]} became {str(after)[:200]}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="a checkout of the project")
    parser.add_argument("new", type=Path, nargs="?", default=ROOT, help="another one; this one by default")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these configurations")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    configurations = {name: CONFIGURATIONS[name] for name in chosen.only or CONFIGURATIONS}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if chosen.into:
            found = {
                name: run(values, folder / str(number)) for number, (name, values) in enumerate(configurations.items())
            }
            os.chdir("/")
            chosen.into.write_text(json.dumps(found))
            return 0
        old, new = (runs(tree.resolve(), chosen.only, folder) for tree in (chosen.old, chosen.new))
    status = 0
    for name in configurations:
        lines = differences(old[name], new[name])
        if "error" in new[name]:
            lines.append(f"ended with {new[name]['error']}")
        print(f"{name}: {'the same' if not lines else ''}")
        for line in lines:
            print(f"  {line}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
