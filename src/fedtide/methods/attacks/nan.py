"""Updates that are no numbers."""

import torch
from torch import Tensor

from fedtide.methods.attacks.base import Attack


class NotANumber(Attack):
    """Attackers send updates of NaN, as broken devices may; the run diverges unless a rule leaves them out."""

    finite = False

    def forge(self, D: Tensor, honest: Tensor) -> Tensor:
        return torch.full_like(D, torch.nan)
