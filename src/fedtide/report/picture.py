"""A timeline as numbers and as a figure."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import YAxis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap, to_hex, to_rgb
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.core.storage.files import replacing
from fedtide.report.charts.fonts import file_of
from fedtide.report.charts.session_marks import session_labels
from fedtide.settings.run import RunSettings
from fedtide.world.clients import ClientNames
from fedtide.world.dataset import Dataset, names_of_classes
from fedtide.world.presence.visits import Changes, Visits
from fedtide.world.timeline import Timeline

Value = TypeVar("Value", bound=np.generic)

_ABSENT, _PRESENT = ("#e3e8ee", "#f3f5f8"), "#2b6ca3"  # absent: by parity of the session
_ARRIVED, _DEPARTED, _BAR = "#2a8f5b", "#c2483d", "#b5cbe0"
_SAMPLES = LinearSegmentedColormap.from_list("samples", ["#b3d0ea", "#5b9bcd", "#1f5c96", "#0a2342"])
_INSTANTS = 500  # at which presence in seconds is drawn
_DOTS = 2000  # rows of a raster, several times as many as it has on paper
_NAMED_CLASSES = 20  # with a color and a place in the legend each
_NAME = 16  # letters of a class
_LABELED_SESSIONS = 24  # more do not fit above the axes


class Names(NamedTuple):
    """The data's own names: of its classes, and of the timeline's clients; empty without."""

    classes: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()


NAMELESS = Names()


def holdings(timeline: Timeline, labels: Ints) -> Ints:
    """Samples of each class that each client holds over the run, int64 [N, L]; each sample counts once."""
    clients, shards = _held(timeline)
    sizes = np.array([len(timeline.shards[shard]) for shard in shards], dtype=np.int64)
    positions = np.concatenate([*(timeline.shards[shard] for shard in shards), np.zeros(0, dtype=np.int64)])
    clients, positions = np.divmod(np.unique(np.repeat(clients, sizes) * len(labels) + positions), len(labels))
    counts = np.bincount(
        clients * timeline.num_classes + labels[positions], minlength=timeline.num_clients * timeline.num_classes
    )
    return counts.reshape(timeline.num_clients, timeline.num_classes)


def _held(timeline: Timeline) -> tuple[Ints, Ints]:
    """Clients, ascending, and the shards that each holds at some time: int64 [pairs] both."""
    number = len(timeline.shards) + 1
    pairs = [np.unique(item.clients * number + item.shards) for item in timeline.assignments]
    clients, shards = np.divmod(np.unique(np.concatenate(pairs)), number)
    return clients, shards


def shown(clients: int) -> Ints:
    """The clients that a figure shows, int64: all, or as many as there are dots at equal distances."""
    return np.arange(clients) if clients <= _DOTS else np.arange(_DOTS) * clients // _DOTS


def _by_round(timeline: Timeline, values: NDArray[Value], absent: float) -> NDArray[Value]:
    """Values [shards, ...] of the shard that each client that is shown holds in each round, [clients, rounds, ...]."""
    rows = shown(timeline.num_clients)
    table = np.full((len(timeline.assignments), len(rows), *values.shape[1:]), absent, dtype=values.dtype)
    for row, assignment in zip(table, timeline.assignments, strict=True):
        _, places, held = np.intersect1d(rows, assignment.clients, assume_unique=True, return_indices=True)
        row[places] = values[assignment.shards[held]]
    return np.swapaxes(table[timeline.assignment_of_round], 0, 1)


def presence(timeline: Timeline) -> Bools:
    """Whether each client that is shown is present in each round, bool [clients, rounds]."""
    return _by_round(timeline, np.ones(len(timeline.shards), dtype=np.bool_), False)


def present_clients(timeline: Timeline) -> Ints:
    """Number of clients present in each round, int64 [rounds]."""
    return np.array([len(item.clients) for item in timeline.assignments])[timeline.assignment_of_round]


def presence_in_seconds(visits: Visits) -> tuple[Bools, Ints, float]:
    """Presence at equal distances over the longest trace.

    Returns:
        Whether each client that is shown is present, bool [clients, instants]; the number of all clients present, int64
        [instants]; and the seconds of the trace.
    """
    span = float(max(visits.end.max(initial=0), visits.period.max(initial=0)))
    moves, rows = Changes(visits, span / _INSTANTS), shown(len(visits.start))
    present, number = np.zeros((len(rows), _INSTANTS), dtype=np.bool_), np.zeros(_INSTANTS, dtype=np.int64)
    for instant in range(_INSTANTS):
        here = moves.present(instant)
        present[:, instant], number[instant] = here[rows], here.sum()
    return present, number, span


def most_frequent_labels(timeline: Timeline, labels: Ints) -> Ints | None:
    """The most frequent label that each client that is shown holds in each round, int64 [clients, rounds].

    -1 where it is absent or has no data. None if every client holds the same data whenever it is present.
    """
    clients, _ = _held(timeline)
    if len(clients) == len(np.unique(clients)):
        return None
    most = [np.bincount(labels[shard]).argmax() if len(shard) else -1 for shard in timeline.shards]
    return _by_round(timeline, np.array(most, dtype=np.int64), -1)


def concept_shares(timeline: Timeline) -> Floats | None:
    """Share of its samples that each client that is shown sees under each concept, by round, [clients, rounds, C].

    Zero where it is absent or has no data. None without drift.
    """
    if not timeline.concepts:
        return None
    return _by_round(timeline, timeline.shares_of(np.arange(len(timeline.shards))), 0.0)


def concept_colors(count: int) -> list[str]:
    """A color for each of so many concepts, faint for concept 0."""
    others = colormaps["tab10"](np.arange(1, 10)) if count <= 10 else colormaps["turbo"](np.linspace(0, 1, count - 1))
    return [_BAR, *map(to_hex, others[: count - 1])]


def boundaries(timeline: Timeline) -> list[dict[str, int]]:
    """Changes at session boundaries: session and first round (from 0), devices that arrived, departed, stayed."""
    changes = []
    for first in (np.flatnonzero(np.diff(timeline.session_of_round)) + 1).tolist():
        before, after = timeline.at(first - 1).clients, timeline.at(first).clients
        stayed = len(np.intersect1d(before, after))
        moved = {"arrived": len(after) - stayed, "departed": len(before) - stayed, "stayed": stayed}
        changes.append({"session": int(timeline.session_of_round[first]), "round": first} | moved)
    return changes


def summary(timeline: Timeline, labels: Ints, names: Names = NAMELESS) -> dict[str, Any]:
    """Facts about a timeline, JSON-able; ``labels`` int64 [n] are those of the whole training set.

    Returns:
        Numbers of clients (and of those ever present), rounds, sessions and validation samples; smallest, median and
        largest number of samples of the clients ever present; samples held per class (a sample held by two clients
        counts twice); mean over clients of the total variation between their labels and those of all; changes at
        session boundaries; the timeline's notes. Classes with ``names`` are named. Nothing about classes where the task
        has none.
    """
    counts = holdings(timeline, labels)
    ever = np.unique(np.concatenate([item.clients for item in timeline.assignments]))
    present = present_clients(timeline) if timeline.visits is None else presence_in_seconds(timeline.visits)[1]
    sizes = counts[ever].sum(axis=1)
    with_data = counts[counts.sum(axis=1) > 0]
    share = with_data / with_data.sum(axis=1, keepdims=True)
    everybody = with_data.sum(axis=0) / with_data.sum()
    each = counts.sum(axis=0).tolist()
    named = len(names.classes) == len(each)
    facts = {
        "clients": timeline.num_clients,
        "clients_ever_present": len(ever),
        "clients_present": {"min": int(present.min()), "max": int(present.max())},
        "rounds": timeline.rounds,
        "sessions": timeline.sessions,
        "samples_per_client": {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())},
        "samples_per_class": dict(zip(names.classes, each, strict=True)) if named else each,
        "mean_total_variation": float(np.abs(share - everybody).sum(axis=1).mean() / 2),
        "boundaries": boundaries(timeline),
        "validation_samples": len(timeline.validation),
        "notes": timeline.notes,
    }
    if timeline.num_classes == 1:
        del facts["samples_per_class"], facts["mean_total_variation"]
    return facts


def draw(timeline: Timeline, labels: Ints, path_png: Path, names: Names = NAMELESS) -> None:
    """Write the figure of :func:`drawn` as a PNG."""
    whole = drawn(timeline, labels, names)
    path_png.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path_png) as part:
        part.write_bytes(file_of(whole, format="png"))


def drawn(timeline: Timeline, labels: Ints, names: Names = NAMELESS) -> Figure:
    """Who holds what (clients by classes) and who is present when (clients by rounds), with totals below.

    If the clients' data changes, the second panel also shows the most frequent label that each client holds; under
    drift, a further one shows the concept of each client. ``labels`` int64 [n] are those of the whole training set.
    """
    classes = names.classes
    concepts = concept_shares(timeline)
    whole = Figure(figsize=(13, 6.5 if concepts is None else 10), dpi=110, layout="constrained")
    FigureCanvasAgg(whole)
    figure: Figure | SubFigure = whole
    if concepts is not None:
        halves = whole.subfigures(2, 1, squeeze=False, height_ratios=(6.5, 3.5))
        figure, below = halves[:, 0]
        _draw_concepts(below.subplots(), concepts, timeline.num_clients, names.clients)
    (heat, over_rounds), (per_class, per_round) = figure.subplots(
        2, 2, sharex="col", gridspec_kw={"width_ratios": (1, 1.3), "height_ratios": (4, 1)}
    )
    over_rounds.sharey(heat)
    _draw_holdings(figure, heat, per_class, holdings(timeline, labels))
    if 1 < len(classes) <= _NAMED_CLASSES:
        per_class.set_xticks(range(len(classes)), map(_short, classes), rotation=90 if len(classes) > 4 else 0)
    _draw_presence(over_rounds, per_round, timeline)
    if timeline.num_classes > 1 and (changing := most_frequent_labels(timeline, labels)) is not None:
        _draw_labels(figure, over_rounds, changing, timeline, classes)
    for axes in (heat, over_rounds):
        axes.set_ylabel("client")
        name_clients(axes.yaxis, names.clients)
        axes.tick_params(which="minor", length=0)
    for axes in (per_class, per_round):
        if axes is per_round or not classes:
            axes.xaxis.set_major_locator(_whole_numbers())
        axes.tick_params(which="minor", length=0)
        axes.spines[["top", "right"]].set_visible(False)
    return whole


def _whole_numbers() -> MaxNLocator:
    return MaxNLocator(integer=True, nbins=10, steps=(1, 2, 5, 10), min_n_ticks=1)


def raster(axes: Axes, values: Any, ends: tuple[float, float], clients: int, **look: Any) -> AxesImage:
    """An image with a row per client, the first above, between the ``ends`` of the x axis."""
    extent = (*ends, clients - 0.5, -0.5)
    return axes.imshow(values, aspect="auto", interpolation="nearest", extent=extent, **look)


def _draw_holdings(figure: Figure | SubFigure, heat: Any, per_class: Any, counts: Ints) -> None:
    """Heat map of samples (no samples: white), and the samples of each class below; one class is all samples."""
    clients, classes = counts.shape
    held = np.ma.masked_equal(counts[shown(clients)], 0)
    image = raster(heat, held, (-0.5, classes - 0.5), clients, cmap=_SAMPLES, vmin=0)
    bar = figure.colorbar(image, ax=heat, label="samples", fraction=0.05, pad=0.02)
    bar.locator = _whole_numbers()
    heat.set_title("Samples by client and class" if classes > 1 else "Samples by client", loc="left")
    if max(clients, classes) <= 30:
        heat.set_xticks(np.arange(classes + 1) - 0.5, minor=True)
        heat.set_yticks(np.arange(clients + 1) - 0.5, minor=True)
        heat.grid(which="minor", color="white", linewidth=1)
    total = counts.sum(axis=0)
    per_class.bar(np.arange(classes), total, width=0.8, color=_BAR)
    per_class.set(ylabel="samples", ylim=(0, 1.1 * total.max()), yticks=(0, total.max()))
    if classes > 1:
        per_class.set_xlabel("class")
    else:
        per_class.tick_params(bottom=False, labelbottom=False)


def _draw_concepts(axes: Any, shares: Floats, clients: int, named: Sequence[str]) -> None:
    """The concept of each client in each round; where it sees samples under several, their colors are mixed by share."""
    _, rounds, count = shares.shape
    colors = concept_colors(count)
    mixed = shares @ np.array([to_rgb(color) for color in colors])
    absent = shares.sum(2) == 0
    mixed[absent] = to_rgb("white")
    raster(axes, mixed, (0, rounds), clients)
    axes.set_title("Concept of each client", loc="left")
    axes.set(xlabel="round", ylabel="client")
    axes.xaxis.set_major_locator(_whole_numbers())
    name_clients(axes.yaxis, named)
    names = [Patch(color=color, label=f"concept {number}") for number, color in enumerate(colors[:_NAMED_CLASSES])]
    axes.legend(handles=names, loc="lower right", bbox_to_anchor=(1, 1), ncols=10, frameon=False, fontsize=9)


def _draw_labels(
    figure: Figure | SubFigure, axes: Axes, labels: Ints, timeline: Timeline, names: Sequence[str]
) -> None:
    """The most frequent label of each client in each round, drawn over its presence; a color for each class of the data."""
    clients, rounds, classes = timeline.num_clients, timeline.rounds, timeline.num_classes
    few = classes <= _NAMED_CLASSES
    colors: Colormap = colormaps["turbo"].resampled(classes)
    if few:
        colors = ListedColormap(colormaps["tab10" if classes <= 10 else "tab20"](np.arange(classes)))
    look = {"cmap": colors, "vmin": -0.5, "vmax": classes - 0.5}
    image = raster(axes, np.ma.masked_less(labels, 0), (0, rounds), clients, **look)
    bar = figure.colorbar(image, ax=axes, label="most frequent label", fraction=0.05, pad=0.02)
    if few:
        bar.set_ticks(np.arange(classes).tolist(), labels=[_short(name) for name in names or map(str, range(classes))])
        bar.ax.tick_params(which="both", length=0)
    else:
        bar.locator = _whole_numbers()


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def _draw_presence(axes: Any, per_round: Any, timeline: Timeline) -> None:
    """Presence over bands of sessions; below, the number present, with arrivals and departures at boundaries."""
    if timeline.visits is None:
        present, number, rounds = presence(timeline), present_clients(timeline), float(timeline.rounds)
        sessions, unit = timeline.session_of_round, "round"
    else:
        present, number, rounds = presence_in_seconds(timeline.visits)
        sessions, unit = np.zeros(_INSTANTS, dtype=np.int64), "second"
    look = {"cmap": ListedColormap([*_ABSENT, _PRESENT]), "vmin": 0, "vmax": 2}
    raster(axes, np.where(present, 2, sessions % 2), (0, rounds), timeline.num_clients, **look)
    named = 1 < timeline.sessions <= _LABELED_SESSIONS
    axes.set_title("Clients present, by session" if named else "Clients present", loc="left", pad=20 if named else None)
    periods = timeline.notes.get("periods") or range(1, timeline.sessions + 1)
    ends = [*timeline.session_starts.tolist(), timeline.rounds]
    spans = [(str(name), *span) for name, span in zip(periods, pairwise(ends), strict=False)] if named else []
    for middle, name in session_labels(spans, 2):
        place = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
        axes.annotate(name, (middle, 1), (0, 3), ha="center", va="bottom", fontsize=9, **place)

    per_round.stairs(number, np.linspace(0, rounds, len(number) + 1), color=_BAR, fill=True)
    changes = boundaries(timeline)
    starts = np.array([change["round"] for change in changes])
    width = min(0.01 * rounds, 0.2 * rounds / timeline.sessions)
    for shift, key, color in ((-width / 2, "departed", _DEPARTED), (width / 2, "arrived", _ARRIVED)):
        per_round.bar(starts + shift, [change[key] for change in changes], width, color=color, label=key)
    if changes:
        per_round.legend(loc="upper right", bbox_to_anchor=(1, -0.2), ncols=2, frameon=False, fontsize=9)
    top = max(int(number.max()), *(change[key] for change in changes for key in ("arrived", "departed")), 1)
    per_round.set(xlabel=unit, ylabel="present", xlim=(0, rounds), ylim=(0, 1.1 * top), yticks=(0, top))


def names_in(data: Dataset, settings: RunSettings, timeline: Timeline) -> Names:
    """The data's own names of classes and clients, empty where it has none."""
    return Names(names_of_classes(data, settings.data), ClientNames.of(timeline, data).own)


def name_clients(axis: YAxis, clients: Sequence[str]) -> None:
    """Whole ticks of an axis of clients, with their names if they have some."""
    axis.set_major_locator(_whole_numbers())
    if clients:
        axis.set_major_formatter(lambda place, _: _short(clients[round(place)]) if place in range(len(clients)) else "")
