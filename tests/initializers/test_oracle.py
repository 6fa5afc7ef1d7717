"""The oracle recognizes populations by their devices."""

from dataclasses import replace

import torch
from session_worlds import A, B, alternating, made, populations

from fedtide.methods.initializers import base as store
from support import run_rounds, watch


def test_sessions_start_from_the_latest_model_of_the_same_devices() -> None:
    devices = [A, B, A, (0, 3), A, B, (0, 3)]
    fed = made("oracle", populations(devices))
    seen = watch(fed)
    state, _ = run_rounds(fed)
    ends = [w for _, w in seen]
    # Sessions 1, 2 are pilot and start; the pilot's A is no stored model. Without a match a session carries on.
    expected = [fed.parts.w0, ends[0], ends[1], ends[2], ends[2], ends[1], ends[3]]
    assert all(torch.equal(r.w, w) for (r, _), w in zip(seen, expected, strict=True))
    assert store.sessions(state.initializer, "session") == [4, 5, 6]  # the latest of each set of devices


def test_where_periods_recur_they_start_from_the_latest_one_of_their_kind() -> None:
    kinds = ["weekdays", "weekend", "weekdays", "weekend", "weekdays"]  # whoever is present
    world = replace(alternating(5), notes={"periods": kinds, "kinds": kinds})
    fed = made("oracle", replace(world, assignment_of_round=world.assignment_of_round * 0))
    seen = watch(fed)
    run_rounds(fed)
    ends = [w for _, w in seen]
    expected = [fed.parts.w0, ends[0], ends[0], ends[1], ends[2]]
    assert all(torch.equal(r.w, w) for (r, _), w in zip(seen, expected, strict=True))
