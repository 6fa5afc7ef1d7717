"""MOON."""

from torch import Tensor
from torch.nn import functional

from fedtide.methods.algorithms._averaging import Averaging, AveragingSettings
from fedtide.methods.algorithms.base import Round, Term, TermBatch, Tunable


class Moon(Averaging):
    """Model-contrastive local objectives (Li, He and Song 2021), averaged as in FedAvg.

    With the features z of the model in training, z_g of the global model and z_p of the client's previous local model clients
    minimize ``f_k + mu l``::

        l = -log( exp(cos(z, z_g) / tau) / (exp(cos(z, z_g) / tau) + exp(cos(z, z_p) / tau)) )                      (eq. 3)

    A client without a previous model trains on f_k alone (in the released code its first z_p is that of a random network).
    z_p is taken with the broadcast normalization statistics, not with those the client had.

    References:
        Li, He and Song 2021. Model-Contrastive Federated Learning.
    """

    class Settings(AveragingSettings):
        name: str = "moon"
        mu: float = Tunable(1.0, low=0.1, high=10.0, log=True, ge=0, description="strength of the contrastive term")
        temperature: float = Tunable(1.0, low=0.1, high=2.0, log=True, gt=0, description="temperature tau of the term")

    settings: Settings

    admits = ("rules",)

    client = ("previous",)

    def terms(self, r: Round) -> list[Term]:
        s = self.settings
        models = {"global": r.w, "previous": r.client.previous}
        return [Term(self._contrast, models, s.mu * r.seen)] if s.mu else []

    def finish(self, r: Round) -> Tensor:
        r.client.previous = r.trained.W
        return super().finish(r)

    def _contrast(self, batch: TermBatch) -> Tensor:
        """l [B] in a stable form."""
        z = batch.outputs.features
        near, far = (
            functional.cosine_similarity(z, batch.references[name].features, dim=-1) for name in ("global", "previous")
        )
        return functional.softplus((far - near) / self.settings.temperature)  # eq. 3
