"""The user's Lightning callbacks: called in their order, saved and restored with the run, and named if they raise."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import torch
from lightning.pytorch.callbacks import Checkpoint, ProgressBar

from fedtide.core import lightning as L
from fedtide.core.discovery.faults import PluginCrash
from fedtide.core.discovery.imports import fault_of, libraries, make
from fedtide.core.errors import SettingsError
from fedtide.federation.module import FederatedModule
from fedtide.federation.saving.checkpoint import Saved
from fedtide.records.run_directory import finite
from fedtide.settings.run import Imported

_ENTRY = "callbacks"  # name of their entry in a saved state
_HOOKS = [
    name
    for name in vars(L.Callback)
    if name.startswith(("on_", "setup", "teardown")) and name not in ("on_save_checkpoint", "on_load_checkpoint")
]


class OwnCallbacks(L.Callback):
    """The callbacks of ``engine.callbacks`` as one, so that a saved state holds theirs after the same round.

    In ``on_train_epoch_end``, ``trainer.callback_metrics`` has the latest value of every number that rounds have recorded.
    ``pruned``, read by :func:`fedtide.runs.train.train`, says whether one of them has stopped the run. Refused are those
    that cannot be made, or do what the run does itself.
    """

    def __init__(self, chosen: Sequence[Imported]) -> None:
        self._chosen = [(f"engine.callbacks.{number}", one) for number, one in enumerate(chosen)]
        self._members = [make(one.path, one.arguments, L.Callback, key) for key, one in self._chosen]
        self._metrics: dict[str, float] = {}
        self.pruned = False
        for (key, one), member in zip(self._chosen, self._members, strict=True):
            if isinstance(member, Checkpoint | ProgressBar):
                done = "a run saves its states, as `checkpoint` says, and shows its progress itself"
                raise SettingsError(f"{key}.path = {one.path!r}: {done}; leave this out")

    def states(self) -> dict[str, Any]:
        """Their entry of a saved state, for :meth:`continued`."""
        members = [self._state(place) for place in range(len(self._members))]
        return {_ENTRY: {"metrics": self._metrics, "members": members}}

    def continued(self, saved: Saved | None) -> tuple[dict[str, Any] | None, int]:
        """Continue from a saved state, of which the values without their entry and the number of rounds are returned."""
        if saved is None:
            return None, 0
        values = dict(saved.values)
        own = values.pop(_ENTRY, {})
        self._metrics = dict(own.get("metrics", {}))
        for place, state in enumerate(own.get("members", ())):
            self._guarded(place, "load_state_dict", state)
        return values, saved.round

    def libraries(self) -> dict[str, str]:
        """Versions of the installed packages that the callbacks use, by name."""
        return {name: text for key, one in self._chosen for name, text in libraries(one.path, f"{key}.path").items()}

    def _state(self, place: int) -> dict[str, Any]:
        state: dict[str, Any] = self._guarded(place, "state_dict")
        content = io.BytesIO()
        try:
            torch.save(state, content)
            content.seek(0)
            torch.load(content, weights_only=True)
        except Exception as error:
            key, one = self._chosen[place]
            raise PluginCrash(
                f"{key}.path = {one.path!r}: state_dict should return numbers, strings, tensors, and lists or dictionaries of "
                f"these ({(str(error).splitlines() or [type(error).__name__])[0]})"
            ) from error
        return state

    def _guarded(self, place: int, name: str, *arguments: Any, **named: Any) -> Any:
        try:
            return getattr(self._members[place], name)(*arguments, **named)
        except (SettingsError, PluginCrash):
            raise
        except (Exception, SystemExit) as error:
            key, one = self._chosen[place]
            raise PluginCrash(str(fault_of(error, one.path, f"{key}.path"))) from error

    def _call(self, hook: str, trainer: L.Trainer, *arguments: Any, **named: Any) -> None:
        if hook == "on_train_epoch_end":
            self._publish(trainer, *arguments)
        for place in range(len(self._members)):
            stopped = trainer.should_stop
            self._guarded(place, hook, trainer, *arguments, **named)
            self.pruned |= trainer.should_stop and not stopped

    def _publish(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        row = module.record.row if isinstance(module, FederatedModule) and module.record is not None else {}
        self._metrics |= trainer.strategy.broadcast(dict(finite(row)))  # the first process alone evaluates
        module.log_dict(self._metrics, logger=False)


def _delegated(hook: str) -> Callable[..., None]:
    def call(self: OwnCallbacks, trainer: L.Trainer, *arguments: Any, **named: Any) -> None:
        self._call(hook, trainer, *arguments, **named)

    return call


for _hook in _HOOKS:
    setattr(OwnCallbacks, _hook, _delegated(_hook))
