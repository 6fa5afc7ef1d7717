"""Fashion-MNIST."""

from fedtide.world.data.mnist import Mnist, idx_resources


class FashionMnist(Mnist):
    """Fashion-MNIST: 60,000 + 10,000 greyscale 28x28 images of clothing, 10 classes (Xiao et al. 2017)."""

    class Settings(Mnist.Settings):
        name: str = "fashion_mnist"

    settings: Settings

    resources = idx_resources(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    )
    mean = 0.2861
    std = 0.3530
