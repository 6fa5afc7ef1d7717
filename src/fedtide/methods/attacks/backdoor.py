"""A patch that stands for a label."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.methods.attacks.base import Attack, AttackSettings
from fedtide.world.dataset import Dataset


class Backdoor(Attack):
    """Attackers put a bright patch on some of their images, label them as a target (Bagdasaryan et al. 2020), and scale."""

    class Settings(AttackSettings):
        name: str = "backdoor"
        target: int = Field(0, ge=0, description="target class of images with the patch")
        poisoned: float = Field(0.5, gt=0, le=1, description="share of an attacker's samples that get the patch")
        patch: int = Field(3, ge=1, description="side of the square patch, in pixels")
        place: Literal["top_left", "top_right", "bottom_left", "bottom_right"] = Field(
            "bottom_right", description="corner of the image"
        )
        factor: float = Field(1.0, gt=0, description="factor applied to the update; 1: sent as trained")

    settings: Settings

    @property
    def needs_classes(self) -> bool:
        return True

    @property
    def poisoned(self) -> float:
        return self.settings.poisoned

    @property
    def forges(self) -> bool:
        return self.settings.factor != 1.0

    def require(self, data: Dataset) -> None:
        target, patch, shape = self.settings.target, self.settings.patch, data.input_shape
        if data.kind != "image":
            raise SettingsError(f"attack backdoor requires images, but data {data.name} is {data.kind}")
        if target >= data.num_classes:
            raise SettingsError(f"attack.target = {target}: data {data.name} has classes 0 to {data.num_classes - 1}")
        if patch > min(shape[-2:]):
            size = " x ".join(map(str, shape[-2:]))
            raise SettingsError(f"attack.patch = {patch}: images of data {data.name} have {size} pixels")

    def forge(self, D: Tensor, honest: Tensor) -> Tensor:
        return self.settings.factor * D

    def labels(self, labels: Tensor, classes: int) -> Tensor:
        return torch.full_like(labels, self.settings.target)

    def inputs(self, inputs: Tensor, brightest: Tensor) -> Tensor:
        patched, side, place = inputs.clone(), self.settings.patch, self.settings.place
        rows = slice(side) if "top" in place else slice(-side, None)
        columns = slice(side) if "left" in place else slice(-side, None)
        patched[..., rows, columns] = brightest
        return patched
