"""Wrong training labels."""

from torch import Tensor

from fedtide.methods.attacks.base import Attack


class LabelFlip(Attack):
    """Attackers take class y of their training samples for L - 1 - y; what is tested has true labels."""

    @property
    def needs_classes(self) -> bool:
        return True

    def labels(self, labels: Tensor, classes: int) -> Tensor:
        return classes - 1 - labels
