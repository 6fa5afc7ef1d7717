"""The description of the package: README.md, without its pictures and its links into the repository, which an index lacks."""

import re
from pathlib import Path

from setuptools import setup

text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
text = re.sub(r"!\[([^]]*)\]\((?!https?:)[^)]*\)", r"*(Figure, in the repository: \1.)*", text)
text = re.sub(r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", text)
setup(long_description=text, long_description_content_type="text/markdown")
