"""What an eraser is: how a model becomes one that certain clients had no part in, or is meant to."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from pydantic import Field
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import Plugin, PluginSettings, Tunable
from fedtide.core.randomness import generator
from fedtide.settings.groups.local import LocalSettings
from fedtide.training.engine.flat import Layout
from fedtide.world.clients import Client, ClientNames
from fedtide.world.drift.base import Moment

__all__ = ["Eraser", "EraserSettings", "Erasing", "Moment", "PastRound", "Tunable"]

_WAYS = ("clients", "share", "number", "modulus", "attackers", "leavers")


class EraserSettings(PluginSettings):
    """Who asks to be erased, and when; what happens to the models that the initializer stores."""

    clients: tuple[Client, ...] = Field(
        (), description="names of the clients to erase, or IDs where the data name none"
    )
    share: float | None = Field(
        None, gt=0, lt=1, description="share of clients to erase, sampled, instead of `clients`"
    )
    number: int | None = Field(None, ge=1, description="number of clients to erase, sampled, instead of `clients`")
    modulus: int | None = Field(
        None, ge=1, description="erase clients whose ID modulo this number is below `below`, instead of `clients`"
    )
    below: int = Field(1, ge=1, description="see `modulus`")
    attackers: bool = Field(False, description="erase the clients of `attack`, instead of `clients`")
    leavers: bool = Field(
        False, description="erase the clients that leave where the session of `at` begins, instead of `clients`"
    )
    at: Moment = Field(
        description="rounds before the request, {session: 3} or {period: 2013-07}; the request comes before the session starts"
    )
    after: Literal["away", "returns"] = Field(
        "away",
        description="away: they take part in no later round; returns: they take part as planned, as new clients",
    )
    memory: Literal["reset", "keep"] = Field(
        "reset",
        description="what the server and the other clients keep, such as momentum: reset: cleared at the request",
    )
    store: Literal["keep", "drop", "erase"] | None = Field(
        None,
        description="models stored by the initializer that descend from the clients: keep: unchanged; drop: removed; erase: "
        "erased as the model is; null: erase for retrain and fed_eraser, otherwise drop",
    )
    touch: Literal["descent", "took_part"] = Field(
        "descent",
        description="stored models concerned by `store`: descent: of sessions that the clients took part in, and all that "
        "started from those; took_part: the former only",
    )

    def refuse_misfits(self) -> None:
        given = [way for way in _WAYS if getattr(self, way)]
        if len(given) != 1:
            raise SettingsError(f"erase {self.name} requires exactly one of {', '.join(_WAYS)}")
        if self.modulus is not None and self.below >= self.modulus:
            raise SettingsError(f"erase.below = {self.below}: should be less than erase.modulus = {self.modulus}")

    def drawn(self, names: ClientNames, seed: int) -> list[int]:
        """The clients among 0, 1, ... that the settings list or draw by the world's seed, ascending."""
        clients = names.count
        if self.modulus is not None:
            return [id_ for id_ in range(clients) if id_ % self.modulus < self.below]
        count = round(self.share * clients) if self.share is not None else self.number or 0
        found: list[int] = generator(seed, "erase.clients").permutation(clients)[:count].tolist()
        return sorted({*names.numbers(self.clients, "erase.clients"), *found})


@dataclass(frozen=True)
class PastRound:
    """A round before the request, without the erased clients.

    Attributes:
        t: its number. ids: its other participants, ascending. W: [C, d] their local models.
        w: [d] the server's model before it; after it with :attr:`Eraser.keeps_model_after`.
    """

    t: int
    ids: list[int]
    W: Tensor
    w: Tensor

    @property
    def D(self) -> Tensor:  # noqa: N802 - the papers' symbol
        """Their updates [C, d]."""
        return self.W - self.w


class Erasing(Protocol):
    """A request, as an eraser sees it.

    Attributes:
        ids: the erased clients, ascending. t: round of the request. w: [d] the model before it.
        layout, local: names of the parameters; settings of local training.
        present: clients of rounds t - 1 and t, as planned.
        others: all other clients that took part before.
        rebuilt: final models [d] of sessions that were rebuilt by :meth:`next_session` or are at the request, by number.
    """

    ids: list[int]
    t: int
    others: list[int]
    rebuilt: dict[int, Tensor]

    @property
    def w(self) -> Tensor: ...

    @property
    def layout(self) -> Layout: ...

    @property
    def local(self) -> LocalSettings: ...

    @property
    def present(self) -> set[int]: ...

    def clean(self, t: int) -> bool:
        """Whether the clients, and those of earlier requests, had no part in the model before round ``t``."""

    def past(self, t: int) -> PastRound:
        """Round ``t``, of which :meth:`Eraser.keeps_round` is true."""

    @property
    def models(self) -> list[int]:
        """Rounds of which :meth:`Eraser.keeps_model` is true."""

    def model(self, t: int) -> Tensor:
        """The stored model [d] before round ``t``; its buffers take the place of the current ones."""

    def rows(self, name: str) -> Tensor:
        """What is kept of every client [N, d], see :attr:`Eraser.keeps`."""

    def session(self, t: int) -> int:
        """Number of the session of a round."""

    def next_session(self, w: Tensor, session: int) -> Tensor:
        """The model [d] that the session after ``session`` starts from, if that one ends with ``w``."""

    def weights(self, ids: Sequence[int], t: int) -> Tensor:
        """Weights [C] of these participants in the mean of round ``t``; they add up to one."""

    def train(self, ids: Sequence[int], w: Tensor, t: int, amount: int | None = None) -> Tensor:
        """Local models [C, d] after the run's own local training from ``w`` at the rate of round ``t``; it is charged.

        ``amount``: of local work, in the units of ``local``; None: as in training.
        """

    def ascent_batches(self, client: int, epoch: int, size: int | None) -> list[Ints]:
        """Positions of a client's samples in batches, for a pass over them."""

    def gradient(self, client: int, w: Tensor, batch: Ints) -> Tensor:
        """Gradient [d] of the mean loss of a batch of a client at ``w``; it is charged, in the latest exchange."""

    def charge_exchange(self) -> None:
        """Every erased client receives a model and sends one."""

    def drawn(self, number: int) -> Tensor:
        """An initialization [d] of the network, by number."""

    def counterfactual(self) -> Tensor:
        """The model [d] before round ``t`` in the world in which the clients never took part, if ``memory`` is that world's."""

    def negate(self, factor: float) -> None:
        """The erased clients take part in round ``t``, and their updates count ``-factor`` times."""

    def note(self, **facts: object) -> None:
        """JSON-able facts about the request, for the record."""


class Eraser(Plugin):
    """How the model before a round becomes one without certain clients.

    Attributes:
        helps: who has to compute for it: ``nobody``, the ``retained`` clients, or the ``erased`` ones, who then must be there;
            with noise, which covers rounds alone, it is ``nobody``.
        keeps: rows [N, d] kept of every client until the request: ``last``, its last local model; ``movement``, the sum over
            its rounds of how far each parameter moved.
        single: whether it needs updates of single clients, which noise, encryption and aggregation rules hide.
        memory: what server and others keep: ``setting``, as the setting ``memory`` says; ``keep``; or ``counterfactual``.
        store: default of the setting.
    """

    kind: ClassVar[str] = "erasers"
    Settings: ClassVar[type[PluginSettings]] = EraserSettings
    helps: ClassVar[Literal["nobody", "retained", "erased"]] = "nobody"
    keeps: ClassVar[Sequence[str]] = ()
    single: ClassVar[bool] = False
    memory: ClassVar[Literal["setting", "keep", "counterfactual"]] = "setting"
    store: ClassVar[Literal["keep", "drop", "erase"]] = "drop"

    @property
    def keeps_model_after(self) -> bool:
        """Whether of a kept round the server's model after it is stored, not that before it."""
        return False

    def keeps_round(self, t: int, at: int) -> bool:
        """Whether the updates of round ``t`` are stored for the request at round ``at``."""
        return False

    def keeps_model(self, t: int) -> bool:
        """Whether the model before round ``t`` is stored."""
        return False

    def refuses(self, at: int, rounds: Sequence[int]) -> str | None:
        """Why it cannot handle a request before round ``at``; ``rounds`` are the stored ones with other clients."""
        return None

    def moved(self, W: Tensor, sent: Tensor, initial: Tensor) -> Tensor:
        """What a round adds to ``movement`` [C, d]: ``sent`` is the model [d] that was sent, ``initial`` the run's first."""
        return (W - sent).abs()

    @abstractmethod
    def erase(self, e: Erasing) -> Tensor:
        """The new model [d]."""

    def on_stored(self, e: Erasing, session: int, w: Tensor) -> Tensor:
        """With ``store: erase``, what becomes of the final model ``w`` [d] of a session, by number."""
        return w
