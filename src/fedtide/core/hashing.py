"""Hashes of plain values."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(values: Any) -> str:
    """JSON with sorted keys and no spaces: equal values, equal text."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def short_hash(values: Any) -> str:
    """Twelve hex digits of a JSON-able value."""
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()[:12]
