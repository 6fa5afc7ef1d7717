"""A network of the user's."""

import inspect
from pathlib import Path
from typing import Any

from pydantic import Field
from torch import nn

from fedtide.core.discovery.imports import fault_of, libraries, maker_of, own_files
from fedtide.core.errors import SettingsError
from fedtide.training.models._wrapped import WrappedModel, WrappedSettings

_CLASSES = ("num_classes", "n_classes", "classes", "num_labels", "num_outputs")
"""Names of a constructor's parameter that is the number of classes; the first of these that there is."""


class Module(WrappedModel):
    """Any ``torch.nn.Module``, by import path: ``path: my_package.nets:Net``.

    The path names a class, or a function that returns a module: one of the user's own, or a library's that is annotated so.
    Naming it in settings imports and calls it, which runs its code. It is found as Python finds modules (``PYTHONPATH``), and
    in the working directory. A parameter ``num_classes``, ``n_classes``, ``classes``, ``num_labels`` or ``num_outputs`` that is
    not among ``arguments`` gets the number of classes. ``forward`` maps samples [B, ...] to logits [B, L], or to a mapping or
    an object with ``logits``. The inputs of the ``head`` are the features that contrastive objectives compare. The source of
    the module and of what it imports, but for installed packages, is part of the run key, and so is the content of
    ``weights``; versions of packages are recorded.

    Dropout gets keyed masks; other draws in ``forward`` are refused, as are writes into the inputs, attributes that
    change from call to call, and Python that depends on values, which a trace would freeze. Of a ``LightningModule``
    only ``forward`` is used: the loss is the objective, the optimizer that of ``local``.
    """

    class Settings(WrappedSettings):
        name: str = "module"
        path: str = Field("my_package.nets:Net", description="MODULE:NAME of the class, or of a factory function")

    settings: Settings

    @property
    def title(self) -> str:
        return f"model.path = {self.settings.path!r}"

    def sources(self) -> dict[str, Path]:
        return own_files(self.settings.path, "model.path")

    def libraries(self) -> dict[str, str]:
        return libraries(self.settings.path, "model.path")

    def make(self, num_classes: int) -> nn.Module:
        maker = maker_of(self.settings.path, nn.Module, "model.path")
        arguments = dict(self.settings.arguments)
        counted = next((name for name in _CLASSES if name in _parameters(maker)), None)
        if counted is not None:
            arguments.setdefault(counted, num_classes)
        try:
            module = maker(**arguments)
        except Exception as error:
            raise self.fault(error) from error
        if not isinstance(module, nn.Module):
            raise SettingsError(f"{self.title}: should make a torch.nn.Module, got {type(module).__name__}")
        return module

    def fault(self, error: BaseException) -> SettingsError:
        return fault_of(error, self.settings.path, "model.path")


def _parameters(maker: Any) -> set[str]:
    try:
        return set(inspect.signature(maker).parameters)
    except (TypeError, ValueError):  # no signature
        return set()
