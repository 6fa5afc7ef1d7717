"""Settings files to begin with."""

import re

from fedtide.core.discovery.shipped import DEFAULTS, SHIPPED
from fedtide.core.storage.files import read_text

TEMPLATES = {"sessions": DEFAULTS} | {
    name: SHIPPED / "templates" / f"{name}.yaml" for name in ("own-table", "long-tail", "drift", "flights")
}
"""Files by name; all have the same groups, which the pipeline depends on."""


def template(name: str) -> str:
    """The text of a template."""
    return read_text(TEMPLATES[name])


def replaced(text: str, group: str, lines: list[str]) -> str:
    """A settings file with other lines for a group, the block of a top-level key."""
    block = re.compile(rf"^{group}:.*\n(?:[ ]+.*\n)*", re.MULTILINE)
    return block.sub(lambda _: "".join(f"{line}\n" for line in lines), text, count=1)
