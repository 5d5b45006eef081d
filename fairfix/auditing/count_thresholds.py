"""Counts at another decision threshold: decisions at an edge of the score bins follow exactly from the counts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fairfix.auditing.countfile import CountFile, Piece
from fairfix.data.binned import decided_by_bins
from fairfix.data.counts import Grid, moved_bins
from fairfix.data.cutoffs import GroupThresholds
from fairfix.data.data_spec import DataSpec


def at_threshold(content: CountFile, threshold: float | GroupThresholds | None) -> CountFile:
    """Return counts at other decision thresholds, if these are edges of their score bins; otherwise as they are."""
    data_spec, columns = content.data_spec, content.data_spec.columns
    decided = columns.decision
    if threshold is None or decided or threshold in (data_spec.threshold, data_spec.group_thresholds):
        return content
    if isinstance(threshold, GroupThresholds):
        asked = data_spec.with_group_thresholds(threshold)
        asked.check()
    elif data_spec.group_thresholds is None and data_spec.threshold is None:
        return content
    else:
        asked = replace(data_spec.of_one_threshold, thresholds=(threshold,))
    grids = [Grid(*piece.grid, tuple(sorted(asked.thresholds))) for piece in content.pieces if piece.grid]
    if not all(_has_edges(grid, data_spec.thresholds) for grid in grids):
        return content
    return replace(
        content, data_spec=asked, pieces=tuple(_recut(one, data_spec, asked) for one in content.pieces)
    )


def _has_edges(grid: Grid, edges: tuple[float, ...]) -> bool:
    """Tell whether each threshold of a grid is the lower edge of one of its bins, or one of further edges."""
    places = (math.ldexp(cut, grid.exponent) for cut in grid.thresholds if cut not in edges)
    return all(place.is_integer() and grid.first <= place <= grid.last for place in places)


def _recut(piece: Piece, data_spec: DataSpec, asked: DataSpec) -> Piece:
    """Return a piece whose bins are cut at other thresholds, which are edges of its grid."""
    if piece.grid is None:
        return piece
    counts, grid = piece.counts(data_spec), Grid(*piece.grid, tuple(sorted(set(asked.thresholds))))
    into = np.minimum(
        grid.index(counts.bins.edges[:-1].copy()), grid.size - 1
    )  # an empty bin may be above all
    tables = {"rows": counts.rows, "mass": counts.mass, "square_mass": counts.square_mass}
    moved: Any = {
        name: moved_bins(table, into, grid.size) for name, table in tables.items() if table is not None
    }
    counts = replace(counts, grid=grid, decisions=None, **moved)
    return Piece.of(counts if asked.group_thresholds is None else decided_by_bins(counts, asked))
