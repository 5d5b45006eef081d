"""Prints every sentence that the package can print, with its place: ``python docs/sentences.py [WORD]``.

Sentences are written where their numbers are, so mypy checks what they are filled with. A review of the language reads
them here, in one list. Values that a sentence is filled with are shown as X.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "fairfix"
WORDS = 4
"""Least words of a sentence."""
WORD = re.compile(r"(?<!\S)[A-Za-z']{2,}[,.;:]?(?!\S)")


def text_of(node: ast.AST) -> str | None:
    """Return a text of the code with X for each value in it; None where the node is none."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each sentence of a module, without docstrings and markup."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    apart: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            apart.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            apart.update(part for part in ast.walk(node) if part is not node)
    for node in ast.walk(tree):
        text = None if node in apart else text_of(node)
        if text is not None and len(WORD.findall(text)) >= WORDS and "<" not in text[:20]:
            yield node.lineno, " ".join(text.split())  # type: ignore[attr-defined]  # every text has a line


def places() -> dict[str, list[str]]:
    """Return every sentence with the places at which it is written."""
    out: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for line, text in sentences(path):
            out.setdefault(text, []).append(f"{path.relative_to(PACKAGE.parent)}:{line}")
    return out


if __name__ == "__main__":
    word = sys.argv[1].lower() if len(sys.argv) > 1 else ""
    for text, where in places().items():
        if word in text.lower():
            print(f"{where[0]}: {text}")
