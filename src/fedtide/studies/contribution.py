"""``fedtide contribution``: what the final model gains by each client, in a table that a later call completes."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import creating, folder, read_text, write_text
from fedtide.federation.module import FederatedModule
from fedtide.methods.algorithms.base import Algorithm
from fedtide.methods.detectors.base import Detector
from fedtide.runs.display.progress import UNWATCHED, Watch
from fedtide.runs.execution import refuse_several_processes
from fedtide.runs.lightning.trainer import device_of, quiet_lightning
from fedtide.runs.open_run import run_key
from fedtide.settings.run import RunSettings, StopSettings
from fedtide.settings.scores import Score
from fedtide.studies.leave_one_out import Contribution, columns, everybody, leave_one_out
from fedtide.world.building.build import timeline_for
from fedtide.world.clients import Client, ClientNames
from fedtide.world.storage.prepared import load_data

FILE = "contribution.csv"
_FACTS = ("run_key", "client", "name", "first_round", "rounds")


def ranked(found: Iterable[Contribution]) -> list[Contribution]:
    """The most valuable first, by main score and then by loss on all samples; at the end those without a value."""
    return sorted(found, key=lambda each: [(math.isnan(value), -value) for value in each.values[:2]])


def contributions(
    settings: RunSettings,
    out: Path,
    clients: Sequence[Client] | None = None,
    worlds: Path | None = None,
    watch: Watch = UNWATCHED,
) -> list[Contribution]:
    """The contributions of some clients, by default all that are ever present, :func:`ranked`.

    ``clients``: their names in the data, or their numbers where it has none.
    Each is written to ``contribution.csv`` in the folder ``out`` when it is known, and read from there by a later call.

    Raises:
        SettingsError: bad input; nothing was trained. Diverged: the run with everybody has diverged.
    """
    _refuse(settings)
    data = load_data(settings)
    key, world = run_key(settings, data), timeline_for(settings, data, worlds)
    here, known = everybody(world), ClientNames.of(world, data)
    chosen = here.tolist() if clients is None else known.numbers(clients, "--clients")
    if missing := [client for client in chosen if client not in here]:
        raise SettingsError(
            f"--clients: client {known[missing[0]]} is present in no round; name some of the {len(here)} that are"
        )
    file, names = out / FILE, columns(settings.task)
    found = _read(file, key, names)
    device = device_of(settings)
    if waiting := [client for client in chosen if client not in found]:
        with creating(out), quiet_lightning():
            module = FederatedModule(settings, world, data, scratch=folder(out)).to(device)
            module.build()
        before = len(chosen) - len(waiting)
        watch.log(f"training the run with everybody, then {len(waiting)} runs without one client: {key}")
        try:
            for number, each in enumerate(leave_one_out(module.parts, waiting), before + 1):
                found[each.client] = each
                _write(file, key, names, ranked(found.values()))
                value = shown(names[0], each.values[0]) or "unknown"
                watch.log(
                    f"{number}/{len(chosen)}  client {known[each.client]}: {names[0]} {value}, {each.rounds} rounds"
                )
        finally:
            module.parts.workers.close()
    return ranked(found[client] for client in chosen)


def shown(column: str, value: float) -> str:
    """A value of one of the :func:`columns`, with its sign."""
    share = Score(column.rpartition("own_")[2].rpartition("others_")[2]).share
    return "" if math.isnan(value) else f"{value:+.2%}" if share else f"{value:+.4f}"


def _refuse(settings: RunSettings) -> None:
    """Refuse settings for which there is no run without one client."""
    refuse_several_processes(settings)
    plugins.create(Detector, settings.detector).require()
    if settings.erase:
        raise SettingsError(
            f"erase: {settings.erase[0].name}: contributions are those of a run that erases nobody; remove erase"
        )
    if settings.stop != StopSettings():
        raise SettingsError("stop: a run without a client would end in another round than the whole run; remove stop")
    if settings.mode.name == "async":
        raise SettingsError("mode: async: a client that is left out would move all later results; use mode: sync")
    if "global" not in plugins.create(Algorithm, settings.algorithm).models:
        raise SettingsError(
            f"algorithm {settings.algorithm.name} trains no global model to compare; use one like fedavg"
        )


def _write(file: Path, key: str, names: Sequence[str], found: Sequence[Contribution]) -> None:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*_FACTS, *names])
    for each in found:
        values = ["" if math.isnan(value) else value for value in each.values]
        table.writerow([key, each.client, each.name, each.first_round, each.rounds, *values])
    write_text(file, text.getvalue())


def _read(file: Path, key: str, names: Sequence[str]) -> dict[int, Contribution]:
    """The contributions that a file has, by client; a SettingsError if it is about another run, or something else."""
    if not file.exists():
        return {}
    found: dict[int, Contribution] = {}
    table = csv.DictReader(io.StringIO(read_text(file)))
    if table.fieldnames != [*_FACTS, *names]:
        raise SettingsError(f"{file}: not a table of contributions of this task; choose another folder with --out")
    for row in table:
        if row["run_key"] != key:
            raise SettingsError(
                f"{file}: of the run {row['run_key']}, this one is {key}; choose another folder with --out"
            )
        try:
            values = tuple(float(row[name] or "nan") for name in names)
            client, first, rounds = (int(row[name]) for name in ("client", "first_round", "rounds"))
        except (TypeError, ValueError):
            raise SettingsError(f"{file}: line {table.line_num} is damaged; delete the file to start again") from None
        found[client] = Contribution(client, row["name"], first, rounds, values)
    return found
