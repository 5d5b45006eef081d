"""Count the small errors that the tests find: ``make mutants``.

Each mutant is a copy of the package with one error in it: a comparison, an operator, a condition or a number that is
changed. Mutants are drawn with a seed. The tests that import the changed module run until one fails, then the tests of
its room, but for slow ones. The line of a mutant that survives is printed.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.changed import ROOT, chosen

LIMIT = 600
"""CPU seconds after which a mutant is stopped as one that never ends, which counts as found."""

OPERATORS: dict[type[ast.AST], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.And: "or",
    ast.Or: "and",
}
"""Operator -> the one that takes its place."""


@dataclass(frozen=True)
class Mutant:
    """An error: the text from ``start`` to ``end``, in bytes of the file, is replaced."""

    path: Path
    line: int
    start: int
    end: int
    text: str

    def write(self, folder: Path) -> None:
        """Put it into a copy of the checkout."""
        content = self.path.read_bytes()
        place = folder / self.path.relative_to(ROOT)
        place.write_bytes(content[: self.start] + self.text.encode() + content[self.end :])

    def __str__(self) -> str:
        old = self.path.read_bytes()[self.start : self.end].decode()
        return f"{self.path.relative_to(ROOT)}:{self.line}  {old}  ->  {self.text}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every error that a module may get; annotations and messages of errors get none."""
    content = path.read_bytes()
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    def visit(node: ast.AST) -> Iterator[Mutant]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "exc", "msg", "bases", "decorator_list", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from changed(child)
                    yield from visit(child)

    def changed(node: ast.AST) -> Iterator[Mutant]:
        pairs: list[tuple[ast.expr, ast.AST, ast.expr]] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            pairs = list(zip(sides, node.ops, sides[1:], strict=False))
        elif isinstance(node, ast.BinOp):
            pairs = [(node.left, node.op, node.right)]
        elif isinstance(node, ast.BoolOp):
            pairs = [(one, node.op, two) for one, two in zip(node.values, node.values[1:], strict=False)]
        for left, operator, right in pairs:
            text = OPERATORS.get(type(operator))
            strings = any(isinstance(one, ast.Constant | ast.JoinedStr) for one in (left, right))
            if text is None or (isinstance(operator, ast.Add | ast.Mult) and strings):
                continue
            start = at(left.end_lineno or 0, left.end_col_offset or 0)
            end = at(right.lineno, right.col_offset)
            between = content[start:end].decode()
            if not between.strip(" \n").isascii() or any(sign in between for sign in "()#"):
                continue
            yield Mutant(path, right.lineno, start, end, f" {text} ")
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            test = node.test
            start, end = (
                at(test.lineno, test.col_offset),
                at(test.end_lineno or 0, test.end_col_offset or 0),
            )
            yield Mutant(path, test.lineno, start, end, f"not ({content[start:end].decode()})")
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            start = at(node.lineno, node.col_offset)
            end = at(node.end_lineno or 0, node.end_col_offset or 0)
            yield Mutant(path, node.lineno, start, end, f"({content[start:end].decode()} + 1)")

    yield from visit(ast.parse(content))


def drawn(many: int, seed: int) -> list[Mutant]:
    """Return mutants of all rooms, as many of each as it has places for errors."""
    every = [one for path in sorted((ROOT / "fairfix").rglob("*.py")) for one in mutants_of(path)]
    return random.Random(seed).sample(every, many)


def is_found(mutant: Mutant, folder: Path) -> bool:
    """Return whether a test of its module or its room fails with it, in a copy of the checkout."""
    mutant.write(folder)
    name = mutant.path.relative_to(ROOT)
    room = folder / "tests" / f"test_{name.parts[1].removesuffix('.py')}"
    first = chosen({str(name)})[1:]  # without the test of the architecture
    rest = [str(room), *(f"--ignore={folder / one}" for one in first)]
    try:
        return any(fails(tests, folder) for tests in (first, rest if room.exists() else []) if tests)
    finally:
        shutil.copyfile(mutant.path, folder / name)


def fails(tests: list[str], folder: Path) -> bool:
    """Return whether one of the tests fails, or they do not end."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
    paths = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *tests],
        cwd=folder,
        env=os.environ | paths,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT)),  # no threads here
        check=False,
    )
    return done.returncode not in (0, 5)  # 5: there is none that is not slow


def main() -> None:
    """Print what survives, and the share that is found by room."""
    options = argparse.ArgumentParser()
    options.add_argument("many", type=int)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    found, every, began = Counter[str](), Counter[str](), time.monotonic()
    with TemporaryDirectory() as name:
        folder = Path(name)
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for file in filter(None, files.decode().split("\0")):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, folder / file)
        for mutant in drawn(given.many, given.seed):
            room = mutant.path.relative_to(ROOT).parts[1].removesuffix(".py")
            every[room] += 1
            if is_found(mutant, folder):
                found[room] += 1
            else:
                print(f"survives: {mutant}", flush=True)
    for room in sorted(every):
        print(f"{room:12} {found[room]:3} of {every[room]:3}")
    minutes = (time.monotonic() - began) / 60
    print(f"found {found.total()} of {every.total()} with seed {given.seed}, in {minutes:.0f} minutes")


if __name__ == "__main__":
    main()
