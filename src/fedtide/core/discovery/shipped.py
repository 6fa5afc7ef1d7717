"""Files that come with the package: the default experiment, templates, published tables, the pipeline.

In the project they are links to its own files, so that there is one of each.
"""

from pathlib import Path

SHIPPED = Path(__file__).parents[2] / "shipped"

TIDE = SHIPPED / "tide"
"""The suite Tide-2."""

DEFAULTS = SHIPPED / "params.yaml"
"""The default experiment."""
