"""FedPer, LG-FedAvg and FedBN."""

from collections.abc import Generator, Sequence

from pydantic import Field
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.methods.algorithms._own_part import OwnPart, OwnPartSettings
from fedtide.methods.algorithms.base import Phase, Problem, Round
from fedtide.training.engine.flat import Layout


class FedPer(OwnPart):
    """FedPer, LG-FedAvg, FedBN: every client keeps a part of the model to itself, and trains it with the rest.

    ::

        start_i = (w outside of P, own_i on P; w for a client without a part);  E epochs;  own_i = y_i on P
        w = sum_k p_k y_k outside of P; on P unchanged (newcomers: initial) or sum_k p_k y_k (mean)

    The part P is the last layer (``personal: head``, FedPer: Arivazhagan et al. 2019, arXiv 1912.00818), all but the last layer
    (``body``, LG-FedAvg: Liang et al. 2020, arXiv 2001.01523), the normalization layers with their running statistics
    (``norms``, FedBN: Li et al. 2021, arXiv 2102.07623), or the layers named. Norms are known by the type of their layer.

    A client is served w with its own part. A newcomer's is that of w: with ``initial`` an untrained head on a trained body, or
    an untrained body, far below FedAvg until it has trained. With ``mean`` newcomers fare better, but parts are sent, and the
    server sees them.

    LG-FedAvg's released code starts from a late FedAvg model, shares three of four layers on MNIST, and keeps of every client
    the model that was best on its test samples; none of that is done here.

    References:
        Li et al. 2021. FedBN: Federated Learning on Non-IID Features via Local Batch Normalization.
        Liang et al. 2020. Think Locally, Act Globally: Federated Learning with Local and Global Representations.
    """

    class Settings(OwnPartSettings):
        name: str = "fedper"
        personal: str | tuple[str, ...] = Field(
            "head",
            min_length=1,
            description="what every client keeps: head: the last layer; body: all else (LG-FedAvg); norms: normalization "
            "layers and their statistics (FedBN); or a list of layers or parameters by name",
        )

    settings: Settings

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.needs: Sequence[str] = ("body",) if settings.personal in ("head", "body") else ()
        self.own_buffers = settings.personal == "norms"

    def part(self, layout: Layout) -> Tensor:
        try:
            return layout.mask(self.settings.personal)
        except SettingsError as error:
            raise SettingsError(f"algorithm.personal: {error}") from None

    def bind(self, problem: Problem) -> None:
        """Refuse a network without such a part, and running statistics of other layers than a client's."""
        super().bind(problem)
        layout = problem.layout
        if not self.P.any():
            raise SettingsError("algorithm.personal = norms: the model has no normalization layers with parameters")
        if layout.buffer_size and not self.own_buffers and (self.P & layout.mask("body")).any():
            raise SettingsError(
                "algorithm.personal keeps body layers per client, but BatchNorm statistics are shared by all "
                "clients; use head or norms, a model without BatchNorm, or model.norm: group"
            )

    def phases(self, r: Round) -> Generator[Phase, Tensor, None]:
        start, buffers = self.composed(r.base, r.trained.b, r.client.own, r.seen)
        yield Phase(start, buffers=buffers)
