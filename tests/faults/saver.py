"""Saves the states of some rounds; executed as a command of its own, which is killed."""

import sys
from pathlib import Path
from typing import Any

import torch

from fedtide.federation.saving.checkpoint import Generations, Saved

CLIENTS, SIZE, ROUNDS = 40, 100, 5


def state(round_: int) -> dict[str, Any]:
    """The state after a round; client k takes part in rounds in which some bit of k + round is set."""
    rows, written = torch.zeros(CLIENTS, SIZE), torch.zeros(CLIENTS, dtype=torch.int64)
    for t in range(1, round_ + 1):
        drawn = torch.arange(CLIENTS)[(torch.arange(CLIENTS) + 3 * t) % 8 == 0]
        rows[drawn] = rows[drawn] / 2 + drawn.unsqueeze(1) + t
        written[drawn] = t
    counts = (written > 0).to(torch.int64)
    return {"memory": {"h": rows, "g": -rows[:, :1]}, "written": written, "seen": written > 0, "counts": counts}


def main(folder: Path) -> None:
    states = Generations(folder)
    for round_ in range(1, ROUNDS + 1):
        states.save(Saved("run", round_, {}, state(round_)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
