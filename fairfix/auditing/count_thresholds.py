"""Counts at another decision threshold: decisions at an edge of the score bins follow exactly from the counts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fairfix.auditing.countfile import CountFile, Piece
from fairfix.data.counts import Grid, moved_bins
from fairfix.data.data_spec import DataSpec


def at_threshold(content: CountFile, threshold: float | None) -> CountFile:
    """Return counts at another decision threshold, if it is an edge of their score bins; otherwise as they are."""
    data_spec = content.data_spec
    if threshold is None or data_spec.threshold in (None, threshold):
        return content
    cuts = (threshold,)
    if not all(piece.grid is None or _has_edge(Grid(*piece.grid, cuts)) for piece in content.pieces):
        return content
    pieces = tuple(_recut(piece, data_spec, cuts) for piece in content.pieces)
    return replace(content, data_spec=replace(data_spec, thresholds=cuts), pieces=pieces)


def _has_edge(grid: Grid) -> bool:
    """Tell whether the threshold of a grid is the lower edge of one of its bins."""
    place = math.ldexp(grid.thresholds[0], grid.exponent)
    return place.is_integer() and grid.first <= place <= grid.last


def _recut(piece: Piece, data_spec: DataSpec, cuts: tuple[float, ...]) -> Piece:
    """Return a piece whose bins are cut at other thresholds, which are edges of its grid."""
    if piece.grid is None:
        return piece
    counts, grid = piece.counts(data_spec), Grid(*piece.grid, cuts)
    into = np.minimum(
        grid.index(counts.bins.edges[:-1].copy()), grid.size - 1
    )  # an empty bin may be above all
    tables = {"rows": counts.rows, "mass": counts.mass, "square_mass": counts.square_mass}
    moved: Any = {
        name: moved_bins(table, into, grid.size) for name, table in tables.items() if table is not None
    }
    return Piece.of(replace(counts, grid=grid, **moved))
