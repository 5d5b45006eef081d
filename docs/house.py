"""Print the size of the house: ``python docs/house.py [PACKAGE]``.

Rooms are the packages and modules directly in the package; an arrow goes from one that imports to one that is imported;
a room stands one floor above the highest that it imports.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path


def imports_of(path: Path) -> set[str]:
    """Return the dotted names that a module imports when it runs, inside functions too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = [ast.Pass()]
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def room_of(path: Path, package: Path) -> str:
    """Return the room of a module: the first part of its path."""
    return path.relative_to(package).parts[0].removesuffix(".py")


@cache  # every module is parsed, which takes a second
def rooms_below(package: Path) -> dict[str, set[str]]:
    """Return room -> other rooms that it imports; those with the fewest floors below them first."""
    below: dict[str, set[str]] = defaultdict(set)
    for path in package.rglob("*.py"):
        names = [name.split(".")[1] for name in imports_of(path) if name.startswith(f"{package.name}.")]
        room = room_of(path, package)
        if not room.startswith("__"):
            below[room] |= {name for name in names if not name.startswith("__")} - {room}
    return {room: below[room] for room in sorted(below, key=lambda one: (floor_of(one, below), one))}


def floor_of(room: str, below: Mapping[str, set[str]]) -> int:
    """Return one more than the floor of the highest room that it imports."""
    return 1 + max((floor_of(other, below) for other in below.get(room, ())), default=0)


def main(package: Path) -> None:
    """Print rooms, floors, arrows, lines, and what is longest."""
    below = rooms_below(package)
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in package.rglob("*.py")}
    classes = {
        f"{path.relative_to(package)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in lines
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    floors = max(floor_of(room, below) for room in below)
    print(f"rooms {len(below)}, floors {floors}, arrows {sum(map(len, below.values()))}")
    print(f"lines {sum(lines.values()):,} in {len(lines)} modules")
    for path in sorted(lines, key=lambda one: -lines[one])[:3]:
        print(f"  module {path.relative_to(package)} {lines[path]}")
    for name in sorted(classes, key=lambda one: -classes[one])[:3]:
        print(f"  class {name} {classes[name]}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "fairfix"))
