"""What the papers print, from one table: ``published.csv``.

A line is one number: the page of docs/papers/ that it belongs to, the table of the paper, row and column there, the
number as printed, page and line of the paper, and whether it was *copied* from the paper or is *recalled*. Page and
line are blank where they were not noted.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".csv")
ORIGINS = ("copied", "recalled")


@dataclass(frozen=True)
class Figure:
    """A printed number."""

    paper: str
    place: str
    row: str
    column: str
    value: str
    page: str
    line: str
    origin: str

    def __float__(self) -> float:
        """Return the number."""
        return float(self.value)


@cache
def published(paper: str, place: str = "") -> tuple[Figure, ...]:
    """Return the figures of a paper, or of one of its tables, in the order of the file."""
    with FILE.open(encoding="utf-8", newline="") as file:
        every = [Figure(**line) for line in csv.DictReader(file)]
    return tuple(one for one in every if one.paper == paper and place in ("", one.place))


def row_of(paper: str, place: str, row: str) -> dict[str, Figure]:
    """Return the figures of a row by their columns.

    Raises
    ------
    KeyError
        No figure of the row is known.
    """
    found = {one.column: one for one in published(paper, place) if one.row == row}
    if not found:
        raise KeyError(f"{paper}, {place}: no row {row}")
    return found
