import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def golden() -> Any:
    """The golden file of sessions; its ``unit`` holds direct cases of the dynamic initializer's parts."""
    file = Path(__file__).parents[1] / "golden" / "sessions.json"
    return json.loads(file.read_text(encoding="utf-8"))
