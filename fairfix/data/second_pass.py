"""The second pass: the rows of a few bins, which exact distances between score distributions need, read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairfix.data.counts import BinSlice, Bools, Counts, Floats, Grid, groups_of_cells
from fairfix.data.data_spec import DataSpec
from fairfix.data.encoder import Encoder, arrow_array, numbers
from fairfix.data.files import Source, SourcePart
from fairfix.data.scan import KEEP_ROWS, KeptRows, column_types
from fairfix.errors import DataError

MOST_SCORES = 1 << 22
"""Largest number of different scores by cell held for exact distances, some 500 MB while they are merged."""

SAMPLE = 1 << 14
"""Scores that tell whether many are tied; one of about a hundred rows each."""


def collect(
    source: Source,
    data_spec: DataSpec,
    counts: Counts,
    slices: Sequence[BinSlice],
    columns: tuple[str, ...] | None = None,
    finer: Grid | None = None,
) -> KeptRows:
    """Return the rows in slices of the scores, read again, as :meth:`fairfix.data.files.Source.collected` does.

    The reading is that of the scan. Rows of one score and cell are merged into one weighted row when there are many,
    so heavy ties cost no memory; a DataError where too many are left.
    """
    name = data_spec.columns.score
    assert name is not None
    keys = counts.keys if columns is None else columns
    levels, level = groups_of_cells(counts.keys, counts.cells, keys)
    first = np.unique(level, return_index=True)[1].astype(np.int32)
    complete = not any(counts.excluded.values())
    if complete:
        data_spec = by_scores(data_spec, columns)

    def held(score: Floats) -> Bools:
        inside: Bools = np.logical_or.reduce([one.holds(score) for one in slices])
        return inside

    def chosen(part: SourcePart) -> Iterator[KeptRows]:
        encoder = Encoder(data_spec, part.where, part.first_row)
        for whole in part.batches():
            batch = whole
            if complete:
                batch = whole.filter(arrow_array(held(numbers(whole.column(name), name, "score"))))
            rows = encoder.encode(batch)
            assert rows.score is not None
            _, into = groups_of_cells(data_spec.columns.cell_keys, encoder.cells, keys, levels)
            square = None if rows.weight is None else rows.weight**2
            cells: Any = first[into[rows.cell]]
            kept = KeptRows(rows.score, cells, None, rows.weight, square)
            if not complete:
                kept = kept.take(held(kept.score))
            if finer is not None:
                top, each = finer.tops(finer.index(kept.score)), np.ones(kept.score.size, dtype=np.int64)
                kept = replace(kept, score=top, rows=each)
            yield kept

    def gather(part: SourcePart) -> KeptRows:
        return _gathered(chosen(part), source.name)

    parts = source.parts(data_spec.columns.counted, column_types(data_spec, source))
    rows = _gathered(source.workers.each(parts, gather), source.name)
    return rows if finer is None or not rows.score.size else rows.merged()


def by_scores(data_spec: DataSpec, columns: tuple[str, ...] | None) -> DataSpec:
    """Return the reading of rows that the scores alone choose, since no row was left out: labels are not needed."""
    own = replace(data_spec.columns, label=None, prediction=None, probability=None)
    own = own if columns is None else replace(own, strata=(), protected=columns)
    return replace(data_spec.of_one_threshold, columns=own)


def _gathered(pieces: Iterable[KeptRows], where: str) -> KeptRows:
    """Return the rows of all pieces, merged when they are many: late if few of them are tied."""
    chosen, size, room = list[KeptRows](), 0, KEEP_ROWS
    for piece in pieces:
        chosen.append(piece)
        size += piece.score.size
        if size <= room:
            continue
        chosen = [KeptRows.joined(chosen)]
        sample = chosen[0].score[:: max(1, size // SAMPLE)]
        if room < MOST_SCORES and np.unique(sample).size > 0.9 * sample.size:
            room = MOST_SCORES
            continue
        chosen = [chosen[0].merged()]
        size = chosen[0].score.size
        if size > MOST_SCORES:
            raise DataError(
                f"{where}: exact distances of the scores need more than {MOST_SCORES:,} rows of other scores in "
                "memory; use counts, for bounds of them: 'fairfix count'"
            )
        room = min(max(KEEP_ROWS, 2 * size), MOST_SCORES + KEEP_ROWS)  # where little is tied, merge seldom
    return KeptRows.joined(chosen)
