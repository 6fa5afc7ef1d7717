"""CIFAR-100."""

from typing import ClassVar, Literal

from pydantic import Field

from fedtide.world.data._cifar import Cifar, CifarSettings, Constants
from fedtide.world.storage.sources import Resource


class Cifar100(Cifar):
    """CIFAR-100: 50,000 + 10,000 color 32x32 photographs, 100 classes (Krizhevsky 2009).

    ``normalization``: ``default`` is that of the dynamic-initialization paper, ``dynamicfl`` that of the DynamicFL
    paper (one digit apart), ``fedssg`` that of the FedSSG and FedWCM papers.
    """

    class Settings(CifarSettings):
        name: str = "cifar100"
        normalization: Literal["default", "dynamicfl", "fedssg"] = Field(
            "default", description="which mean and standard deviation"
        )

    settings: Settings

    resources = (
        Resource(
            "cifar-100-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
            "md5:eb9058c3a382ffc7106e4002c42a8d85",
            alternatives=("cifar-100-python.tar.xz",),
        ),
    )
    normalizations: ClassVar[dict[str, Constants]] = {
        "default": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)),
        "dynamicfl": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
        "fedssg": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    }
    train_batches = ("train",)
    test_batches = ("test",)
    label_key = b"fine_labels"
    num_classes = 100
