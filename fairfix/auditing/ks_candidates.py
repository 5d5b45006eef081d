"""Candidates: the rows that exact distances between score distributions need, found from coarse to fine.

The first counts say which bins of the scores can hold a supremum. Of files, the rows of these bins are read. Where
they are very many, and in a database, they are first counted in finer bins, by the columns of the groups that are
compared. Where two groups of n rows are alike, bins that hold a share p of their rows leave a share of about p^2 n of
all rows, and bins h times finer h^2 times fewer: soon few rows are left, and they alone are asked for. Rows in finer
bins that cannot hold a supremum stand merged
at the end of their bin, where the distribution functions are known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fairfix.auditing.distances import Partition, candidate_bins, candidate_rows, median_bins
from fairfix.data.counts import BinSlice, Bools, Counts, Grid, groups_of_cells
from fairfix.data.data_spec import DataSpec
from fairfix.data.files import Source
from fairfix.data.scan import KEEP_ROWS, SORT_ROWS, KeptRows
from fairfix.data.second_pass import MOST_SCORES

A_QUESTION = 1 / 50
"""A question looks at every row, which costs about what it costs to bring this share of them, in any database."""

ENTRIES = 1 << 19
"""An answer of finer bins has no more entries than this where that is possible, 15 MB."""

TIED = 4
"""Where bins that were cut in two so often still hold half of the rows, no further question is worth it."""


@dataclass(frozen=True)
class KsCandidates:
    """Rows sorted by score, and by columns those in which the others of their bins are merged."""

    rows: KeptRows
    merged: Mapping[tuple[str, ...], KeptRows] = field(default_factory=dict)

    def of(self, columns: tuple[str, ...]) -> KeptRows:
        """Return all rows of the candidate bins of the views of these columns, merged where nothing depends on it."""
        return self.merged.get(columns, self.rows)


def candidates(
    source: Source | KeptRows,
    data_spec: DataSpec,
    counts: Counts,
    views: Mapping[tuple[str, ...], Sequence[Partition]],
) -> KsCandidates:
    """Return the rows that distances of the views and the pooled median need.

    They come from a source, or are among rows that are there; views are by the columns they look at.
    """
    every = {
        columns: np.any([candidate_bins(counts, one) for one in own], axis=0)
        for columns, own in views.items()
    }
    bins = median_bins(counts)
    whole = np.any([bins, *every.values()], axis=0)
    if isinstance(source, KeptRows):
        return KsCandidates(source.take(source.in_bins(counts.bins, whole)).by_score())
    if not source.answers and (last := slice_of(counts, whole)).rows <= MOST_SCORES:
        return KsCandidates(source.collected(data_spec, counts, [last]).by_score())
    merged, narrowed = dict[tuple[str, ...], KeptRows](), list[tuple[tuple[str, ...], BinSlice]]()
    for columns, chosen in every.items():
        room = KEEP_ROWS // len(views)
        rows, last = _narrowed(
            source, data_spec, counts, columns, views[columns], slice_of(counts, chosen), room
        )
        if rows is None:
            bins = bins | chosen
        else:
            merged[columns] = rows
            narrowed.append((columns, last))
    slices = [slice_of(counts, bins), *(last for _, last in narrowed)]
    kept = source.collected(data_spec, counts, [one for one in slices if one.bins.size]).by_score()
    for columns, last in narrowed:
        own = kept.take(last.holds(kept.score))
        merged[columns] = KeptRows.joined([merged[columns], own]).by_score()
    return KsCandidates(kept, merged)


def _narrowed(
    source: Source,
    data_spec: DataSpec,
    counts: Counts,
    columns: tuple[str, ...],
    views: Sequence[Partition],
    last: BinSlice,
    room: int,
) -> tuple[KeptRows | None, BinSlice]:
    """Return the merged rows, None where no question was worth it, and the bins whose rows are still to be known.

    These have about ``room`` rows at the most, unless many are tied.
    """
    rows, groups = None, len(groups_of_cells(counts.keys, counts.cells, columns)[0])
    few = max(SORT_ROWS, min(int(counts.used * A_QUESTION), room))
    before = last  # the last bins that had twice the rows
    while last.rows > few:
        finer = _finer(last, groups)
        if finer == last.grid:
            break
        answer = source.collected(data_spec, counts, [last], columns, finer)
        rows = (answer if rows is None else KeptRows.joined([rows, answer])).by_score()
        del answer
        assert rows.rows is not None
        fresh = np.flatnonzero(last.holds(rows.score))
        chosen = np.any([candidate_rows(counts, view, rows) for view in views], axis=0)
        place = finer.index(rows.score[fresh])
        asked, bins = last, np.unique(place[chosen[fresh]])
        last = BinSlice(finer, bins, int(rows.rows[fresh][np.isin(place, bins)].sum()))
        rows = _thinned(counts, rows, last)
        if 2 * last.rows <= before.rows:
            before = last
        elif 2 * np.unique(place).size < 3 * asked.bins.size or finer.exponent - before.grid.exponent >= TIED:
            break  # cutting bins in two hardly parts their rows
    return rows, last


def _thinned(counts: Counts, rows: KeptRows, last: BinSlice) -> KeptRows:
    """Return sorted rows without those of a slice, merged as far as none of it, and no end of a bin, lies between.

    Each then stands for the rows of its group from the slice, or from the begin of the bin, up to its score.
    """
    held = last.holds(rows.score)
    between, rows = np.cumsum(held)[~held], rows.take(~held)
    if not rows.score.size:
        return rows
    place = counts.bins.index(rows.score)
    ends = np.append((place[1:] != place[:-1]) | (between[1:] != between[:-1]), True)
    top = rows.score[ends][np.cumsum(ends) - ends]
    return replace(rows, score=top).merged()


def _finer(last: BinSlice, groups: int) -> Grid:
    """Return a grid that is worth a question, which is finer where bins can be.

    With 2^s finer bins in a bin the answer has ``groups * bins * 2^s`` entries and leaves ``rows / 4^s`` rows: their
    sum is least where ``8^s = 2 rows / (groups * bins)``.
    """
    entries = groups * last.bins.size
    steps = min(round(math.log2(2 * last.rows / entries) / 3), int(math.log2(max(ENTRIES / entries, 1))))
    return last.grid.finer(max(steps, 1))


def slice_of(counts: Counts, bins: Bools) -> BinSlice:
    """Return the chosen bins of the counts' grid, with their rows."""
    return BinSlice(counts.bins, np.flatnonzero(bins), int(counts.rows[:, :, bins].sum()))
