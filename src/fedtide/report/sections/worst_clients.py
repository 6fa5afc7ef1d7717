"""The clients that the best method serves worst."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedtide.records.frames import METHOD, Method
from fedtide.records.run_directory import RunDirectory
from fedtide.report.charts.methods import method_names
from fedtide.report.formats import percent
from fedtide.report.parts import Source, frames, sheets, warnings
from fedtide.report.tables.method_table import Sheet

_ERRORS = 2  # standard errors from which a client is named
_MOST_ROWS, _MOST_NAMED = 30, 8  # clients in the table, and in the line
_FILE, _TABLE = "clients", "owner_scores.csv"


def clients(source: Source) -> pd.DataFrame:
    """A row per method and client: ``label``, ``initializer``, ``client``, ``rows``, ``served``, ``global``, ``errors_below``.

    Accuracies over all periods that were evaluated ahead, and the seeds; where there are none, over the last evaluation of the
    clients in each period, or without periods their last one. ``rows`` are those of one seed, since seeds share them.
    ``errors_below``: how many standard errors, of a binomial share of these rows, the accuracy is below that of all rows of the
    method. Empty without clients' samples.
    """
    scores = _scores(source)
    if scores.empty:
        return scores
    sums = {name: scores[name] * scores["rows"] for name in ("served", "global")}
    by_client = scores.assign(**sums).groupby([*METHOD, "client"], sort=False)
    found = by_client[["rows", "served"]].sum().assign(**{"global": by_client["global"].sum(min_count=1)})
    total = found.groupby(METHOD, sort=False)[["rows", "served"]].transform("sum")
    mean, seeds = total["served"] / total["rows"], by_client["key"].nunique()
    rows = found["rows"] / seeds
    own = {name: found[name] / found["rows"] for name in ("served", "global")}
    errors: pd.Series = (mean - own["served"]) / np.sqrt(mean * (1 - mean) / rows)
    return pd.DataFrame({"rows": rows, **own, "mean": mean, "errors_below": errors}).reset_index()


def _scores(source: Source) -> pd.DataFrame:
    """Rows of the clients' scores in complete runs: ``key``, method, ``client``, ``rows``, ``served`` and ``global``."""
    tables: list[pd.DataFrame] = []
    runs = source.records.runs
    paths = {path.name: path for path in source.run_dirs}
    for run in runs[runs["state"] == "complete"].to_dict("records"):
        directory = RunDirectory(paths[str(run["key"])])
        over_time = (directory.path / _TABLE).is_file()
        found = _of_periods(directory) if over_time else _of_sessions(source, directory)
        method = {name: run[name] for name in ("key", *METHOD)}
        tables += [table.assign(**method) for table in found]
    if not tables:
        return pd.DataFrame()
    rows = pd.concat(tables, ignore_index=True)
    return rows[rows["rows"] > 0]


def _of_periods(directory: RunDirectory) -> Iterator[pd.DataFrame]:
    directory.verify(_TABLE)
    table = pd.read_csv(
        directory.path / _TABLE, dtype={"client": str}, keep_default_na=False, na_values={"served_accuracy": [""]}
    )
    if "served_accuracy" in table:
        of_global = table.get("accuracy", pd.Series(np.nan, table.index)).astype(float)
        found = table[["client", "rows"]].assign(served=table["served_accuracy"], **{"global": of_global})
        yield found.dropna(subset=["served"])


def _of_sessions(source: Source, directory: RunDirectory) -> Iterator[pd.DataFrame]:
    table = source.evaluations
    table = table[(table["key"] == directory.path.name) & (table["group"] != "departed")]
    by = "session" if source.records.has_periods else "client"  # without periods sessions have the same test rows
    table = table[table["round"] == table.groupby(by)["round"].transform("max")]
    names = table["client"].astype(str).where(table["name"].isna(), table["name"])
    served = table["served_accuracy"].fillna(table["accuracy"])
    scores = {"client": names, "rows": table["samples"], "served": served, "global": table["accuracy"]}
    if len(table):
        yield pd.DataFrame(scores).dropna(subset=["rows", "served"])


def _worst(source: Source) -> tuple[Method, pd.DataFrame] | None:
    """The method with the best mean, and its clients that are far below all, by their accuracy; None without any."""
    leaders = (source.table.leader(column) for column in source.table.columns if column.headline)
    method, found = next(filter(None, leaders), None), clients(source)
    if method is None or found.empty:
        return None
    mine = found[(found[METHOD] == list(method)).all(axis=1) & (found["errors_below"] >= _ERRORS)]
    return (method, mine.sort_values("served", kind="stable")) if len(mine) else None


def sheet(source: Source) -> Iterator[Sheet]:
    """The table; none where clients were not scored on samples of their own, or none is far below the others."""
    if (worst := _worst(source)) is None:
        return
    method, found = worst
    lines = [
        (
            (str(row["client"]),),
            [
                *(percent(row[name]) for name in ("served", "global", "mean")),
                f"{row['rows']:.0f}",
                f"{row['errors_below']:.1f}",
            ],
        )
        for row in found.head(_MOST_ROWS).to_dict("records")
    ]
    rest = f" And {len(found) - _MOST_ROWS} more in {_FILE}.csv." if len(found) > _MOST_ROWS else ""
    yield Sheet(
        f"Clients served worst, {method_names(source.records.methods)[method]}",
        "Accuracy on all of their own rows that were evaluated, with the model that each is served, and with the global one; "
        f"the clients at least {_ERRORS} standard errors below all clients' rows together, where chance puts about 2 %.{rest}",
        ["Served, %", "Global model, %", "All clients, %", "Rows", "Standard errors below"],
        lines,
        ("Client",),
    )


def line(source: Source) -> Iterator[str]:
    """The same clients in one line."""
    if (worst := _worst(source)) is None:
        return
    method, found = worst
    shown = [
        f"{row['client']} {percent(row['served'])} %"
        + ("" if np.isnan(row["global"]) else f" (global model {percent(row['global'])})")
        for row in found.head(_MOST_NAMED).to_dict("records")
    ]
    name = method_names(source.records.methods)[method]
    rest = f" and {len(found) - _MOST_NAMED} more in {_FILE}.csv" if len(found) > _MOST_NAMED else ""
    yield (
        f"Clients served worst by {name}, at least {_ERRORS} standard errors below the {percent(found['mean'].iloc[0])} % of "
        f"all rows together: {', '.join(shown)}{rest}."
    )


sheets.add(30, sheet)
warnings.add(20, line)
frames.add(0, lambda source: [(_FILE, found)] if len(found := clients(source)) else [])
