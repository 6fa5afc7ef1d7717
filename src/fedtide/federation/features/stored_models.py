"""What becomes of the models that an initializer has stored, at a request to erase clients."""

from typing import Any

from fedtide.federation.features.erasing import Step
from fedtide.federation.features.worlds import Worlds
from fedtide.federation.types import RunState
from fedtide.methods.initializers.base import forget, revised


def revise(worlds: Worlds, state: RunState, step: Step, number: int, kept: dict[str, Any]) -> None:
    """What becomes of the models that the initializer has stored, and that descend from the erased clients."""
    request, world = worlds.requests[number], worlds.planned
    settings, at = request.eraser.settings, request.at
    how = settings.store or request.eraser.store
    tainted = worlds.tainted(number, settings.touch)
    if how == "keep":
        known = {*kept["tainted"], *worlds.tainted(number, "descent")}
        kept["tainted"] = [z for z in step.ends if z in known]
        return
    ends, store = dict(step.ends), dict(state.initializer)
    for z in [z for z in ends if z in tainted]:
        w, b = ends.pop(z)
        if how == "erase":
            ends[z] = request.eraser.on_stored(step, z, w), b
        else:
            forget(store, "update", z)
    before = int(world.session_of_round[at]) - 1
    if "teacher_w" in store and world.session_span(at)[0] != at and before in tainted:
        if how == "erase":
            store["teacher_w"] = request.eraser.on_stored(step, before, store["teacher_w"])
        else:
            store = {name: value for name, value in store.items() if not name.startswith("teacher_")}
    state.initializer = revised(store, ends)
    kept["known"] = list(ends)
    left = {*kept["tainted"], *worlds.tainted(number, "descent")}
    kept["tainted"] = [z for z in ends if z in left and z not in tainted]
    kept["ends"] = {f"{z}.{name}": part for z, end in ends.items() for name, part in zip("wb", end, strict=True)}


def concerned(worlds: Worlds, state: RunState, step: Step, number: int) -> list[int]:
    """Sessions, from 1, of which the initializer has stored a model that ``store`` is about."""
    tainted = worlds.tainted(number, worlds.requests[number].eraser.settings.touch)
    kept = [z for z in step.ends if "count" in state.initializer or f"session.{z}.w" in state.initializer]
    return [z + 1 for z in kept if z in tainted]
