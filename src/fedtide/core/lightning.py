"""Lightning, imported without libraries for metrics of images and texts: they take longer than everything else.

Lightning imports torchmetrics, and this imports torchvision, transformers, matplotlib and ``scipy.signal`` wherever they are
installed. Code that computes its metrics with them imports torchmetrics before fedtide.
"""

import re
import sys

from lightning_utilities.core import imports

_UNUSED = ("matplotlib", "scipy", "torchvision", "transformers")
_found = imports.package_available


class _Requirement(imports.RequirementCache):
    def __bool__(self) -> bool:
        return not re.match("|".join(_UNUSED), self.requirement or "") and super().__bool__()


def _available(package_name: str) -> bool:
    return package_name not in _UNUSED and _found(package_name)


_names = vars(imports)
_before = dict(_names)
if "torchmetrics" not in sys.modules:
    _names.update(RequirementCache=_Requirement, package_available=_available)
try:
    from lightning import Callback, LightningModule, Trainer
finally:
    _names.update(_before)

__all__ = ["Callback", "LightningModule", "Trainer"]
