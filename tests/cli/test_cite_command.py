"""``fedtide cite``: BibTeX of the papers that docstrings name."""

import re
from pathlib import Path

from commands import Fedtide

SCAFFOLD = """@misc{karimireddy2020scaffold,
  author = {Karimireddy and others},
  title = {{SCAFFOLD: Stochastic Controlled Averaging for Federated Learning}},
  year = {2020},
  note = {scaffold in fedtide},
}
"""


def test_papers_are_printed_in_order_and_once(fedtide: Fedtide) -> None:
    called = fedtide("cite", "scaffold", "mifa", "scaffold", "local", "dynamic", "continuous", "fedgen")
    text = "\n".join(called.out)
    assert called.status == 0
    assert text.startswith(f"{SCAFFOLD}\n@misc{{gu2021mifa,\n")
    assert "\n}\n\n% local: no reference recorded\n\n@misc{chang2025dynamic," in text
    first = ["karimireddy2020scaffold", "gu2021mifa", "yan2020mifa", "chang2025dynamic"]
    assert re.findall(r"@misc\{(\w+),", text)[:4] == first
    assert "@misc{chang2025continuous" not in text  # the same paper as that of dynamic
    assert "author = {Zhu and Hong and Zhou}," in text


def test_a_users_method_is_cited_from_its_docstring(fedtide: Fedtide, own: Path) -> None:
    (own / "algorithms").mkdir(parents=True)
    (own / "algorithms" / "mine.py").write_text(
        'class Mine:\n    """Averages (Doe and O\'Neil-Smith 2031,\n    arXiv:3101.00001)."""\n'
    )
    assert fedtide("cite", "mine").out[:5] == [
        "@misc{doe2031mine,",
        "  author = {Doe and O'Neil-Smith},",
        "  year = {2031},",
        "  eprint = {3101.00001},",
        "  archivePrefix = {arXiv},",
    ]
