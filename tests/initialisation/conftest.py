from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def unit() -> Any:
    """The golden file's direct cases of the dynamic initialiser's parts."""
    file = Path(__file__).parents[1] / "golden" / "sessions.json"
    return json.loads(file.read_text(encoding="utf-8"))["unit"]
