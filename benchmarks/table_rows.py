"""Seconds that data set ``table`` takes for many rows: read for the first time, and from the prepared file.

Rows have 10 numeric and 3 categorical features, a client, a time in 2013 and one of two labels, in a CSV and a Parquet file.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table as Lines

from fedtide.world.data.table import Table
from fedtide.world.storage.prepared import load

NUMERIC, CATEGORIES, YEAR = 10, (5, 12, 30), (1_356_998_400, 1_388_534_400)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=5_000)
    options = parser.parse_args()
    lines = Lines("file", "MB", "read first, s", "read again, s", title=f"{options.rows:,} rows")
    with tempfile.TemporaryDirectory() as folder:
        frame = _rows(options.rows, options.clients)
        for name in ("rows.csv", "rows.parquet"):
            path = Path(folder) / name
            frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
            seconds = [_read(path, Path(folder) / f"{path.suffix[1:]}-data") for _ in range(2)]
            lines.add_row(name, f"{path.stat().st_size / 1e6:.0f}", *(f"{value:.1f}" for value in seconds))
    Console().print(lines)


def _rows(count: int, clients: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    numbers = {f"number {place}": rng.normal(size=count).round(4) for place in range(NUMERIC)}
    names = {
        f"category {size}": np.array([f"value {place}" for place in range(size)])[rng.integers(0, size, count)]
        for size in CATEGORIES
    }
    return pd.DataFrame(
        {
            **numbers,
            **names,
            "client": np.array([f"client {place}" for place in range(clients)])[rng.integers(0, clients, count)],
            "time": pd.to_datetime(rng.integers(*YEAR, count), unit="s").strftime("%Y-%m-%dT%H:%M:%SZ"),
            "label": rng.integers(0, 2, count),
        }
    )


def _read(path: Path, root: Path) -> float:
    started = time.perf_counter()
    load(Table(Table.Settings(file=str(path), client="client", time="time")), root)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
