"""What an attack is: what some clients train on, or send, instead of what they should."""

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.core.plugins import Plugin, PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.clients import Client, ClientNames
from fedtide.world.dataset import Dataset
from fedtide.world.drift.base import When


class AttackSettings(PluginSettings):
    """Who attacks, and since when; they are the same clients for every algorithm."""

    share: float | None = Field(None, gt=0, le=1, description="share of clients that attack, sampled")
    number: int | None = Field(None, ge=1, description="number of attackers, sampled, instead of `share`")
    clients: tuple[Client, ...] = Field(
        (), description="names of the clients that attack, or IDs where the data name none, instead of `share`"
    )
    start: When = Field(
        None,
        description="rounds before the first attack, {session: 3} or {period: 2013-07}; null: attack from the start",
    )

    def refuse_misfits(self) -> None:
        if sum([self.share is not None, self.number is not None, bool(self.clients)]) != 1:
            raise SettingsError(f"attack {self.name} requires exactly one of share, number and clients")

    def ids(self, names: ClientNames, seed: int) -> frozenset[int]:
        """The attackers among clients 0, 1, ..., drawn by the world's seed if not listed; a SettingsError if there are none."""
        if self.clients:
            return frozenset(names.numbers(self.clients, "attack.clients"))
        clients = names.count
        count = round((self.share or 0.0) * clients) if self.number is None else self.number
        if not 0 < count <= clients:
            key, value = ("share", self.share) if self.number is None else ("number", self.number)
            raise SettingsError(f"attack.{key} = {value:g}: {count} of the {clients} clients would attack")
        return frozenset(generator(seed, "attack.clients").permutation(clients)[:count].tolist())


class Attack(Plugin):
    """What attackers do: they forge the updates that they send (:meth:`forge`), or their training samples.

    They take labels (:meth:`labels`) and inputs (:meth:`inputs`) of a share of their samples for others.

    Attributes:
        colludes: whether they know the updates of all honest participants of the round. Without any they are honest, too.
        finite: whether what they send is; aggregation rules leave out what is not.
    """

    kind: ClassVar[str] = "attacks"
    Settings: ClassVar[type[PluginSettings]] = AttackSettings
    colludes: ClassVar[bool] = False
    finite: ClassVar[bool] = True

    def forge(self, D: Tensor, honest: Tensor) -> Tensor:
        """Updates that are sent.

        Args:
            D: [a, d], what the attackers have trained: how far their models have moved from where training started.
            honest: [h, d], updates of the honest participants if attackers collude, else [0, d].
        """
        return D

    def labels(self, labels: Tensor, classes: int) -> Tensor:
        """What attackers take the labels [n] of training samples for."""
        return labels

    def inputs(self, inputs: Tensor, brightest: Tensor) -> Tensor:
        """What attackers take training samples [n, ...] for, which are not to be changed; also what the attack is tested on.

        ``brightest``: the largest value of an image, [channels, 1, 1].
        """
        return inputs

    @property
    def poisoned(self) -> float:
        """The share of an attacker's samples that it changes."""
        return 1.0

    def require(self, data: Dataset) -> None:
        """Refuse data that the attack cannot change, by a SettingsError."""

    @property
    def forges(self) -> bool:
        """Whether :meth:`forge` is overridden."""
        return type(self).forge is not Attack.forge

    @property
    def relabels(self) -> bool:
        """Whether :meth:`labels` is overridden."""
        return type(self).labels is not Attack.labels

    @property
    def repaints(self) -> bool:
        """Whether :meth:`inputs` is overridden."""
        return type(self).inputs is not Attack.inputs
