"""Merge: saved counts added up, for one audit of many files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from fairfix.auditing.countfile import CountFile, merged, repeated
from fairfix.errors import FairfixWarning, UsageError


def merge(counts: Sequence[str | CountFile], name: str | None = None) -> CountFile:
    """Add up counts; ``fairfix.audit(from_counts=...)`` audits the sum as the data together, in the order given.

    Parameters
    ----------
    counts
        Files of counts, or the counts themselves, taken with alike columns, threshold and policies.
    name
        What reports call the data; by default the names of its files.

    Raises
    ------
    UsageError, DataError, ArtifactError
        A file is named twice or damaged, or two were not counted alike.
    """
    seen: set[Path] = set()
    for path in counts:
        if isinstance(path, CountFile):
            continue
        if (where := Path(path).resolve()) in seen:
            raise UsageError(f"{path} is named twice; its rows would be counted twice")
        seen.add(where)
    files = [(c.name, c) if isinstance(c, CountFile) else (str(c), CountFile.load(c)) for c in counts]
    if twins := repeated(files):
        twice = f"{' and '.join(twins)} contain identical counts; were the same rows counted twice?"
        warnings.warn(FairfixWarning(twice, "same_counts"), stacklevel=2)
    return merged(files, name)
