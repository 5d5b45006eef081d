"""Print the tests of what changed since main and in the work tree: ``make quick``.

A test module belongs to a change if it, or a module that it imports by name, was touched. A module that no test names,
such as a new repair method, is tested by those of its room that import from its package, the ones that name it most
first. Only the architecture is tested where nothing was touched.
"""

from __future__ import annotations

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
    """Return the test modules that import most of the files, those of their rooms first, or are among them."""
    paths = {str(path.relative_to(ROOT)): path for path in (ROOT / "tests").rglob("test_*.py")}
    texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items() if "promises" not in name}
    score = dict.fromkeys(files & texts.keys(), 100.0)
    for file in (name for name in files if name.startswith(("fairfix/", "tests/"))):
        room, own = f"tests/test_{Path(file).parts[1]}/", f"test_{Path(file).name}"
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        users = {name: 1.0 for name, text in texts.items() if f"from {module} import" in text}
        if not users and (package := module.rpartition(".")[0]):
            near = {name: text for name, text in texts.items() if name.startswith(room)}
            near = {name: text for name, text in near.items() if f"from {package} import" in text}
            users = {name: text.count(package) / 100 for name, text in near.items()}
        for name, hits in users.items():
            score[name] = score.get(name, 0) + hits + name.startswith(room) + name.endswith(f"/{own}")
    best = sorted(score, key=lambda name: (-score[name], name))[:MOST]
    return ["tests/test_architecture.py", *(name for name in best if "architecture" not in name)]


def main() -> None:
    """Print the paths."""
    print("\n".join(chosen({name for name in changed() if name.endswith(".py")})))


if __name__ == "__main__":
    main()
