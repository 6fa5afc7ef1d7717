"""Every message of the package, one per line, to be read in one go: ``python tests/messages.py``.

Errors, warnings, log lines and help texts, as they stand in the source, with expressions in braces.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src/fedtide"
SPEAKING = {
    *(
        "SettingsError",
        "PluginCrash",
        "refuse",
        "log",
        "warning",
        "info",
        "error",
        "remark",
        "Option",
        "Argument",
        "Field",
    ),
    *("Tunable", "echo", "print"),
}


def text(node: ast.expr) -> str:
    """The words of a string, a formatted string or a sum of them; empty if there are none."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(text(part) for part in values)
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return text(left) + text(right)
    return ""


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Line and words of each message in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for value in [*node.args, *(keyword.value for keyword in node.keywords)] if name in SPEAKING else ():
                if " " in (words := text(value)):
                    yield value.lineno, " ".join(words.split())


if __name__ == "__main__":
    for file in sorted(SOURCE.rglob("*.py")):
        for line, words in sorted(messages(file)):
            print(f"{file.relative_to(SOURCE)}:{line}: {words}")
