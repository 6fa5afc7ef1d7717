"""Lightning, imported without libraries for metrics of images and texts: they take longer than everything else.

Lightning imports torchmetrics, and this imports torchvision, transformers, matplotlib and ``scipy.signal`` wherever they are
installed. Code that computes its metrics with them imports torchmetrics before fedtide.
"""

import re
import sys

from lightning_utilities.core import imports

_UNUSED = ("matplotlib", "scipy", "torchvision", "transformers")
_Requirement, _available = imports.RequirementCache, imports.package_available


class _Used(_Requirement):
    def __bool__(self) -> bool:
        return not re.match("|".join(_UNUSED), self.requirement or "") and super().__bool__()


if "torchmetrics" not in sys.modules:
    imports.RequirementCache, imports.package_available = _Used, lambda name: name not in _UNUSED and _available(name)
try:
    from lightning import Callback, LightningModule, Trainer
finally:
    imports.RequirementCache, imports.package_available = _Requirement, _available

__all__ = ["Callback", "LightningModule", "Trainer"]
