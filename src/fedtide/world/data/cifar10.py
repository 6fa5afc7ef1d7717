"""CIFAR-10."""

from typing import ClassVar, Literal

from pydantic import Field

from fedtide.world.data._cifar import Cifar, CifarSettings, Constants
from fedtide.world.storage.sources import Resource


class Cifar10(Cifar):
    """CIFAR-10: 50,000 + 10,000 color 32x32 photographs, 10 classes (Krizhevsky 2009).

    ``normalization``: ``default`` is that of the dynamic-initialization and DynamicFL papers, ``fedssg`` that of the
    FedSSG and FedWCM papers (and of the code base both build on).
    """

    class Settings(CifarSettings):
        name: str = "cifar10"
        normalization: Literal["default", "fedssg"] = Field("default", description="which mean and standard deviation")

    settings: Settings

    resources = (
        Resource(
            "cifar-10-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
            "md5:c58f30108f718f92721af3b95e74349a",
            alternatives=("cifar-10-batches-py.tar.xz", "cifar-10-batches-py.tar.gz"),
        ),
    )
    normalizations: ClassVar[dict[str, Constants]] = {
        "default": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        "fedssg": ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
    }
    train_batches = tuple(f"data_batch_{number}" for number in range(1, 6))
    test_batches = ("test_batch",)
    label_key = b"labels"
    num_classes = 10
