"""Train the scoring model of the sample data and write it: ``python sample_data/build_model.py OUT.joblib``.

The file is not committed, since a pickle is bound to the versions that wrote it. Prints ``sha256:...`` of the file,
which ``fairfix --trust-model`` asks for.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import joblib

from generate import fitted_model


def build(path: Path) -> str:
    """Write the model and return the hash of the file."""
    joblib.dump(fitted_model(), path)
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} OUT.joblib")
    print(build(Path(sys.argv[1])))
