"""Family ``sessions``: base algorithms with local momentum, and initialisers at session boundaries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from golden.families.case import Case, Check, Fields, Played, chosen, samples, vectors_at_end
from support import deal, timeline

UNITS = {"exact": "steps", "loader_pass": "capped_steps"}


def read(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """See :mod:`golden.families`."""
    fields = Fields(run)
    data, sizes = samples(problems[fields["problem"]])
    local = {
        "amount": fields["local_steps"],
        "unit": UNITS[fields["steps_mode"]],
        "batch_size": fields["batch_size"],
        "order": "stored",
        "lr": fields["lr0"],
        "schedule": "polynomial",
        "floor": fields["lr_ratio"],
        "momentum": fields["momentum"],
    }
    settings = {"local": local, "algorithm": chosen(fields, "algorithms", fields["algorithm"], {})}
    devices, cohorts, notes = [list(range(len(sizes)))], [run["selected"]], {}
    if fields["kind"] == "session":
        settings["initialiser"] = chosen(fields, "initialisation", fields["initialiser"], {})
        devices, cohorts = fields["devices"], fields["selected"]
        notes = {"pilot_sessions": fields["pilot_sessions"]}
        fields.pass_over("pattern")
        assert fields["sessions"] == len(devices)
        assert all(len(session) == fields["rounds_per_session"] for session in cohorts)
    else:
        assert fields["population"] == len(sizes)
        assert fields["rounds"] == len(fields["selected"])
    session_of_round = [session for session, rounds in enumerate(cohorts) for _ in rounds]
    present = [{k: k for k in devices[session]} for session in session_of_round]
    world = timeline(
        deal(sizes),
        present,
        clients=len(sizes),
        session_of_round=session_of_round,
        classes=data.num_classes,
        notes=notes,
    )
    return Case(fields, data, world, [ids for rounds in cohorts for ids in rounds], settings, check)


def check(fields: Fields, played: Played) -> Iterator[Check]:
    """Rates, models after the rounds or at both ends of the sessions, memories at the end."""
    models = [w for _, w in played.rounds]
    length = len(fields["lr"])
    first = 0 if fields["kind"] == "base" else length - 1
    for t, (r, _) in enumerate(played.rounds):
        yield f"lr of round {t + 1}", r.lr, fields["lr"][t % length]
    yield "first.w", models[first], fields["first"]["w"]
    yield "final.w", models[-1], fields["final"]["w"]
    yield from vectors_at_end({name: value for name, value in fields["final"].items() if name != "w"}, played.state)
    for t, value in enumerate(fields.either("w_rounds", [])):
        yield f"w after round {t + 1}", models[t], value
    for number, session in enumerate(fields.either("per_session", [])):
        start, end = number * length, (number + 1) * length - 1
        r = played.rounds[start][0]
        ours = {
            "session": r.session + 1,
            "devices": played.federation.timeline.at(start).clients,
            "start": r.w,
            "end": models[end],
        }
        if "history" not in fields:  # then the sessions after the pilot are all that is stored, or could be
            ours["stored_after"] = list(range(fields["pilot_sessions"] + 1, r.session + 2))
        for name, value in session.items():
            yield f"session {number + 1}: {name}", ours.get(name, "unknown"), value
