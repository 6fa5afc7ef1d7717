"""Files in the JSON format of the LEAF benchmark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from fedtide.core.errors import SettingsError


class User(BaseModel):
    """What a file holds of one user: inputs ``x`` and labels ``y``."""

    x: list[Any]
    y: list[int | float | str]

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        if len(self.x) != len(self.y):
            raise ValueError(f"{len(self.x)} x and {len(self.y)} y; both must be equal")
        return self


class _File(BaseModel):
    users: list[Annotated[str, Field(pattern=r"\S")]]
    user_data: dict[str, User]

    @model_validator(mode="after")
    def _known_users(self) -> Self:
        if len(set(self.users) & self.user_data.keys()) < len(self.users):
            raise ValueError("users has a name twice, or one that user_data has not")
        return self


def read_users(paths: Sequence[Path]) -> list[tuple[Path, str, User]]:
    """File, name and samples of the users that have samples, in the order of the files, as LEAF's own scripts write them."""
    found: list[tuple[Path, str, User]] = []
    for path in paths:
        try:
            content = _File.model_validate(json.loads(path.read_bytes()))
        except ValidationError as error:
            first = error.errors()[0]
            problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise SettingsError(f"{path}: not a LEAF file ({problem}); replace it") from None
        except (OSError, ValueError) as error:
            raise SettingsError(f"{path}: not a LEAF file ({' '.join(str(error).split())}); replace it") from None
        found += [(path, name, content.user_data[name]) for name in content.users if content.user_data[name].y]
    return found
