"""Counts that disclose less than the rows (without small cells, or with noise in every count), and their audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from fairfix.auditing.audit import judge
from fairfix.auditing.countfile import CountFile, Piece, count, has_range
from fairfix.auditing.results import Settings, with_data
from fairfix.auditing.sufficient_statistics import confusion
from fairfix.auditing.suppression import require_some, shown_cells, shown_rows, tables_of
from fairfix.data.counts import Counts, check_cells
from fairfix.data.data_spec import DataSpec
from fairfix.data.files import open_source
from fairfix.data.scan import Scan, check_whole
from fairfix.errors import UsageError
from fairfix.schema.audit import Audit
from fairfix.stats.geometric_noise import Below, two_sided_geometric

SUPPRESSED = "in groups too small to show, at most"
"""Reason why rows of small cells are not in a file. Their number is the largest possible one, so it reveals no size."""


def count_shown(data: Any, data_spec: DataSpec, least: int, **about: Any) -> CountFile:
    """Count as :func:`count` does, without the rows of cells of fewer rows than ``least``, in one piece.

    Only the largest possible number of their rows is kept. Rows that lack an entry are not mentioned.
    """
    data_spec.check()
    source = shown_rows(open_source(data), data_spec, [data_spec.columns.cell_keys], least)
    content = count(source, data_spec, **about)
    return _in_one_piece(content, content.counts(), source.most_hidden)


def suppressed(content: CountFile, tables: Sequence[Sequence[str]], least: int) -> CountFile:
    """Return counts without the rows of groups of fewer rows than ``least``, in tables of these columns.

    Where score bins follow the data, their width is still that of all scores.
    """
    counts = content.counts()
    rows = counts.rows.sum(axis=(1, 2))
    shown = shown_cells(counts.keys, counts.cells, rows, tables, least)
    require_some(shown, least)
    kept = counts.cells_at(np.flatnonzero(shown))
    # the ends of the bins would be those of the scores that are left out
    if not has_range(content.data_spec):
        kept = kept.trimmed()
    gone = counts.excluded.get(SUPPRESSED, 0)
    return _in_one_piece(content, kept, gone + int((~shown).sum()) * (least - 1))


def _in_one_piece(content: CountFile, kept: Counts, most_hidden: int) -> CountFile:
    """Return a file of counts without parts, with only the largest possible number of rows left out."""
    excluded = {SUPPRESSED: most_hidden} if most_hidden else {}
    piece = Piece.of(replace(kept, read=kept.used + most_hidden, excluded=excluded))
    return replace(content, pieces=(piece,), batches=())  # their fingerprints depend on all rows


def with_noise(content: CountFile, epsilon: Fraction, below: Below | None = None) -> CountFile:
    """Return counts of decisions with independent noise, epsilon-differentially private for adding or removing a row.

    They contain the labels and decisions of all combinations of the levels of the columns, with and without rows.
    Scores, losses, parts and batches of the data and the rows left out are not kept. ``below`` draws, as in
    :func:`fairfix.stats.geometric_noise.two_sided_geometric`.

    Raises
    ------
    UsageError
        Rows have weights or probabilities of decisions, there is no decision, or the counts have noise already.
    """
    if content.private is not None:
        raise UsageError(
            f"{content.name} already has noise (epsilon {float(content.private):g}); leave out `private`, or count "
            "its rows again"
        )
    columns, counts = content.data_spec.columns, content.counts()
    for part in ("weight", "probability"):
        if name := getattr(columns, part):
            raise UsageError(
                f"`private`: with `{part}` (column {name!r}), a row may not count as 1, but the noise hides only rows "
                f"that count as 1; leave out `{part}`"
            )
    table = confusion(counts, content.data_spec.threshold)
    if table is None:
        raise UsageError(
            "`private` counts decisions, but the data has none: name them with `prediction`, or a probability with "
            "`score`, or a raw score with a `threshold`"
        )
    at = [sorted({cell[i] for cell in counts.cells}) for i in range(len(counts.keys))]
    check_cells(counts.keys, int(np.prod([len(levels) for levels in at])))
    cells = tuple(product(*at))
    exact = dict(zip(counts.cells, table[..., 0], strict=True))
    nobody = np.zeros(table.shape[1:3])
    noisy = np.array([exact.get(cell, nobody) for cell in cells])
    noisy += np.array([two_sided_geometric(epsilon, below) for _ in range(noisy.size)]).reshape(noisy.shape)
    rows = np.maximum(noisy.sum(axis=2), 0.0).astype(np.int64)[..., None]
    decisions = np.concatenate([noisy[..., ::-1], np.ones(noisy.shape)], axis=2)
    private = Counts(
        counts.keys, cells, None, rows, decisions=decisions, read=int(rows.sum()), private=float(epsilon)
    )
    named = columns.prediction
    if not named:
        named = f"{columns.score}>={content.data_spec.group_thresholds or content.data_spec.threshold}"
    columns = replace(columns, score=None, prediction=named)
    used = (*columns.counted, *columns.cell_keys)
    data_spec = replace(
        content.data_spec.of_one_threshold,
        columns=columns,
        thresholds=(),
        score_scale="probability",
        missing_of={name: policy for name, policy in content.data_spec.missing_of.items() if name in used},
    )
    return replace(content, data_spec=data_spec, pieces=(Piece.of(private),), private=epsilon, batches=())


def audit_counts(content: CountFile, settings: Settings | None = None) -> Audit:
    """Return the result for counts, equal to that of an audit of the data in one pass."""
    settings = replace(settings or Settings(), exact=False)
    if settings.suppress_below:
        tables = tables_of(content.data_spec.columns, intersect=settings.intersect)
        content = suppressed(content, tables, settings.suppress_below)
    counts = content.counts(noisy=True)
    if content.private is None:
        check_whole(counts, content.data_spec, content.name)
    result = judge(Scan(counts, None, content.data_spec), settings, content.name)
    return with_data(result, inferred=content.inferred, model=content.model)
