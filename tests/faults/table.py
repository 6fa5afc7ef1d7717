"""The table at the end of a campaign."""

from collections.abc import Sequence
from typing import Any

COLUMNS = ("cases", "faults", "resumed", "refused", "changed bits", "stuck", "false words")


def print_table(records: Sequence[dict[str, Any]]) -> bool:
    """Print a line per fault and command, then the cases with findings; whether there are none."""
    groups: dict[str, list[int]] = {}
    for record in records:
        numbers = groups.setdefault(record["case"].rpartition("/")[0], [0] * len(COLUMNS))
        counts = (
            1, record["kills"], record["resumed"], record["refused"],
            len(record["changed"]), len(record["stuck"]), len(record["false"]),
        )  # fmt: skip
        groups[record["case"].rpartition("/")[0]] = [sum(pair) for pair in zip(numbers, counts, strict=True)]
    width = max([len(name) for name in groups], default=5) + 2
    print("".ljust(width) + "".join(column.rjust(14) for column in COLUMNS))
    for name, numbers in groups.items():
        print(name.ljust(width) + "".join(str(number).rjust(14) for number in numbers))
    total = [sum(column) for column in zip(*groups.values(), strict=True)] or [0] * len(COLUMNS)
    print("all".ljust(width) + "".join(str(number).rjust(14) for number in total))
    found = [record for record in records if record["changed"] or record["stuck"] or record["false"]]
    for record in found:
        print(f"{record['case']}: {[*record['changed'], *record['stuck'], *record['false']]}"[:2000])
    return not found
