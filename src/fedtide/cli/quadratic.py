"""``fedtide quadratic``."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.table import Table

from fedtide.cli.options import Json
from fedtide.cli.reporter import output
from fedtide.core.errors import SettingsError
from fedtide.core.files import replacing
from fedtide.core.shipped import SHIPPED

PUBLISHED = SHIPPED / "experiments/cfl/table7_rates.csv"


def quadratic(
    seeds: Annotated[int, typer.Option(min=1, help="Number of random instances to average.")] = 5,
    curves: Annotated[Path | None, typer.Option(help="CSV file to write the losses over rounds to (Figure 2).")] = None,
    as_json: Json = False,
) -> None:
    """The noisy quadratic model of CFL: best learning rates and losses of FedAvg, FedProx and CFL in eight settings."""
    from fedtide.diagnostics.noisy_quadratic import comparison

    if curves is not None and not curves.parent.is_dir():
        raise SettingsError(f"curves = {str(curves)!r}: no folder {curves.parent}")
    rows, lines = comparison(tuple(range(seeds)))
    if curves is not None:
        with replacing(curves) as part, part.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(("setting", "method", "round", "loss"))
            writer.writerows((name, method, t, f"{value:.6g}") for name, method, t, value in lines)
    if as_json:
        print(json.dumps(rows))
        return
    published = _published()
    table = Table("setting", "method", "best rate", "published", "loss, last 10 rounds", box=SIMPLE, pad_edge=False)
    for row in rows:
        reference = published.get((row["setting"], row["method"]), "")
        table.add_row(row["setting"], row["method"], f"{row['rate']:g}", reference, f"{row['loss']:.4f}")
    output().print(table)


def _published() -> dict[tuple[str, str], str]:
    """Best learning rates of Table 7 by setting and method."""
    with PUBLISHED.open(newline="", encoding="utf-8") as stream:
        return {(row["setting"], row["method"]): row["rate"] for row in csv.DictReader(stream)}
