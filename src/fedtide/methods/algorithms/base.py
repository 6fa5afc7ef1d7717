"""What an algorithm is: declared memories, declared traffic and a few hooks. The federation owns the loop."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.core.plugins import Plugin, PluginSettings, Tunable
from fedtide.methods.algorithms._preview import RunPreview
from fedtide.methods.algorithms._problem import Problem, ServerVector
from fedtide.methods.algorithms._round import (
    ForwardPass,
    Job,
    Means,
    Models,
    Participations,
    Population,
    Round,
    Services,
    Session,
    Vectors,
)
from fedtide.settings.run import AlgorithmSettings
from fedtide.training.engine.flat import Layout
from fedtide.training.engine.local import Gradient, GradientAt, Local, NoStep, StopRule, Term, TermBatch

__all__ = [
    "ADMITS",
    "NEEDS",
    "Algorithm",
    "AlgorithmSettings",
    "Extra",
    "ForwardPass",
    "Gradient",
    "GradientAt",
    "Ints",
    "Job",
    "Layout",
    "Local",
    "Means",
    "Models",
    "NoStep",
    "Participations",
    "Phase",
    "Population",
    "Problem",
    "Round",
    "RunPreview",
    "Served",
    "ServedTo",
    "ServerVector",
    "Services",
    "Session",
    "Term",
    "TermBatch",
    "Tunable",
    "Vectors",
]


@dataclass(frozen=True)
class Phase:
    """A training of the participants; :meth:`Algorithm.phases` yields one or more.

    The first phase has the batches, extra losses and own directions of a round with a single one. Further phases draw batches
    of their own, start their local optimizer at rest, and descend the objective alone, with what ``local`` adds.

    Attributes:
        start, buffers: models that it starts from, [d] or [C, d], and floating buffers, [q] or [C, q]; None: the global ones.
        local: what is added to the gradients.
        trains: bool [d], the parameters that are trained (``self.problem.layout.mask``); None for all. The others stay as they
            are and do not count in the norm that a gradient is clipped by.
        amount, lr: local work, in epochs or steps as ``local``, and learning rate; None for those of the run.
        main: whether the round is about these local models; else it is about those of the last phase.
    """

    start: Tensor
    local: Local = field(default_factory=Local)
    trains: Tensor | None = None
    amount: int | None = None
    lr: float | None = None
    buffers: Tensor | None = None
    main: bool = False


class Served(NamedTuple):
    """``models`` [M, d] and which of them each client asked for uses, int64 ``of`` [n].

    ``buffers``: floating buffers [M, q] of the models; None for those of the global model.
    """

    models: Tensor
    of: Ints
    buffers: Tensor | None = None


@dataclass(frozen=True)
class ServedTo:
    """Some of the clients present after a round, participants or not, n of them.

    Attributes:
        ids: of the clients, ascending. w: [d], the new global model. b: [q], its floating buffers.
        client: their memories [n, d], zero where a client has none. seen: [n, 1], 1.0 where it has one.
        extra: named tensors that the algorithm keeps. layout: names and slices of the parameters.
        losses: mean cross-entropy [n, M] of models [M, d] on the clients' training samples, infinite without any.
        concepts: [n, concepts], the share of their samples that they see under each concept of the world.
    """

    ids: list[int]
    w: Tensor
    b: Tensor
    client: Vectors
    seen: Tensor
    extra: dict[str, Tensor]
    layout: Layout
    losses: Callable[[Tensor], Tensor]
    concepts: Tensor


Extra = Mapping[str, Tensor]
Optimizer = Literal["any", "sgd", "plain_sgd"]

ADMITS = {
    "sums": "the rows of the local models are read one by one and added up only by means and totals of the round, so that "
    "processes which share it exchange sums instead of models",
    "rules": (
        "the participants are combined by r.average, r.mean and r.mean_update alone, which other rules may replace"
    ),
    "noise": "the server reads the models by r.average alone, and clients keep nothing that it adds up, which noise then hides",
    "noise_at_equal_steps": "the same, but updates are divided by the clients' local steps, which then have to be equal",
    "exchanges": "clients may also average inside a round: the mean of the local models is used, no client's own displacement",
    "downlink": "with start or phases overridden all training starts from r.w or r.base nonetheless, so that the server may "
    "compress what it sends",
}
"""The words of :attr:`Algorithm.admits`; a run that needs another one is refused."""

NEEDS = {
    "linear_head": "logits that are one linear map of the features",
    "body": "parameters before the last layer",
}
"""What an algorithm may ask of the network in :attr:`Algorithm.needs`."""


class Algorithm(Plugin):
    """A federated algorithm.

    A paper becomes ``Settings``, declarations (``server``, ``client``, ``down``, ``up``) and :meth:`start`, :meth:`local` (or
    :meth:`direction`), :meth:`terms` and :meth:`finish`, whose defaults are FedAvg. Participants that train more than once in a
    round, or a part of the model, override :meth:`phases`; clients with models of their own, :meth:`served`. All other hooks
    are for the few algorithms that need them. Declarations that depend on settings are made in ``__init__``.

    >>> class Shrink(Algorithm):
    ...     '''FedAvg whose clients are pulled toward zero.'''
    ...     def local(self, r: Round) -> Local:
    ...         return Local(pull=0.1, toward=0 * r.w)

    Attributes:
        server: vectors [d] kept by the server: names (zero at the start), or :class:`ServerVector`.
        client: names of vectors kept by every client, [d] unless :meth:`width` says otherwise, zero for a client never seen. A
            client that leaves inside a session loses them; see ``client_state.on_session_start`` for the start of one.
        down, up: what is sent to and by each participant, for the ledger: ``w``/``W`` (the model with its buffers), names
            of declared vectors, or names that :meth:`width` knows.
        apart: names in ``up`` that clients compute from their data, not from their models; links do not touch them.
        models: the models to evaluate by default: ``global`` (the global one, without which none is trained), ``participants``,
            ``all``, ``ensemble``. With ``personal`` what clients remember is a model of their own, which a device that leaves
            can keep; see ``client_state.on_leave``.
        admits: what else a run may do with the participants' models; :data:`ADMITS` says what each word means.
        modes: with which ``mode`` it works. With ``async``, every result has a base, a staleness and a learning rate of its
            own (``r.base``, ``r.job``), a client may occur twice, not all client vectors are kept, and ``local`` and ``terms``
            see ``r.w`` and ``r.server`` as they are when the results are used.
        buffer: results that an update of the server waits for with ``mode: async``.
        optimizer: which ``local.optimizer`` goes with it: any; sgd, where its formulas take a client's displacement, over
            learning rate and steps, for its mean gradient, or choose the local optimizer themselves; or sgd without momentum,
            where it takes local steps itself.
        needs: what the network must have; :data:`NEEDS` says what each word asks for.
        early_stop: whether a client ends its first phase after a local epoch, by its mean cross-entropy on its training
            samples; None: none does. Costs are those of the steps taken and of the passes for the loss.
        personal_lr: learning rate of the steps of ``evaluation.finetune_steps``, where the algorithm has one for them; None:
            the round's.
        synthetic_per_shard: most samples it adds for every shard that a client holds.
        problem: the learning problem, set before all other calls.
    """

    kind: ClassVar[str] = "algorithms"
    Settings: ClassVar[type[PluginSettings]] = AlgorithmSettings
    server: Sequence[str | ServerVector] = ()
    client: Sequence[str] = ()
    down: Sequence[str] = ("w",)
    up: Sequence[str] = ("W",)
    apart: Sequence[str] = ()
    models: Sequence[str] = ("global",)
    admits: Sequence[str] = ()
    modes: ClassVar[Sequence[str]] = ("sync",)
    buffer: int = 1
    optimizer: Optimizer = "any"
    needs: Sequence[str] = ()
    early_stop: StopRule | None = None
    personal_lr: float | None = None
    synthetic_per_shard: int = 0
    problem: Problem

    # A round, in the order of the calls.

    def rests(self, session: Session) -> bool:
        """Whether nobody takes part in a round of a session: it is recorded, costs nothing and leaves the model as it is."""
        return False

    def start(self, r: Round) -> Tensor:
        """The models that local training starts from: [d] for all participants or [C, d]."""
        return r.base

    def local(self, r: Round) -> Local:
        """What this round adds to the clients' gradients."""
        return Local()

    def phases(self, r: Round) -> Generator[Phase, Tensor, None]:
        """The trainings of the participants, one after the other; each ``yield`` gives the trained models [C, d].

        The round is about the models of the last one, or of the one marked as ``main``: ``r.W``, steps, loss, drift and
        floating buffers are that phase's. Memories may be written.
        """
        yield Phase(self.start(r), self.local(r))

    def terms(self, r: Round) -> list[Term]:
        """Extra losses of the first phase, with the reference models they need."""
        return []

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> Tensor | GradientAt | NoStep:
        """The general form, called at every local step of the first phase if overridden; what :meth:`local` adds comes on top.

        Args:
            grad: gradient [c, d] of the loss (and of the extra terms) on the current batch at any point [c, d]; may be changed,
                and is only valid until the step ends.
            W: [c, d] current parameters of some participants; must not be changed.
            r: the round as those participants see it; ``r.client`` may be written.

        Returns:
            [c, d] in the place of the loss gradient; for a gradient at some point ``GradientAt(point)`` is faster than
            ``grad(point)``; ``NoStep()`` where the batch only prepares the next step.
        """
        raise NotImplementedError

    def gradients_in(self, step: int) -> int:
        """Gradients on its batch that :meth:`direction` takes in a client's local step, counted from 0.

        For the record, the costs, and the memory that a run is planned with.
        """
        return 1

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
        """Receive ``self.problem``, once, before all other calls; a SettingsError if such a network cannot be trained."""
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

    def width(self, name: str, layout: Layout, extra: Extra) -> int:
        """Numbers in a client's vector ``name``, or in one transfer of that name; by default those of a model.

        Of ``w`` and ``W`` it is not asked: these are the parameters that are :meth:`shared`, and floating buffers.

        Args:
            layout: of the network; for clients' vectors asked before :meth:`bind`, too.
            extra: further state after the round that is charged; nothing where clients' vectors are asked for.
        """
        return layout.size

    def shared(self, layout: Layout) -> Tensor | None:
        """What participants and server exchange of a model, bool [d] or with floating buffers [d + q]; None for all.

        Links change these alone, of the others the server gets to see nothing: :meth:`finish` must not use them. Buffers that
        are not exchanged are the clients' own, and the global ones stay as they are. Asked before :meth:`bind`, too.
        """
        return None

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


def overrides(algorithm: Algorithm, *hooks: str) -> bool:
    """Whether an algorithm has a version of its own of some hooks."""
    return any(getattr(type(algorithm), hook) is not getattr(Algorithm, hook) for hook in hooks)


def server_vectors(algorithm: Algorithm) -> list[ServerVector]:
    """The vectors that an algorithm's server keeps, with their declarations."""
    return [ServerVector(item) if isinstance(item, str) else item for item in algorithm.server]


def shared_parameters(algorithm: Algorithm, layout: Layout) -> Tensor | None:
    """The parameters that participants and server exchange, bool [d]; None for all."""
    shared = algorithm.shared(layout)
    return None if shared is None else shared[: layout.size]


def shares_buffers(algorithm: Algorithm, layout: Layout) -> bool:
    """Whether participants and server exchange floating buffers."""
    shared = algorithm.shared(layout)
    return shared is None or bool(shared[layout.size :].all())


def shared_size(algorithm: Algorithm, layout: Layout) -> int:
    """How many parameters participants and server exchange."""
    shared = shared_parameters(algorithm, layout)
    return layout.size if shared is None else int(shared.sum())
