"""The rows of the board: published ones, and those of folders that verify."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedtide.core.errors import SettingsError
from fedtide.studies.tide.scores import Row
from fedtide.studies.tide.suite import World
from fedtide.studies.tide.verify import methods_in, verify

PUBLISHED = "scores.csv"
"""Rows of the published methods, in the folder of a suite."""


def entries(folder: Path | None, worlds: Sequence[World], suite: Path | None) -> pd.DataFrame:
    """Rows of the methods in a folder, and of those published with a suite, if one is given; columns as :class:`Row`.

    Raises:
        SettingsError: something in the folder does not verify, has the name of a published method, or there is nothing.
    """
    own = [verify(home, worlds) for home in methods_in(folder)] if folder is not None else []
    if problems := [line for each in own for line in each.problems]:
        more = f" (and {len(problems) - 1} more, see `fedtide tide verify {folder}`)" if len(problems) > 1 else ""
        raise SettingsError(f"{problems[0]}{more}")
    rows = pd.DataFrame([row for each in own for row in each.rows], columns=list(Row._fields))
    if suite is not None:
        listed = read_rows(suite / PUBLISHED)
        if taken := sorted({*listed["method"]} & {each.method for each in own}):
            raise SettingsError(
                f"{folder}: {taken[0]} is the name of a published method; rename the method, or use --alone"
            )
        rows = pd.concat([listed, rows], ignore_index=True)
    if rows.empty:
        raise SettingsError("no runs for the leaderboard; give a folder of methods")
    return rows.astype({"seed": int, "score": float, "bytes": int, "gradients": float, "seconds": float})


def read_rows(path: Path) -> pd.DataFrame:
    """Rows that a board has written; a SettingsError if the file is not one."""
    if not path.is_file():
        raise SettingsError(f"no methods are published with this suite ({PUBLISHED}); use --alone")
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: {error}") from None
    if list(rows) != list(Row._fields) or rows.duplicated(["method", "world", "seed"]).any():
        raise SettingsError(f"{path}: should have the columns {', '.join(Row._fields)}, and every run once")
    return rows
