"""A method that takes part: a file of settings, one that comes with the suite, or an algorithm by its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from fedtide.core import plugins
from fedtide.core.discovery.shipped import TIDE
from fedtide.core.errors import SettingsError, nearest
from fedtide.core.plugins import SettingsModel
from fedtide.settings.params import Params, parse
from fedtide.settings.reading.overrides import apply_overrides
from fedtide.settings.reading.yaml_files import read_mapping
from fedtide.settings.run import plain_name
from fedtide.studies.tide.suite import REFERENCE_LINES, World, refuse_other_world

METHOD_FILE = "method.yaml"

RATES = [0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
"""Learning rates that are searched for every method, so that none has fewer because it has a parameter of its own."""


class MethodSettings(SettingsModel):
    """A method's file."""

    algorithm: dict[str, Any] = Field(
        description="as an entry of `algorithms`: name, settings, `with` for others of a run"
    )
    initializer: dict[str, Any] = Field({"name": "previous"}, description="as an entry of `initializers`")
    space: dict[str, Any] = Field(
        default_factory=dict,
        description="what is searched beside six learning rates, as `tune.space`: a grid, of which the trials are a part; a "
        "method that names `local.lr` has its own rates",
    )


@dataclass(frozen=True)
class Method:
    """A method.

    Attributes:
        name: of its row on the board, and of its folder. settings: its file.
    """

    name: str
    settings: MethodSettings

    @staticmethod
    def of(given: str, folder: Path = TIDE) -> Method:
        """The method of a file, by its path; of the suite, by name; or an algorithm with its defaults, or a reference, by name.

        Raises:
            SettingsError: there is none, or its file is not one.
        """
        shipped = {path.stem: path for path in sorted((folder / "methods").glob("*.yaml"))}
        path = Path(given) if given.endswith((".yaml", ".yml")) else shipped.get(given)
        if path is not None:
            if not path.is_file():
                raise SettingsError(f"no method file {path}")
            name = path.parent.name if path.name == METHOD_FILE else path.stem
            if name in REFERENCE_LINES:
                raise SettingsError(f"{path}: {name} is a reference of the suite; rename the method")
            return Method(plain_name(name), parse(MethodSettings, read_mapping(path), path.name))
        if given not in (algorithms := [*plugins.names("algorithms"), *REFERENCE_LINES]):
            raise SettingsError(nearest(f"no method {given!r}, and not a .yaml file", given, {*shipped, *algorithms}))
        return Method(given, MethodSettings(algorithm={"name": given}))

    def params(self, world: World, overrides: list[str] | None = None) -> Params:
        """Settings of its search and its runs in a world; a reference's own may belong to the world.

        Raises:
            SettingsError: they are not valid, or set what belongs to the world.
        """
        algorithm, initializer, label = self.settings.algorithm, self.settings.initializer, self.name
        line = label in REFERENCE_LINES
        start = str(initializer.get("name", "previous"))
        raw = world.with_method(
            {
                "algorithms": {} if line else {label: {"name": label, **algorithm}},
                "initializers": {start: initializer},
                "algorithm": {"name": label},
                "initializer": {"name": start},
                "compare": {"algorithms": [label], "initializers": [start]},
                "tune": {"space": {"local.lr": {"choices": RATES}} | self.settings.space},
                "tracking": {"mlflow": False},
            }
        )
        apply_overrides(raw, overrides or ())
        params = Params(raw, f"method {label} in world {world.name}")
        if not line:
            refuse_other_world(params.run(), world.params.run(), params.source)
        return params


def frame(method: str, world: World) -> Params:
    """The world as a method has to leave it: its own settings, and those of a reference."""
    return Method.of(method).params(world) if method in REFERENCE_LINES else world.params
