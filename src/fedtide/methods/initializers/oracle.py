"""Recognize a population by its devices."""

import torch

from fedtide.methods.initializers.base import Boundary, Initializer, Start, forget, recall, remember, sessions


class Oracle(Initializer):
    """Each session starts from the latest final model of a session with exactly the same devices, if there is one.

    Otherwise from the current model. Where periods of the calendar recur, a session starts from the latest one of its kind: a
    weekend from the weekend before. It knows what ``dynamic`` has to infer, and is a reference for it. Only the latest model of
    each set of devices, or kind of period, is stored.
    """

    def construct(self, s: Boundary) -> Start:
        same = self._same(s)
        if same is None:
            return s.w, s.b
        return recall(s.store, "session", same, "w"), recall(s.store, "session", same, "b")

    def keep(self, s: Boundary) -> None:
        """Store the model, replacing an earlier one of the same devices."""
        if (same := self._same(s)) is not None:
            forget(s.store, "session", same)
        remember(s.store, "session", s.session, w=s.w.clone(), b=s.b.clone(), devices=torch.tensor(_population(s)))

    @staticmethod
    def _same(s: Boundary) -> int | None:
        stored = sessions(s.store, "session")
        return next((z for z in stored if recall(s.store, "session", z, "devices").tolist() == _population(s)), None)


def _population(s: Boundary) -> list[int]:
    return s.devices if s.kind is None else [s.kind]
