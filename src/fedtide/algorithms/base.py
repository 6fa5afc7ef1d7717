"""What an algorithm is: declared memories, declared traffic and a few hooks. The federation owns the loop."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedtide.algorithms._phase import Phase
from fedtide.algorithms._preview import RunPreview
from fedtide.algorithms._round import ForwardPass, Population, Round, Services, Vectors
from fedtide.algorithms._served import Served, ServedTo
from fedtide.core.array_types import Ints
from fedtide.core.plugins import Plugin, PluginSettings, Tunable
from fedtide.core.randomness import Randomness
from fedtide.engine.flat import Layout
from fedtide.engine.local import Gradient, GradientAt, Local, NoStep, Term, TermBatch
from fedtide.engine.stop import StopRule
from fedtide.settings.kinds import AlgorithmSettings
from fedtide.world.concepts import Concept

__all__ = [
    "Algorithm",
    "AlgorithmSettings",
    "ForwardPass",
    "Gradient",
    "GradientAt",
    "Ints",
    "Local",
    "NoStep",
    "Phase",
    "Population",
    "Problem",
    "Round",
    "RunPreview",
    "Served",
    "ServedTo",
    "ServerVector",
    "Services",
    "Term",
    "TermBatch",
    "Tunable",
    "Vectors",
]


@dataclass(frozen=True)
class ServerVector:
    """A vector [d] that the server keeps.

    Attributes:
        name: in ``r.server``.
        start: value of its entries at the start.
        mean_of: the client memory whose mean over the clients present it is, also when the population changes; without one it
            stays as it is.
        by_size: that mean is weighted by the clients' relative sizes omega.
    """

    name: str
    start: float = 0.0
    mean_of: str | None = None
    by_size: bool = False


@dataclass(frozen=True)
class Problem:
    """What an algorithm knows before the first round.

    Attributes:
        layout: names and slices of the parameters. clients: N. classes: L. input_shape: of a sample.
        randomness: the run's. drawn: an initialisation [d] of the network for a number, independent of the run's own.
        concepts: what samples are seen as in the world, by number.
    """

    layout: Layout
    clients: int
    classes: int
    input_shape: tuple[int, ...]
    randomness: Randomness
    drawn: Callable[[int], Tensor]
    concepts: tuple[Concept, ...] = (Concept(),)


def shared_size(algorithm: Algorithm, layout: Layout) -> int:
    """How many parameters participants and server exchange."""
    shared = algorithm.shared(layout)
    return layout.size if shared is None else int(shared.sum())


class Algorithm(Plugin):
    """A federated algorithm.

    A paper becomes ``Settings``, declarations (``server``, ``client``, ``down``, ``up``) and :meth:`start`, :meth:`local` (or
    :meth:`direction`), :meth:`terms` and :meth:`finish`, whose defaults are FedAvg. Participants that train more than once in a
    round, or a part of the model, override :meth:`phases`; clients with models of their own, :meth:`served`. All other hooks
    are for the few algorithms that need them. Declarations that depend on settings are made in ``__init__``.

    >>> class Shrink(Algorithm):
    ...     '''FedAvg whose clients are pulled towards zero.'''
    ...     def local(self, r: Round) -> Local:
    ...         return Local(pull=0.1, towards=0 * r.w)

    Attributes:
        server: vectors [d] kept by the server: names (zero at the start), or :class:`ServerVector`.
        client: names of vectors kept by every client, [d] unless :meth:`width` says otherwise, zero for a client never seen. A
            client that leaves inside a session loses them; see ``federation.at_session`` for the start of one.
        down, up: what is sent to and by each participant, for the ledger: ``w``/``W`` (the model with its buffers), names
            of declared vectors, or names that :meth:`payload` knows.
        models: the models to evaluate by default: ``cloud``, ``participants``, ``all``, ``ensemble``.
        averages_inside_round: whether its formulas hold when clients also average inside a round (see ``exchange``): they may
            use the mean of the local models, not a client's own displacement.
        clocks: with which ``clock`` it works. With ``events``, every result has a base, a staleness and a learning rate of its
            own (``r.base``, ``r.staleness``, ``r.rate``), a client may occur twice, not all client vectors are kept
            (``r.keeps``), and ``local`` and ``terms`` see ``r.w`` and ``r.server`` as they are when the results are used.
        needs_sgd: whether its formulas take a client's displacement, over learning rate and steps, for its mean gradient, or
            choose the local optimiser themselves; other settings than ``local.optimiser: sgd`` are then refused.
        buffer: results that an update of the server waits for with ``clock: events``.
        synthetic_per_shard: most samples it adds for every shard that a client holds.
        gradients: vectors [d] per participant that it takes from ``full_gradient``, ``taylor`` and ``fisher_diagonal`` or makes
            of them, for the memory that a run is planned with.
        sums_only: whether :meth:`weights`, :meth:`finish` and :meth:`record` read the rows of the local models only one by one
            and add them up only by ``r.average``, ``r.mean``, ``r.weighted_mean``, ``r.mean_update`` and ``r.total``. Processes
            that share a round then exchange sums instead of local models, where nothing else needs these.
        robust: whether other rules than the mean may stand behind ``r.mean``: :meth:`finish` and :meth:`weights` combine the
            participants by ``r.mean``, ``r.average`` and ``r.mean_update`` alone.
        private: whether client-level privacy goes with it: clients keep nothing that the server adds up, and the server reads
            the models by ``r.average`` alone. divides_by_steps: whether it divides updates by the clients'
            local steps first, which then have to be equal.
        apart: names in ``up`` that clients compute from their data, not from their models; links do not touch them.
        linear_head: whether the model's logits must be one linear map of its features.
        needs_body: whether the model must have parameters before its last layer.
        starts_from_w: with :meth:`start` or :meth:`phases` overridden: whether all training starts from ``r.w``, or ``r.base``,
            nonetheless, so that the server may compress what it sends.
        keeps_buffers: whether clients keep the network's floating buffers to themselves: the global ones then stay as they are.
        takes_momentum: whether ``local.momentum`` goes with it; it does not where the algorithm takes local steps itself.
        gradients_per_step: most gradients on a batch that :meth:`direction` takes in a local step, for the record, the costs
            and the memory that a run is planned with; see :meth:`gradients_in`.
        early_stop: whether a client ends its first phase after a local epoch, by its mean cross-entropy on its training
            samples; None: none does. Costs are those of the steps taken; the passes for the loss are not charged.
        personal_lr: learning rate of the steps of ``evaluation.personalise``, where the algorithm has one for them; None: the
            round's.
        personal: whether what clients remember is a model of their own, which a device that leaves can keep; see
            ``federation.returners``.
        trains_global: whether there is a trained global model; without one no gains over it are recorded.
        problem: the learning problem, set before all other calls.
    """

    kind: ClassVar[str] = "algorithms"
    Settings: ClassVar[type[PluginSettings]] = AlgorithmSettings
    server: Sequence[str | ServerVector] = ()
    client: Sequence[str] = ()
    down: Sequence[str] = ("w",)
    up: Sequence[str] = ("W",)
    models: ClassVar[Sequence[str]] = ("cloud",)
    averages_inside_round: ClassVar[bool] = False
    clocks: ClassVar[Sequence[str]] = ("rounds",)
    needs_sgd: bool = False
    takes_momentum: bool = True
    gradients_per_step: int = 1
    early_stop: StopRule | None = None
    personal_lr: float | None = None
    buffer: int = 1
    synthetic_per_shard: int = 0
    gradients: int = 0
    sums_only: ClassVar[bool] = False
    robust: bool = False
    private: bool = False
    divides_by_steps: ClassVar[bool] = False
    apart: Sequence[str] = ()
    linear_head: bool = False
    needs_body: bool = False
    starts_from_w: ClassVar[bool] = False
    keeps_buffers: bool = False
    personal: ClassVar[bool] = False
    trains_global: ClassVar[bool] = True
    problem: Problem

    # A round, in the order of the calls.

    def start(self, r: Round) -> Tensor:
        """The models that local training starts from: [d] for all participants or [C, d]."""
        return r.base

    def local(self, r: Round) -> Local:
        """What this round adds to the clients' gradients."""
        return Local()

    def phases(self, r: Round) -> Generator[Phase, Tensor, None]:
        """The trainings of the participants, one after the other; each ``yield`` gives the trained models [C, d].

        ``r.W`` has to be set to the local models that the round is about: those of a phase as they are, so that steps, loss,
        drift and floating buffers are that phase's. Memories may be written.
        """
        r.W = yield Phase(self.start(r), self.local(r))

    def terms(self, r: Round) -> list[Term]:
        """Extra losses of the first phase, with the reference models they need."""
        return []

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> Tensor | GradientAt | NoStep:
        """The general form, called at every local step of the first phase if overridden.

        Args:
            grad: gradient [c, d] of the loss (and of the extra terms) on the current batch at any point [c, d]; may be changed,
                and is only valid until the step ends.
            W: [c, d] current parameters of some participants; must not be changed.
            r: the round as those participants see it; ``r.client`` may be written.

        Returns:
            [c, d], takes the place of the loss gradient; what :meth:`local` adds comes on top. Where it is a gradient at some
            point, ``GradientAt(point)`` is faster than ``grad(point)``; ``NoStep()`` where the batch only prepares the next
            step.
        """
        raise NotImplementedError

    def gradients_in(self, step: int) -> int:
        """Gradients on its batch that :meth:`direction` takes in a client's local step, counted from 0."""
        return self.gradients_per_step

    def finish(self, r: Round) -> Tensor:
        """After local training: update the memories and return the new global model [d]."""
        return r.average()

    def served(self, s: ServedTo) -> Served | None:
        """The model that each of some clients is evaluated with, as far as it could hold it; None: the global model.

        Called after :meth:`finish` for the clients present, in pieces, when they are evaluated; must not change anything.
        """
        return None

    # What only some algorithms need.

    def bind(self, problem: Problem) -> None:
        """Receive the learning problem, once, before all other calls; it is ``self.problem`` from then on.

        Raises:
            SettingsError: the algorithm cannot train such a network.
        """
        self.problem = problem

    def extra(self) -> dict[str, Tensor]:
        """Initial values of further state of any shape, kept in ``r.extra`` and saved with the run."""
        return {}

    def training_samples(
        self, ids: Sequence[int], shard_ids: Sequence[int], shards: Sequence[Ints], extra: dict[str, Tensor]
    ) -> Sequence[Ints]:
        """Positions in the training set that each participant trains on, called before batches are drawn.

        Args:
            ids: participants, ascending. shard_ids: number of the shard each holds. shards: its positions, the default.
            extra: as in the round; may be read.
        """
        return shards

    def weights(self, r: Round) -> Tensor:
        """Weights [C, 1] of the average at the end of the round, called after local training; by default the weighting's."""
        return r.weights

    def forget(self, extra: dict[str, Tensor], departed: Tensor) -> None:
        """Remove from ``extra`` what clients kept there that have left within a session.

        Args:
            extra: as in the round; is changed. departed: their ids, int64 [n].
        """

    def width(self, name: str, layout: Layout) -> int:
        """Numbers in a client's vector ``name`` for a network, by default those of a model; asked before :meth:`bind`, too."""
        return layout.size

    def shared(self, layout: Layout) -> Tensor | None:
        """The parameters that participants and server exchange, bool [d]; None for all. Asked before :meth:`bind`, too.

        Links change these alone, of the others the server gets to see nothing: :meth:`finish` must not use them.
        """
        return None

    def payload(self, name: str) -> int:
        """Numbers (4 bytes each) in one transfer of ``name``, by default those of a client's vector, or of a model.

        Of ``w`` and ``W`` it is not asked: these are the parameters that are :meth:`shared`, and floating buffers.
        """
        layout = self.problem.layout
        return self.width(name, layout) if name in self.client else layout.size

    def session_traffic(self, clients: int) -> tuple[int, int]:
        """Bytes that all clients present together send and receive once, at the beginning of a session."""
        return 0, 0

    def record(self, r: Round) -> dict[str, Tensor | float]:
        """What to record of every round, always under the same names; called after :meth:`finish`.

        A column [C, 1] goes to ``clients.csv`` (a value for each participant), a number to ``history.csv`` (NaN: no value).
        """
        return {}

    def advice(self, run: RunPreview) -> list[str]:
        """One line for each setting that is known to be unstable, logged once at the start."""
        return []

    # Derived.

    def server_vectors(self) -> list[ServerVector]:
        """The server's vectors with their declarations."""
        return [ServerVector(item) if isinstance(item, str) else item for item in self.server]

    @property
    def stateful(self) -> bool:
        """Whether clients remember anything from round to round."""
        return bool(self.client) or type(self).forget is not Algorithm.forget

    @property
    def has_direction(self) -> bool:
        """Whether :meth:`direction` is overridden."""
        return type(self).direction is not Algorithm.direction

    @property
    def has_phases(self) -> bool:
        """Whether :meth:`phases` is overridden."""
        return type(self).phases is not Algorithm.phases

    @property
    def serves(self) -> bool:
        """Whether :meth:`served` is overridden."""
        return type(self).served is not Algorithm.served
