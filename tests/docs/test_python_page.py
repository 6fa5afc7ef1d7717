"""The Python sessions that pages show: what is typed gives what is printed."""

import doctest
import re
import shlex

import pytest
from printed_commands import PAGES, blocks, files, script

from fedtide.core import plugins

TYPED = [name for name, text in PAGES.items() if re.search(r"^>>> ", text, re.MULTILINE)]


@pytest.mark.slow
@pytest.mark.parametrize("page", TYPED)
def test_python_sessions_give_what_is_printed(page, tmp_path, shared_data, fedtide, monkeypatch):
    text = PAGES[page]
    (tmp_path / "params.yaml").unlink()  # a page begins in an empty folder
    (tmp_path / "data").symlink_to(shared_data)
    monkeypatch.setenv("FEDTIDE_PLUGINS", str(tmp_path))
    for name, content in files(text).items():
        assert name.partition("/")[0] in plugins.KINDS
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    for line in script(text).replace("\\\n", "").splitlines():
        called = fedtide(*shlex.split(line)[1:])
        assert called.status == 0, called.err
    sessions = "\n".join(content for language, content in blocks(text) if language == "python" and ">>> " in content)
    shown = doctest.DocTestParser().get_doctest(sessions, {}, page, page, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    runner.run(shown, out=report.append)
    assert not runner.failures, "".join(report)
