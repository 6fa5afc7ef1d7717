"""FedCM."""

from fedtide.methods.algorithms._momentum import ClientMomentum, MomentumSettings
from fedtide.methods.algorithms.base import Round, Tunable


class FedCm(ClientMomentum):
    """Client-level momentum (Xu et al. 2021): local steps mix the gradient with the last global direction Delta.

    With ``u_k = x - y_k`` and B_k the displacement per unit gradient and lr (the number of local steps, unless there is local
    momentum), in ``_momentum.py``::

        v = alpha g + (1 - alpha) Delta                                                                             (1)
        Delta+ = sum_k p_k u_k / (lr B_k)                                                                           (2)
        x+ = x - eta_g sum_k p_k u_k                                                                                (3)

    The paper's ``x+ = x - eta_g Delta+`` is ``server_step: gradient_units``. The released code divides by the nominal count
    E n / B of unrounded batches (``momentum_norm: nominal``). Short last batches make the true count kappa times larger, and
    Delta blows up once kappa (1 - alpha) > 1; published failures of FedCM on long-tailed data follow this number.
    """

    class Settings(MomentumSettings):
        name: str = "fedcm"
        alpha: float = Tunable(
            0.1, low=0.02, high=1.0, gt=0, le=1, description="weight of the gradient in a local step"
        )

    settings: Settings

    admits = ("sums", "rules", "noise_at_equal_steps")

    def alpha(self, r: Round) -> float:
        """Constant."""
        return self.settings.alpha
