"""Print the size of the house: ``python tests/house.py [PACKAGE]``.

Rooms are the packages and modules directly in the package; an arrow goes from one that imports to one that is imported;
a room stands one floor above the highest that it imports.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path


def rooms_below(package: Path) -> dict[str, set[str]]:
    """Return room -> rooms that it imports at run time, inside functions too."""
    below: dict[str, set[str]] = defaultdict(set)
    for path in package.rglob("*.py"):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                node.body = [ast.Pass()]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == package.name:
                below[room] |= {f"{node.module}.{alias.name}".split(".")[1] for alias in node.names}
    return {
        room: {other for other in others if other != room and not other.startswith("__")}
        for room, others in below.items()
        if not room.startswith("__")
    }


def main(package: Path) -> None:
    """Print rooms, floors, arrows, lines, and what is longest."""
    below = rooms_below(package)

    def floor(room: str) -> int:
        return 1 + max((floor(other) for other in below.get(room, ())), default=0)

    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in package.rglob("*.py")}
    classes = {
        f"{path.relative_to(package)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in lines
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    rooms = {*below, *(other for others in below.values() for other in others)}
    print(f"rooms {len(rooms)}, floors {max(map(floor, rooms))}, arrows {sum(map(len, below.values()))}")
    print(f"lines {sum(lines.values()):,} in {len(lines)} modules")
    for path in sorted(lines, key=lambda one: -lines[one])[:3]:
        print(f"  module {path.relative_to(package)} {lines[path]}")
    for name in sorted(classes, key=lambda one: -classes[one])[:3]:
        print(f"  class {name} {classes[name]}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "fairfix"))
