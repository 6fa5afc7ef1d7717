"""Family ``sessions``: base algorithms with local momentum, and initializers at session boundaries."""

from collections.abc import Iterator
from typing import Any

from fedtide.methods.initializers import base as store
from golden.families.case import Case, Check, Fields, Outcome, chosen, samples, vectors_at_end
from support import deal, timeline

UNITS = {"exact": "steps", "loader_pass": "capped_steps"}


def read(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """See :mod:`golden.families`."""
    fields = Fields(run)
    data, sizes = samples(problems[fields["problem"]])
    local = {
        UNITS[fields["steps_mode"]]: fields["local_steps"],
        "batch_size": fields["batch_size"],
        "order": "stored",
        "lr": fields["lr0"],
        "schedule": "polynomial",
        "min_lr_ratio": fields["lr_ratio"],
        "momentum": fields["momentum"],
    }
    settings = {"local": local, "algorithm": chosen(fields, "algorithms", fields["algorithm"], {})}
    devices, cohorts, notes, probed = [list(range(len(sizes)))], [run["selected"]], {}, []
    if fields["kind"] == "session":
        probes, probed = gradient_rounds(fields)
        settings["initializer"] = chosen(fields, "initializers", fields["initialiser"], probes)
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
    length = len(fields["lr"])
    return Case(
        fields,
        data,
        world,
        [ids for rounds in cohorts for ids in rounds],
        settings,
        check,
        probed={session * length: ids for session, ids in enumerate(probed)},
    )


def gradient_rounds(fields: Fields) -> tuple[dict[str, Any], list[list[int]]]:
    """Settings of the gradient rounds, and who takes part in them in each session."""
    if "gradient" not in fields:
        return {}, []
    given = Fields(fields["gradient"])
    settings = {
        "gradient_rounds": given["rounds"],
        "gradient_lr": given["lr"],
        "gradient_steps": given["local_steps"],
        "gradient_batch_size": given["batch_size"],
    }
    devices = given["devices"]
    assert not given.unread()
    return settings, devices


def check(fields: Fields, outcome: Outcome) -> Iterator[Check]:
    """Rates, models after the rounds or at both ends of the sessions, memories at the end."""
    models = [w for _, w in outcome.rounds]
    length = len(fields["lr"])
    first = 0 if fields["kind"] == "base" else length - 1
    for t, (r, _) in enumerate(outcome.rounds):
        yield f"lr of round {t + 1}", r.lr, fields["lr"][t % length]
    yield "first.w", models[first], fields["first"]["w"]
    yield "final.w", models[-1], fields["final"]["w"]
    yield from vectors_at_end({name: value for name, value in fields["final"].items() if name != "w"}, outcome.state)
    for t, value in enumerate(fields.either("w_rounds", [])):
        yield f"w after round {t + 1}", models[t], value
    for number, session in enumerate(fields.either("per_session", [])):
        start, end = number * length, (number + 1) * length - 1
        r = outcome.rounds[start][0]
        ours = {
            "session": r.session.number + 1,
            "devices": outcome.federation.parts.timeline.at(start).clients,
            "start": r.w,
            "end": models[end],
        }
        if "history" in fields:
            ours |= stored(outcome, start, end)
        else:  # then the sessions after the pilot are all that is stored, or could be
            ours["stored_after"] = list(range(fields["pilot_sessions"] + 1, r.session.number + 2))
        for name, value in session.items():
            yield f"session {number + 1}: {name}", ours.get(name, "unknown"), value
    if "w_pilot" in fields:
        yield "w_pilot", outcome.state.initializer["pilot_w"], fields["w_pilot"]


def stored(outcome: Outcome, start: int, end: int) -> dict[str, Any]:
    """What the dynamic initializer found out at the start of a session, and kept after it."""
    record, r = outcome.sessions[start] or {}, outcome.rounds[start][0]
    found: dict[str, Any] = {"stored_after": [z + 1 for z in store.sessions(outcome.stores[end], "session")]}
    if "update" in {key.split(".")[0] for key in outcome.stores[start]}:
        found["G"] = store.recall(outcome.stores[start], "update", r.session.number, "G")
    if "weights" in record:
        found["stored"] = [int(z) for z in record["weights"]]
        found |= {name: list(record[name].values()) for name in ("weights", "distances")}
    return found
