"""Sphinx configuration: ``make docs`` builds the site offline and treats warnings as errors."""

import os
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE / "_ext")]
os.environ.pop("FEDTIDE_PLUGINS", None)  # the site describes what ships with fedtide

project = "fedtide"
author = "The fedtide authors"
project_copyright = "2026, The fedtide authors"
version = release = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "generated"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["attrs_block", "deflist"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"fedtide {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
