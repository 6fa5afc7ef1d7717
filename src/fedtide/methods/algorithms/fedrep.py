"""FedRep."""

from collections.abc import Generator

from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._own_part import OwnPart, OwnPartSettings
from fedtide.methods.algorithms.base import Phase, Round, Tunable


class FedRep(OwnPart):
    """FedRep: every client fits a head of its own to the shared body, then the body to this head.

    Collins et al. 2021, arXiv 2102.07078::

        y = (body of w, own head);  E_h epochs of the head alone, rate eta_h;  own_i = head        (1)
        E epochs of the body alone                                                                (2)
        w = sum_k p_k y_k; its head is unchanged (newcomers: initial) or the mean of heads (mean)

    What is not trained has no gradient, no weight decay and no share in the clipped norm. A client is served the body of w with
    its own head, a newcomer w.

    Released code: 10 + 1 epochs (CIFAR) or 10 + 5 (FEMNIST), momentum 0.5 and a rate of 0.01; in a last round it trains all
    heads for 10 epochs. Its clients never drawn follow the averaged head, although heads are not meant to be sent:
    ``newcomers: mean`` repeats it. Here both phases start at rest.
    """

    class Settings(OwnPartSettings):
        name: str = "fedrep"
        head_epochs: int = Tunable(
            10,
            low=1,
            high=15,
            ge=0,
            description="local work E_h on the head, in epochs or steps as `local`, whose amount is that on the body",
        )
        personal_lr: float | None = Field(
            None,
            gt=0,
            description="learning rate eta_h of the head, which decays as that of the run; null: that of the run",
        )

    settings: Settings

    def phases(self, r: Round) -> Generator[Phase, Tensor, None]:
        s, head = self.settings, self.P
        y, _ = self.composed(r.base, r.trained.b, r.client.own, r.seen)
        if s.head_epochs:
            lr = None if s.personal_lr is None else r.scheduled(s.personal_lr)
            y = yield Phase(y, trains=head, amount=s.head_epochs, lr=lr)  # (1)
        yield Phase(y, trains=~head)  # (2)
