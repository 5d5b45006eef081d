"""Train the scoring model of the sample data and write it: ``python sample_data/build_model.py OUT.joblib``.

With ``old`` behind the name it is the model before that one, which used race and sex.

The file is not committed, since a pickle is bound to the versions that wrote it. Prints ``sha256:...`` of the file,
which ``fairfix --trust-model`` asks for.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import joblib

from generate import BEFORE, FEATURES, fitted_model


def build(path: Path, old: bool) -> str:
    """Write the model and return the hash of the file."""
    joblib.dump(fitted_model(BEFORE if old else FEATURES), path)
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


if __name__ == "__main__":
    if sys.argv[2:] not in ([], ["old"]):
        sys.exit(f"usage: python {sys.argv[0]} OUT.joblib [old]")
    print(build(Path(sys.argv[1]), old=sys.argv[2:] == ["old"]))
