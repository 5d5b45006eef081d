"""Print the tests of what changed since main and in the work tree: ``make quick``.

A test module belongs to a change if it, or a module that it imports by name, was touched. Only the architecture is
tested where nothing was.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 12
"""Test modules that are run at most: the ones that name most of what changed."""


def changed() -> set[str]:
    """Return the files that differ from the main branch, here or where the clone is from, or are not committed."""
    new = lines("ls-files", "--others", "--exclude-standard")
    return new | (
        lines("diff", "--name-only", "--merge-base", "main")
        or lines("diff", "--name-only", "--merge-base", "origin/main")
    )


def lines(*command: str) -> set[str]:
    """Return the lines that git prints; none where it fails, as for a branch that a clone has not."""
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    return set(done.stdout.splitlines())


def chosen(files: set[str]) -> list[str]:
    """Return the test modules that import most of the files, or are among them."""
    names = {
        re.escape(name.removesuffix(".py").replace("/", "."))
        for name in files
        if name.startswith(("fairfix/", "tests/")) and not name.endswith("__init__.py")
    }
    score = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        hits = sum(bool(re.search(rf"from {one} import", text)) for one in names) + 100 * (name in files)
        if hits and "promises" not in name:
            score[name] = hits
    best = sorted(score, key=lambda name: (-score[name], name))[:MOST]
    return ["tests/test_architecture.py", *(name for name in best if "architecture" not in name)]


def main() -> None:
    """Print the paths."""
    print("\n".join(chosen({name for name in changed() if name.endswith(".py")})))


if __name__ == "__main__":
    main()
