"""Candidates: the rows that exact distances between score distributions need, found from coarse to fine.

The first counts say which bins of the scores can hold a supremum. Of files, the rows of these bins are read. A
database first counts them in finer bins, by the columns of the groups that are compared. Where two groups of n rows are
alike, bins that hold a share p of their rows leave a share of about p^2 n of all rows, and bins h times finer h^2 times
fewer: soon few rows are left, and they alone are asked for. Rows in finer bins that cannot hold a supremum stand merged
at the end of their bin, where the distribution functions are known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fairfix.auditing.distances import View, candidate_bins, candidate_rows, median_bins
from fairfix.data.counts import Bools, Counts, Grid, Slice, groups_of_cells
from fairfix.data.files import Source
from fairfix.data.reading import Reading
from fairfix.data.scan import KEEP_ROWS, SORT_ROWS, KeptRows, collect

A_QUESTION = 1 / 50
"""A question looks at every row, which costs about what it costs to bring this share of them, in any database."""

ENTRIES = 1 << 20
"""An answer of finer bins has no more entries than this where that is possible, 30 MB."""


@dataclass(frozen=True)
class Candidates:
    """Rows sorted by score, and by columns those in which the others of their bins are merged."""

    rows: KeptRows
    merged: Mapping[tuple[str, ...], KeptRows] = field(default_factory=dict)

    def of(self, columns: tuple[str, ...]) -> KeptRows:
        """Return all rows of the candidate bins of the views of these columns, merged where nothing hangs on it."""
        return self.merged.get(columns, self.rows)


def candidates(
    source: Source | KeptRows,
    reading: Reading,
    counts: Counts,
    views: Mapping[tuple[str, ...], Sequence[View]],
) -> Candidates:
    """Return the rows that distances of the views and the pooled median need.

    They come from a source, or are among rows that are there; views are by the columns they look at.
    """
    assert counts.grid is not None
    every = {
        columns: np.any([candidate_bins(counts, one) for one in own], axis=0)
        for columns, own in views.items()
    }
    bins = median_bins(counts)
    if isinstance(source, KeptRows) or not source.answers:
        bins = np.any([bins, *every.values()], axis=0)
        if isinstance(source, KeptRows):
            return Candidates(source.take(bins[counts.grid.index(source.score)]).by_score())
        return Candidates(collect(source, reading, counts, bins).by_score())
    merged, narrowed = dict[tuple[str, ...], KeptRows](), list[tuple[tuple[str, ...], Slice]]()
    for columns, chosen in every.items():
        rows, last = _narrowed(source, reading, counts, columns, views[columns], _slice(counts, chosen))
        if rows is None:
            bins = bins | chosen
        else:
            merged[columns] = rows
            narrowed.append((columns, last))
    slices = [_slice(counts, bins), *(last for _, last in narrowed)]
    kept = source.collected(reading, counts, [one for one in slices if one.bins.size]).by_score()
    for columns, last in narrowed:
        own = kept.take(last.holds(kept.score))
        merged[columns] = KeptRows.joined([merged[columns], own]).by_score()
    return Candidates(kept, merged)


def _narrowed(
    source: Source,
    reading: Reading,
    counts: Counts,
    columns: tuple[str, ...],
    views: Sequence[View],
    last: Slice,
) -> tuple[KeptRows | None, Slice]:
    """Return the merged rows, None where no question was worth it, and the bins whose rows are still to be known."""
    rows, groups = None, len(groups_of_cells(counts.keys, counts.cells, columns)[0])
    before = 2 * last.rows
    while (finer := _finer(last, groups, before, counts.used)) is not None:
        answer = source.collected(reading, counts, [last], columns, finer)
        rows = answer if rows is None else KeptRows.joined([rows.take(~last.holds(rows.score)), answer])
        rows = rows.by_score()
        assert rows.rows is not None
        fresh = np.flatnonzero(last.holds(rows.score))
        chosen = np.any([candidate_rows(counts, view, rows) for view in views], axis=0)
        place = finer.index(rows.score[fresh])
        bins = np.unique(place[chosen[fresh]])
        before, last = last.rows, Slice(finer, bins, int(rows.rows[fresh][np.isin(place, bins)].sum()))
    return None if rows is None else rows.take(~last.holds(rows.score)), last


def _finer(last: Slice, groups: int, before: int, whole: int) -> Grid | None:
    """Return a grid that is worth a question; None where few rows are left, or ties keep them together.

    With 2^s finer bins in a bin the answer has ``groups * bins * 2^s`` entries and leaves ``rows / 4^s`` rows: their
    sum is least where ``8^s = 2 rows / (groups * bins)``.
    """
    few = max(SORT_ROWS, min(whole * A_QUESTION, KEEP_ROWS))
    if last.rows <= few or 2 * last.rows > before:
        return None
    entries = groups * last.bins.size
    steps = min(round(math.log2(2 * last.rows / entries) / 3), int(math.log2(max(ENTRIES / entries, 1))))
    finer = last.grid.finer(max(steps, 1))
    return None if finer == last.grid else finer


def _slice(counts: Counts, bins: Bools) -> Slice:
    assert counts.grid is not None
    return Slice(counts.grid, np.flatnonzero(bins), int(counts.rows[:, :, bins].sum()))
