"""Levels of columns as codes, each with the condition of a row filter that the rows of the level meet.

Texts, truth values and numbers of few different values have a level for each value; other numbers are cut into bands,
at given edges or at quintiles. Missing entries are a level. Levels of too few rows share one code that is no condition,
so every row keeps a code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fairfix.data.counts import Floats, Ints
from fairfix.data.encoder import group_codes, numbers
from fairfix.data.numeric_groups import (
    EACH,
    MOST_NUMBERS,
    Edges,
    as_number,
    bands_of,
    distribution,
    quantile_edges,
    shortened,
    written,
)
from fairfix.data.row_filter import ColumnTest, Condition, Junction
from fairfix.errors import ColumnError

WORD = "quintiles"
"""Quantiles at which numbers are cut where no edges are given."""

HALF = "holds numbers of 16 bits, which row filters compare as texts; convert them to 32 or 64 bits"
"""Why a column of half floats makes no slice."""


@dataclass(frozen=True)
class SliceLevels:
    """A column as codes: row ``i`` meets ``conditions[codes[i]]``, or none where its code is their number."""

    column: str
    codes: npt.NDArray[Any]
    """Shape (n,)."""
    conditions: tuple[Condition, ...]
    rows: tuple[int, ...]
    """Rows of each level."""
    pooled: int = 0
    """Levels of too few rows, which share a code."""

    def take(self, rows: Ints) -> SliceLevels:
        """Return the levels of the given row numbers."""
        codes = self.codes[rows]
        sizes = np.bincount(codes, minlength=len(self.conditions))[: len(self.conditions)]
        return SliceLevels(self.column, codes, self.conditions, tuple(sizes.tolist()), self.pooled)


def levels_of(
    columns: pa.Table, names: Iterable[str], bands: Mapping[str, Edges | str], least: int
) -> tuple[list[SliceLevels], dict[str, str]]:
    """Return the levels of columns, and column -> reason of those that cannot make a slice.

    Parameters
    ----------
    bands
        Column -> its edges, or a word such as ``deciles``.
    least
        Rows that a level needs.
    """
    out, left_out = list[SliceLevels](), dict[str, str]()
    for name in names:
        try:
            own = _levels(columns.select([name]), name, bands.get(name, ""), least)
        except ColumnError as error:
            if name in bands:
                raise
            left_out[name] = error.text
            continue
        if reason := _unusable(own, least):
            left_out[name] = reason
        else:
            out.append(own)
    return out, left_out


def _unusable(own: SliceLevels, least: int) -> str:
    if not own.conditions:
        many = "its only value has" if own.pooled == 1 else f"each of its {own.pooled:,} values has"
        return f"{many} fewer than {least:,} rows"
    if len(own.conditions) == 1 and not own.pooled:
        return f"all rows meet {own.conditions[0]}"
    return ""


def _levels(column: pa.Table, name: str, rule: Edges | str, least: int) -> SliceLevels:
    array = column.combine_chunks().to_batches()[0].column(0)
    kind = array.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if pa.types.is_float16(kind):
        raise ColumnError(HALF)
    if rule == EACH:
        codes, levels, missing = group_codes(array, name)
        return _of_values(name, codes, levels, least, missing=missing is not None)
    if not numeric or (not rule and len(array.dictionary_encode().dictionary) <= MOST_NUMBERS):
        coded = group_codes(array, name)
        own = coded[1][: -1 if coded[2] is not None else None]
        amounts = [as_number(level) for level in own]
        if not (own and None not in amounts and (rule or len(own) > MOST_NUMBERS)):
            if rule:
                raise ColumnError(f"`bands`: column {name!r} holds texts, and bands cut numbers")
            return _of_values(name, *coded[:2], least, missing=coded[2] is not None)
        entries = np.array([*amounts, np.nan], dtype=np.float64)[coded[0]]
        kind = pa.float64()
    else:
        entries = numbers(array, name, "slice")
    return _of_bands(name, entries, kind, rule or WORD, least)


def _of_values(name: str, codes: Ints, levels: list[str], least: int, *, missing: bool) -> SliceLevels:
    conditions: list[Condition] = [ColumnTest(name, "==", (level,)) for level in levels]
    if missing:
        conditions[-1] = ColumnTest(name, "is missing")
    return _pooled(name, codes, conditions, least)


def _of_bands(name: str, entries: Floats, kind: pa.DataType, rule: Edges | str, least: int) -> SliceLevels:
    """Return the levels of numbers: bands of half-open intervals, and missing entries."""
    missing = np.isnan(entries)
    infinite = np.isinf(entries) & (not pa.types.is_float64(kind))  # a filter compares their texts
    whole = np.where(infinite, np.nan, entries) if infinite.any() else entries
    edges = quantile_edges(name, rule, [whole], kind) if isinstance(rule, str) else rule
    if isinstance(rule, str) and pa.types.is_float64(kind):
        edges = _shortened(edges, whole)
    codes = bands_of(np.nan_to_num(whole), edges, kind)
    codes[missing] = len(edges) + 1
    codes[infinite] = len(edges) + 2
    texts = [written(edge) for edge in edges]
    conditions: list[Condition] = [ColumnTest(name, "<", (texts[0],))]
    for low, high in pairwise(texts):
        conditions.append(Junction("and", (ColumnTest(name, ">=", (low,)), ColumnTest(name, "<", (high,)))))
    conditions += [ColumnTest(name, ">=", (texts[-1],)), ColumnTest(name, "is missing")]
    return _pooled(name, codes, conditions, least)


def _shortened(edges: Edges, entries: Floats) -> Edges:
    """Return edges of fewest digits that cut the entries in the same way."""
    present, _ = distribution([entries])
    below = present[np.maximum(np.searchsorted(present, edges) - 1, 0)]
    return tuple(shortened(edge, low) for edge, low in zip(edges, below.tolist(), strict=True))


def _pooled(name: str, codes: Ints, conditions: list[Condition], least: int) -> SliceLevels:
    """Return the levels of enough rows; all other rows share the last code."""
    rows = np.bincount(codes, minlength=len(conditions))
    enough = np.flatnonzero(rows[: len(conditions)] >= least)
    new = np.full(rows.size, enough.size, dtype=np.int16 if enough.size < 2**15 else np.int32)
    new[enough] = np.arange(enough.size)
    pooled = int(np.count_nonzero(rows)) - enough.size
    held = tuple(conditions[i] for i in enough)
    return SliceLevels(name, new[codes], held, tuple(rows[enough].tolist()), pooled)


def conjunction(parts: Iterable[Condition]) -> Condition:
    """Return the condition that all parts hold, without nesting."""
    flat = tuple(one for part in parts for one in (part.parts if isinstance(part, Junction) else (part,)))
    return flat[0] if len(flat) == 1 else Junction("and", flat)
