"""What an algorithm is: declared memories, declared traffic and a few hooks. The federation owns the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor

from fedtide.algorithms.outlook import Outlook
from fedtide.algorithms.round import Ints, Round, Vectors
from fedtide.engine.flat import Layout
from fedtide.engine.local import Gradient, Local, Term
from fedtide.plugins import Plugin, PluginSettings, Tunable
from fedtide.settings import WeightingChoice

__all__ = ["Algorithm", "AlgorithmSettings", "Gradient", "Local", "Round", "Term", "Tunable", "Vectors"]


class AlgorithmSettings(PluginSettings):
    """Settings every algorithm has."""

    weighting: WeightingChoice = Field("samples", description="how participants are weighted")  # type: ignore[assignment]


class Algorithm(Plugin):
    """A federated algorithm.

    Sub-classes declare their vectors and override the hooks they need; FedAvg overrides none. Where vectors and traffic
    depend on settings, an instance declares them.

    Attributes:
        server: names of vectors [d] kept by the server, :meth:`server_start` (zero) at the start.
        client: names of vectors [d] kept by every client, zero for a client never seen.
        down, up: what travels to and from each participant, for the ledger: ``w``/``W`` (the model with its buffers), names
            of declared vectors, or names that :meth:`payload` knows.
        models: models it distinguishes, for evaluation: ``cloud``, ``participants``, ``all``, ``ensemble``.
        averages_inside_round: whether its formulas hold when clients average inside a round (an exchange's business): they may
            look at the mean of the local models, not at a client's own displacement.
        stateful: whether clients remember something from round to round; by default, if they keep vectors.
        invents: samples that it makes up at most of every subset that a client meets.
    """

    Settings: ClassVar[type[PluginSettings]] = AlgorithmSettings
    server: tuple[str, ...] = ()
    client: tuple[str, ...] = ()
    down: tuple[str, ...] = ("w",)
    up: tuple[str, ...] = ("W",)
    models: ClassVar[tuple[str, ...]] = ("cloud",)

    averages_inside_round: ClassVar[bool] = False
    has_direction: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.has_direction = cls.direction is not Algorithm.direction

    @property
    def stateful(self) -> bool:
        """See the class."""
        return bool(self.client)

    @property
    def invents(self) -> int:
        """See the class."""
        return 0

    def bind(self, layout: Layout, seed: int) -> None:
        """Look at the network's parameters and the run's seed, once, before anything else.

        Raises:
            SettingsError: the algorithm cannot train such a network.
        """

    def server_start(self, name: str) -> float:
        """Start value of the entries of a server vector."""
        return 0.0

    def extra(self, size: int, clients: int, classes: int) -> dict[str, Tensor]:
        """Start values of further state of any shape, kept in ``r.extra`` and saved with the run."""
        return {}

    def shards(
        self, ids: Sequence[int], subsets: Sequence[int], own: Sequence[Ints], extra: dict[str, Tensor]
    ) -> Sequence[Ints]:
        """Positions of the training set that each participant trains on; called before batches are drawn.

        Args:
            ids: participants, ascending. subsets: number of the shard each holds. own: its positions, the default.
            extra: as in the round; may be read.
        """
        return own

    def start(self, r: Round) -> Tensor:
        """Vectors training starts from: [d] for all participants or [C, d]."""
        return r.w

    def local(self, r: Round) -> Local:
        """What this round adds to the clients' gradients."""
        return Local()

    def terms(self, r: Round) -> list[Term]:
        """Extra losses, with the reference models they need."""
        return []

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> Tensor:
        """The general form, called at every local step if overridden.

        Args:
            grad: gradient [c, d] of the loss (and of the extra terms) on the current batch at any point [c, d].
            W: [c, d] current parameters of some participants.
            r: the round as those participants see it; ``r.client`` may be written.

        Returns:
            [c, d], takes the place of the loss gradient; what :meth:`local` adds comes on top.
        """
        raise NotImplementedError

    def finish(self, r: Round) -> Tensor:
        """After local training: update the memories and return the new global model [d]."""
        return r.mean(r.W)

    def after_round(self, r: Round, w: Tensor) -> Tensor:
        """A server phase on the new model [d] (generators, classifier re-training)."""
        return w

    def keep_at_session(self, server: Vectors, memory: Vectors, present: list[int], omega: Tensor) -> None:
        """Adjust kept memories ([d] and [N, d]) to a new population, when ``federation.at_session`` is ``keep``.

        Called when a session begins, and when somebody has left inside one. ``present`` are the ids of who is there, ``omega``
        [K, 1] their sizes relative to the mean.
        """

    def payload(self, name: str, size: int, classes: int) -> int:
        """Numbers in one transfer of ``name`` (4 bytes each) where it is not a model-sized vector."""
        return size

    def opening_traffic(self, clients: int, classes: int) -> tuple[int, int]:
        """Bytes that all clients present together send and receive once, at the beginning of a session."""
        return 0, 0

    def record(self, r: Round) -> dict[str, Tensor]:
        """Columns [C, 1] worth keeping of every round; called after :meth:`finish`, written to ``clients.csv``."""
        return {}

    def observe(self, r: Round) -> dict[str, float]:
        """Numbers about the server worth keeping of every round, always of the same names: columns of ``history.csv``.

        Called after :meth:`finish`.
        """
        return {}

    def warnings(self, run: Outlook) -> list[str]:
        """One line for each setting known to be unstable, said once at the start."""
        return []
