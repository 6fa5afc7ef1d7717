"""torchvision's networks."""

from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import nn

from fedtide.core.errors import SettingsError, nearest, shortened
from fedtide.training.models._wrapped import WrappedModel, WrappedSettings


class Torchvision(WrappedModel):
    """Any of torchvision's classification networks, by name.

    Random weights, weights of your own (``weights``), or published ones (``pretrained``), which are looked for in torch's
    cache and never downloaded. Inputs are as the data come: they are not resized, and have the data's own normalization.
    """

    class Settings(WrappedSettings):
        name: str = "torchvision"
        architecture: str = Field("resnet18", description="name in torchvision.models, such as mobilenet_v3_small")
        pretrained: str | None = Field(
            None, description="published weights, such as IMAGENET1K_V1 or DEFAULT, from torch's cache; null: none"
        )

    settings: Settings

    @property
    def title(self) -> str:
        return f"model.architecture = {self.settings.architecture!r}"

    def libraries(self) -> dict[str, str]:
        import torchvision

        return {"torchvision": torchvision.__version__}

    def files(self) -> tuple[Path, ...]:
        """The weights; published ones have to be in torch's cache."""
        if self.settings.pretrained is None:
            return super().files()
        if self.settings.weights:
            raise SettingsError("model.pretrained and model.weights exclude each other; set one of them")
        url = self._published().url
        path = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
        if not path.is_file():
            missing = f"{path} is missing, and runs do not download files; download it from {url}"
            raise SettingsError(f"model.pretrained = {self.settings.pretrained!r}: {missing}")
        return (path,)

    def make(self, num_classes: int) -> nn.Module:
        from torchvision.models import get_model

        published = None if self.settings.pretrained is None else self._published()
        self._require_known()
        if published is not None:
            self.files()  # in the cache, so that nothing is downloaded
        classes = {} if published else {"num_classes": num_classes}
        try:
            module: nn.Module = get_model(
                self.settings.architecture, weights=published, progress=False, **{**classes, **self.settings.arguments}
            )
        except Exception as error:
            raise self.fault(error) from error
        return module

    def fault(self, error: BaseException) -> SettingsError:
        return SettingsError(f"{self.title}: {type(error).__name__}: {shortened(str(error))}")

    def _published(self) -> Any:
        from torchvision.models import get_model_weights

        self._require_known()
        known = get_model_weights(self.settings.architecture).__members__
        if self.settings.pretrained not in known:
            problem = f"model.pretrained: {self.settings.architecture} has no weights {self.settings.pretrained!r}"
            raise SettingsError(nearest(problem, str(self.settings.pretrained), known))
        return known[self.settings.pretrained]

    def _require_known(self) -> None:
        import torchvision.models

        known = torchvision.models.list_models(module=torchvision.models)
        if self.settings.architecture not in known:
            raise SettingsError(nearest(f"{self.title}: unknown", self.settings.architecture, known))
