"""Many schedules: ``python tests/simulation/many.py shared 0 1000`` prints what was found in those of seeds 0 to 999, as JSON.

One seed alone (``... shared 17 1``) also tells its story, on standard error.
"""

from __future__ import annotations

import json
import sys
import time

import schedule
import unshared

_WORDS = ("killed", "paused", "told to stop", "scheduler is gone")


def main() -> None:
    world, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    simulate = {"shared": schedule.simulate, "unshared": unshared.simulate}[world]
    began, found = time.process_time(), {"faults": 0, "steps": 0, "problems": list[str]()}
    for seed in range(first, first + count):
        outcome = simulate(seed)
        found["faults"] += sum(any(word in line for word in _WORDS) for line in outcome.story)
        found["steps"] += outcome.steps
        found["problems"] += [f"seed {seed}: {problem}" for problem in outcome.problems]
        if count == 1:
            print(outcome, file=sys.stderr)
    print(json.dumps({**found, "seconds": round(time.process_time() - began, 2)}))


if __name__ == "__main__":
    main()
