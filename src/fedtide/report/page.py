"""The report as one HTML page that needs no other file."""

import base64
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from fedtide.records.frames import Method
from fedtide.records.measures import statistics
from fedtide.report import findings, formats, parts
from fedtide.report.charts import interactive
from fedtide.report.charts.chart import Chart
from fedtide.report.charts.pictures import Drawing
from fedtide.report.parts import Source
from fedtide.report.tables.method_table import Comparison, MethodTable, Sheet
from fedtide.report.tables.table import Table
from fedtide.settings.scores import ACCURACY, capitalized


def render(
    source: Source,
    results: list[str],
    warnings: list[str],
    comparisons: list[Comparison],
    pictures: Sequence[tuple[Drawing, Mapping[str, bytes]]],
) -> str:
    """The page. The same arguments give the same bytes: no dates, durations or paths.

    Args:
        results, warnings: one sentence each. comparisons: one table each.
        pictures: with their files by format, the key figure first.
    """
    records, contents = source.records, source.contents
    figures = [_shown(drawing, files) for drawing, files in pictures]
    template = resources.files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    nothing: list[str] = []
    different = [(row, nothing) for row in findings.differences(records)]
    common = [(row, nothing) for row in findings.common(records)]
    return environment.from_string(template).render(
        title=contents.settings.title,
        results=results,
        warnings=warnings,
        facts=findings.facts(records),
        figures=figures,
        plotly=Markup(get_plotlyjs()) if any(figure["div"] for figure in figures) else "",  # the page needs no network
        sheets=[_main_sheet(source.table), *parts.sheets.of(source)],
        comparisons=[_comparison(comparison) for comparison in comparisons],
        caveat=_caveat(comparisons),
        differences=Sheet("Settings in which the methods differ", "", [], different, ("Setting", "Value", "Methods")),
        common=Sheet("Settings of all runs", "", [], common, ("Setting", "Value")),
        command=contents.command,
    )


def _shown(drawing: Drawing, files: Mapping[str, bytes]) -> dict[str, Any]:
    """A chart is drawn by the page; of other figures it has the PNG."""
    found = {"name": drawing.name, "title": drawing.title, "caption": drawing.caption, "div": ""}
    if isinstance(drawing.content, Chart):
        return found | {"div": Markup(interactive.div(drawing.content, drawing.name))}
    return found | {"base64": base64.b64encode(files["png"]).decode("ascii")}


def rows(table: MethodTable) -> list[tuple[Method, str, list[tuple[str, bool]]]]:
    """The final table: names of each method, its seeds, and the text of each cell and whether it is the best of its column."""
    best = {column.key: table.best(column) for column in table.columns}
    lines = []
    for names, row in table.rows():
        planned = row["seeds"] + row["diverged"] + row["unfinished"]
        cells = [(column.cell(row), names == best[column.key]) for column in table.columns]
        lines.append((names, str(planned) if row["seeds"] == planned else f"{row['seeds']} of {planned}", cells))
    return lines


def _main_sheet(table: Table) -> Sheet:
    lines = [
        (names, [seeds, *(Markup(f"<b>{escape(text)}</b>") if best else text for text, best in cells)])
        for names, seeds, cells in rows(table)
    ]
    headings = ["Seeds", *(column.title for column in table.columns)]
    return Sheet("Mean ± sample standard deviation over the seeds", _table_caption(table), headings, lines)


_EARLIER = (
    "A[s, u] is the score of the model at the end of session s on the held-out samples of session u; S is the last session. "
    "All sessions so far: mean of A[S, u]. Backward transfer: mean over u < S of A[S, u] \N{MINUS SIGN} A[u, u] (Lopez-Paz and "
    "Ranzato, 2017). Forgetting: mean over u < S of the best A[s, u], u ≤ s < S, minus A[S, u] (Chaudhry et al., 2018)."
)
_ESTIMATE = (
    "Estimates: from accuracies per class, weighted by the classes that participants held in each period; they assume that "
    "samples of a class stay alike. If sessions of a run have no test samples of their own, all runs are estimated."
)
_DROP = "Drop: last {} before a change minus the first after it"


def _table_caption(table: Table) -> str:
    score, keys, window = table.score, {column.key for column in table.columns}, table.settings.transition_window
    lines = [] if score == ACCURACY else [f"Columns about rounds: test {score.words}."]
    if table.beside is not None:
        lines.append(
            "Served: each client's samples by the model that it is served, at the end of a period; beside it, the global "
            f"model. {formats.NOTHING}: no global model is trained."
        )
    if score.ahead:
        lines.append(
            f"{capitalized(score.words)}: at the end of each period, before the next one is trained on; all periods "
            "have equal weight; the last has no next period."
        )
    if score != ACCURACY and keys & {"seen_estimated", "tail"}:
        lines.append("Columns about classes and estimates: accuracy of the global model.")
    if any(table.best(column) for column in table.columns):
        lines.append("Bold: better than every other method in the paired comparison over the seeds.")
    if "drop" in keys:
        drop = "Rise: first {} after a change minus the last before it" if score.lower else _DROP
        lines.append(
            f"After a change: mean of the first {window} rounds after the evaluated session changes. "
            f"{drop.format(score.words)}, mean over all changes."
        )
        if score.name in ("accuracy", "loss"):
            lines.append(f"{score.title} is over the labels present in the session.")
    elif "transition" in keys:
        lines.append(f"After a change: mean of the first {window} rounds of each period but the first.")
    elif "rounds_to_target" in keys:
        lines.append(f"The target, {table.scale.goal(table.target)}, is {table.target_source}.")
    if "seen" in keys:
        lines.append(_EARLIER)
    if "seen_estimated" in keys:
        lines.append(_ESTIMATE)
    lines.append("Traffic: what all clients sent and received.")
    if "latency" in keys:
        lines.append(
            "Latency and energy: of all rounds in one simulated cell, computation included; a round lasts as long as its "
            "slowest device."
        )
    return " ".join(filter(None, lines))


def _caveat(comparisons: list[Comparison]) -> str:
    by_seed = [comparison for comparison in comparisons if comparison.over == "seeds"]
    pairs = [int(count) for comparison in by_seed for count in comparison.frame["pairs"]]
    if not pairs:
        return ""
    fewer = " Methods with fewer pairs share fewer seeds with the reference." if min(pairs) < max(pairs) else ""
    return statistics.caveat(max(pairs)) + fewer


def _comparison(comparison: Comparison) -> Sheet:
    frame, scale = comparison.frame, comparison.column.scale
    signed_rank = bool(frame["wilcoxon"].notna().any())
    tests = ["p", "p_holm", *(["wilcoxon", "wilcoxon_holm"] if signed_rank else [])]
    over = f"over {comparison.over}" + (f" of {comparison.period}" if comparison.period else "")
    rows = [
        (
            (findings.method(names),),
            [
                str(int(row["pairs"])),
                scale.difference(row["difference"]),
                "n/a"
                if math.isnan(row["low"])
                else f"{scale.difference(row['low'])} to {scale.difference(row['high'])}",
                *(formats.p_value(row[test]) for test in tests),
                statistics.verdict(row, comparison.over[:-1]),
            ],
        )
        for names, row in zip(frame.index.to_list(), frame.to_dict("records"), strict=True)
    ]
    return Sheet(
        f"{capitalized(comparison.column.headline)}: each method minus {findings.method(comparison.reference)}, {over}",
        _OVER[comparison.over] + "The interval is not corrected. The reference was chosen for its "
        f"{'lowest' if comparison.column.good == 'low' else 'highest'} mean, so Holm corrects p for all pairs of methods: "
        "between equal methods a difference is found in at most 5 % of tables.",
        [
            "Rows" if comparison.over == "rows" else "Pairs",
            f"Difference{scale.gap}",
            "95 % interval",
            *("p, t-test", "p, Holm"),
            *(("p, signed rank", "p, Holm") if signed_rank else ()),
            "Verdict",
        ],
        rows,
        ("Method",),
    )


_OVER = {
    "seeds": "",
    "periods": "Differences on each period, means over the common seeds; the interval is for other periods like "
    "these, if they are independent. Seeds share most of their test rows, so variation over seeds does not "
    "measure this. ",
    "rows": "Intervals of two binomial shares, for other rows of this one period; single predictions are not recorded, so rows "
    "are not paired and intervals are too wide rather than too narrow. ",
}
