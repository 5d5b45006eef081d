"""Answers: what a database says to the queries of a push-down, made into counts and into rows of a few bins.

Answers that are about other rows than the first one are refused: the table changed between the queries.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fairfix.data.binned import decided_by_bins
from fairfix.data.count_queries import CountQueries, Frame, real_of, whole_of
from fairfix.data.counts import BinSlice, Counts, Floats, Grid, Ints, code_of, groups_of_cells
from fairfix.data.data_spec import DataSpec
from fairfix.data.encoder import Encoder, Rows, check_excluded
from fairfix.data.quantities import summed
from fairfix.data.scan import BINS, TABLE_BYTES, KeptRows, fineness, grid_over, tabulated
from fairfix.data.second_pass import by_scores
from fairfix.data.storage import CHANGED
from fairfix.errors import DataError

Batches = Callable[[Frame], Iterator[pa.RecordBatch]]
"""Runs a statement and yields its result."""


@dataclass(frozen=True)
class Summary:
    """The result of the first statement, with a row per kind of rows that are counted."""

    cells: tuple[tuple[str, ...], ...]
    code: Ints
    """Cell and label, ``cell * labels + label``, shape (k,)."""
    decision: Floats | None
    columns: Mapping[str, npt.NDArray[Any]]
    """Answers by name, each of shape (k,): ``n``, sums, ends of scores."""
    read: int
    excluded: Mapping[str, int]

    def sums_of(self, data_spec: DataSpec, *, losses: bool) -> dict[str, Floats]:
        """Return the sums that bins do not give, by name, shape (C L, many)."""
        n, columns, labels = self.columns["n"].astype(np.float64), self.columns, 2 if data_spec.binary else 1
        out: dict[str, list[Floats]] = {}
        powers = (columns.get("w", n), columns.get("ww", n))
        if self.decision is not None and data_spec.columns.probability:
            names = ("yes_1", "no_1", "yes_2", "no_2") if "w" in columns else ("yes_1", "no_1") * 2
            out["decisions"] = [columns[name] for name in names]
        elif self.decision is not None:
            out["decisions"] = [w * part for w in powers for part in (self.decision, 1.0 - self.decision)]
        for name in summed(data_spec) if losses else ():
            out[name] = [self._sum(name, i, labels) for i in range(1, 5 if "w" in columns else 3)]
        if "log_loss" in out and data_spec.score_scale != "logit":
            never = self._sum("impossible", 1, labels) > 0
            out["log_loss"] = [np.where(never, math.inf, sums) for sums in out["log_loss"]]
        return {name: self._by_code(data_spec, parts) for name, parts in out.items()}

    def _sum(self, name: str, number: int, labels: int) -> Floats:
        """Return a sum, of those for each label the one for the label of the rows."""
        if f"{name}_{number}" in self.columns:
            return self.columns[f"{name}_{number}"]
        no, yes = (self.columns[f"{name}{label}_{number}"] for label in (0, 1))
        return np.where(self.code % labels, yes, no)

    def _by_code(self, data_spec: DataSpec, parts: Sequence[Floats]) -> Floats:
        size = len(self.cells) * (2 if data_spec.binary else 1)
        return np.stack([np.bincount(self.code, part, size) for part in parts], axis=-1)

    def tables(self, data_spec: DataSpec) -> dict[str, npt.NDArray[Any]]:
        """Return rows, and where there are weights their mass, per cell and label, in one bin."""
        size = len(self.cells) * (2 if data_spec.binary else 1)
        rows = np.zeros((size, 1), dtype=np.int64)
        np.add.at(rows[:, 0], self.code, self.columns["n"])
        if not data_spec.columns.weight:
            return {"rows": rows}
        mass = {"mass": self.columns["w"], "square_mass": self.columns["ww"]}
        return {"rows": rows} | {name: self._by_code(data_spec, [sums]) for name, sums in mass.items()}


def summarised(ask: Batches, queries: CountQueries, where: str) -> Summary:
    """Run the first statement; a DataError where an entry is none that its column may hold, or must not be missing."""
    data_spec = queries.data_spec
    encoder = Encoder(data_spec.of_one_threshold, where)
    pieces: list[tuple[Ints, Floats | None, dict[str, npt.NDArray[Any]]]] = []
    read, excluded, labels = 0, Counter[str](), 2 if data_spec.binary else 1
    for answer in ask(queries.summary()):
        n = whole_of(answer["n"])
        if not n.all():  # of no rows, where there is nothing to group by
            continue
        rows = encoder.encode(queries.batch(answer), n)
        read, excluded = read + rows.read, excluded + Counter(dict(rows.excluded))
        left = slice(None) if rows.kept is None else rows.kept
        keys = {*queries.keys, "state"}
        names = [name for name in answer.schema.names if name not in keys and "_band_" not in name]
        columns: dict[str, Any] = {name: real_of(answer[name])[left] for name in names if name != "n"}
        pieces.append((code_of(rows.cell, rows.label, labels), rows.decision, {"n": n[left], **columns}))
    check_excluded(excluded, read, data_spec)
    if not pieces:
        return Summary(encoder.cells, np.zeros(0, dtype=np.int64), None, {}, read, dict(excluded))
    codes, decisions, answers = zip(*pieces, strict=True)
    decision = None if decisions[0] is None else np.concatenate(decisions)
    together = {name: np.concatenate([one[name] for one in answers]) for name in answers[0]}
    return Summary(encoder.cells, np.concatenate(codes), decision, together, read, dict(excluded))


def counts_of(ask: Batches, queries: CountQueries, summary: Summary, where: str, *, exact: bool) -> Counts:
    """Run the second statement where there are scores, and return the counts."""
    data_spec, tables, grid = queries.data_spec, summary.tables(queries.data_spec), None
    if not summary.code.size:
        return tabulated(data_spec, (), None, {}, {}, summary.read, summary.excluded)
    if data_spec.columns.score:
        # what exact distances need is found in finer bins, so a table need not grow with the rows
        bins, room = fineness(summary.read, exact=exact)[0], TABLE_BYTES
        rows_of, complete = tables["rows"][:, 0], not any(summary.excluded.values())
        low, high = summary.columns["low_score"].min(), summary.columns["high_score"].max()
        most = max(2 * BINS, room // (8 * rows_of.size))
        grid = grid_over(data_spec, bins, low, high).halved_to(most)
        tables = {name: np.zeros((rows_of.size, grid.size), table.dtype) for name, table in tables.items()}
        for answer, rows, into, left in counted_answers(
            ask, queries, replace(queries, complete=complete).binned(grid), summary.cells, where
        ):
            place, cell = whole_of(answer["bin"])[left], into[rows.cell]
            if place.size and not (place.min() >= 0 and place.max() < grid.size and cell.min() >= 0):
                raise changed(where)
            at = code_of(cell, rows.label, 2 if data_spec.binary else 1) * grid.size + place
            for name, of in (("rows", "n"), ("mass", "w"), ("square_mass", "ww")):
                if name in tables:
                    column = whole_of(answer[of]) if name == "rows" else real_of(answer[of])
                    np.add.at(tables[name].reshape(-1), at, column[left])
        if not np.array_equal(tables["rows"].sum(axis=1), rows_of):
            raise changed(where)
    sums = summary.sums_of(data_spec, losses=queries.losses)
    counts = tabulated(data_spec, summary.cells, grid, tables, sums, summary.read, summary.excluded)
    return counts if data_spec.group_thresholds is None else decided_by_bins(counts, data_spec)


def counted_answers(
    ask: Batches, queries: CountQueries, statement: Frame, cells: Sequence[tuple[str, ...]], where: str
) -> Iterator[tuple[pa.RecordBatch, Rows, Ints, Any]]:
    """Yield (answer, its rows, index of their cells among the given ones, which answers the rows are)."""
    bare = replace(queries, data_spec=without_reals(queries.data_spec))
    encoder, keys = Encoder(bare.data_spec, where), bare.data_spec.columns.cell_keys
    for answer in ask(statement):
        rows = encoder.encode(bare.batch(answer), whole_of(answer["n"]))
        _, into = groups_of_cells(keys, encoder.cells, keys, cells)
        yield answer, rows, into, slice(None) if rows.kept is None else rows.kept


def without_reals(data_spec: DataSpec) -> DataSpec:
    """Return the reading of what has been counted: groups, labels and decisions that are values, not amounts."""
    columns = replace(data_spec.columns, score=None, weight=None, probability=None)
    data_spec = data_spec.of_one_threshold
    columns = columns if data_spec.task == "classification" else replace(columns, label=None)
    return replace(data_spec, columns=columns)


def rows_of_bins(
    ask: Batches,
    queries: CountQueries,
    counts: Counts,
    slices: Sequence[BinSlice],
    where: str,
    columns: tuple[str, ...] | None = None,
    finer: Grid | None = None,
) -> KeptRows:
    """Run the third statement: return the rows of some slices as :meth:`fairfix.data.files.Source.collected` does."""
    data_spec = queries.data_spec
    if not any(counts.excluded.values()):
        data_spec = by_scores(data_spec, columns)
        queries = replace(queries, data_spec=data_spec, complete=True)
    levels, level = groups_of_cells(counts.keys, counts.cells, data_spec.columns.cell_keys)
    first = np.unique(level, return_index=True)[1].astype(np.int32)
    pieces, seen = list[KeptRows](), [0] * len(slices)
    for answer, rows, into, left in counted_answers(
        ask, queries, queries.scores(slices, finer), levels, where
    ):
        n, cell = whole_of(answer["n"])[left], into[rows.cell]
        if cell.size and cell.min() < 0:
            raise changed(where)
        score = real_of(answer["score"])[left] if finer is None else finer.tops(whole_of(answer["bin"])[left])
        weight = square = None
        if data_spec.columns.weight:
            weight, square = (real_of(answer[name])[left] for name in ("w", "ww"))
        held = [one.holds(score) for one in slices]
        seen = [many + int(n[inside].sum()) for many, inside in zip(seen, held, strict=True)]
        cells: Any = first[cell]
        kept = KeptRows(score, cells, None, weight, square, n)
        pieces.append(kept.take(np.logical_or.reduce(held)))
    if seen != [one.rows for one in slices]:
        raise changed(where)
    return KeptRows.joined(pieces or [KeptRows(np.zeros(0), np.zeros(0, dtype=np.int64), None, None)])


def changed(where: str) -> DataError:
    """Return the error that two results are about different rows."""
    return DataError(CHANGED.format(place=where))
