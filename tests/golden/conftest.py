from __future__ import annotations

from collections import Counter
from typing import Any

REASON = "not yet: "


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many golden runs are still to come, and what each of them waits for."""
    skipped = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    waiting = Counter(reason.partition(REASON)[2] for reason in skipped if REASON in reason)
    if waiting:
        missing = ", ".join(f"{name} {count}" for name, count in sorted(waiting.items()))
        terminalreporter.write_line(f"golden runs not yet: {sum(waiting.values())} ({missing})")
