"""Local fine-tuning."""

from torch import Tensor

from fedtide.methods.algorithms._whole_models import WholeModels
from fedtide.methods.algorithms.base import AlgorithmSettings, Round


class LocalFineTuning(WholeModels):
    """FedAvg whose participants keep the model that they trained last, and are served it.

    Jiang et al. 2019, arXiv:1909.12488, fine-tune FedAvg's final model on every client before it is used (FedAvg+ in later
    comparisons). Here a client is fine-tuned at its last participation, without further steps, messages or gradients::

        y_i = local work from w;  w = sum_k p_k y_k                                              FedAvg         (1)
        client i is served y_i of the last round that it took part in, and w if it never did                    (2)

    It therefore serves a client that is sampled rarely a model that is fine-tuned from an old w, other than in the paper, where
    all are fine-tuned from the same one. ``evaluation.finetune_steps`` measures the latter, on top of any algorithm.

    References:
        Jiang et al. 2019. Improving Federated Learning Personalization via Model Agnostic Meta Learning.
    """

    class Settings(AlgorithmSettings):
        name: str = "local_finetuning"

    settings: Settings

    admits = ("rules",)
    client = ("own",)

    def finish(self, r: Round) -> Tensor:
        r.client.own = r.trained.W  # (2)
        return r.average()  # (1)
