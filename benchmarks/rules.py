"""Time of aggregation rules as a multiple of the weighted mean's, on one thread, the best of some turns."""

import argparse
import time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from fedtide.core import plugins
from fedtide.core.randomness import generator
from fedtide.methods.aggregation.base import Rule
from fedtide.training.engine.flat import weighted_sum

RULES: dict[str, dict[str, Any]] = {
    "mean": {"name": "mean"},
    "median": {"name": "median"},
    "trimmed mean": {"name": "trimmed_mean"},
    "Krum": {"name": "krum", "f": 10},
    "multi-Krum": {"name": "krum", "f": 10, "keep": None},
    "geometric median": {"name": "geometric_median"},
    "centered clipping": {"name": "centered_clipping"},
    "median of pairs": {"name": "median", "bucket": 2},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--numbers", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    D = torch.randn(options.updates, options.numbers, generator=torch.Generator().manual_seed(0))
    p = torch.full((len(D),), 1 / len(D))
    best = dict.fromkeys(RULES, float("inf"))
    for _ in range(options.turns):
        for name, values in RULES.items():
            best[name] = min(best[name], _seconds(_rule(values), D, p))
    lines = Table("rule", "ms", "times the mean", title=f"{len(D)} updates of {D.shape[1]:,} numbers")
    for name, seconds in best.items():
        lines.add_row(name, f"{1000 * seconds:.1f}", f"{seconds / best['mean']:.1f}")
    Console().print(lines)


def _rule(values: dict[str, Any]) -> Rule:
    cls: Any = plugins.load("aggregation", values["name"])
    made: Rule = cls(cls.Settings(**values))
    return made


def _seconds(rule: Rule, D: torch.Tensor, p: torch.Tensor) -> float:
    extra, draws = rule.extra(D[0]), generator(0, "uplink.bucket")
    began = time.perf_counter()
    if rule.settings.name == "mean":  # as in a run, without a look for updates that are not finite
        weighted_sum(p, D)
    else:
        rule.over(D, p, extra, draws)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
