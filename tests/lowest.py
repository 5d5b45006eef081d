"""Print the lowest version of every dependency that pyproject.toml allows, as constraints for pip."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"

if __name__ == "__main__":
    for line in tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]:
        name, _, version = line.partition(">=")
        assert re.fullmatch(r"[\d.]+", version), (
            f"{line}: a dependency has a lowest version, and nothing else"
        )
        print(f"{name}=={version}")
