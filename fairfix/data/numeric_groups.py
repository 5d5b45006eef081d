"""Bands: how a column of numbers is cut into groups.

Edges ``25,40`` make the bands *under 25*, *25 to under 40* and *40 or more*: an edge is the first number of the band
above it, and the outer bands have no end, so any number has a band. No edges make each number a group of its own.

Quantiles are taken over the rows that have a number, each once whatever its weight. The edge for a share ``q`` is the
number below which the share of rows is nearest to ``q`` (the smaller of two that are as near), so edges do not depend
on the order of the rows, and many equal numbers leave fewer bands.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fairfix.data.domain import texts_of
from fairfix.data.names import keyed, quoted_name, unquoted, with_values
from fairfix.errors import ColumnError, UsageError

if TYPE_CHECKING:
    from fairfix.data.counts import Floats, Ints

Edges = tuple[float, ...]

PARTS: Mapping[str, int] = {"tertiles": 3, "quartiles": 4, "quintiles": 5, "deciles": 10}
"""Word -> number of bands with about as many rows each."""

EACH = "values"
"""The word that confirms that each value of a column is a group: numbers, and however many."""

MOST_NUMBERS = 12
"""More different numbers than these are taken for amounts, which have to be cut."""

MOST_SINGLE, MOST_GROUPS = 50, 1000
"""More groups than these have to be confirmed where most have a single row, and in any case."""

NUMBER = re.compile(r"\s*[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*")
"""A text that is a number; with a leading zero, as in 007, it is a name."""


class NumbersAsGroupsError(ColumnError):
    """A column of groups has too many different numbers, and nothing says how to cut it."""

    def __init__(self, column: str, example: str = "") -> None:
        key = quoted_name(column, "=")
        exact = f"`bands={key}={example}`" if example else f"`bands={key}=NUMBER,NUMBER,...`"
        number = f"covariance[{quoted_name(column, '[]=')}]"
        super().__init__(
            f"column {column!r} has more than {MOST_NUMBERS} different numbers, so it does not look like groups; "
            f"cut it into bands with {exact} or `bands={key}=quartiles`, or treat each number as a group with "
            f"`bands={key}={EACH}`; a repair by `method=ramp` also takes it uncut, as `constraint={number}`"
        )
        self.column = column
        self.proposing(("", f"bands={key}={example or 'quartiles'}"))


def parse_bands(bands: str | Iterable[str] | Mapping[str, Any]) -> dict[str, Edges | str]:
    """Read ``age=25,40,60`` and ``age=quartiles``, or a mapping: column -> edges, or the word.

    ``UsageError`` where it is neither.
    """
    out: dict[str, Edges | str] = {}
    form = "COLUMN=NUMBER,NUMBER,... or COLUMN=quartiles"
    for name, text in keyed("bands=", texts_of(bands), form, last=True):
        rule = unquoted(text).strip()
        out[name] = rule.lower() if rule.lower() in (*PARTS, EACH) else _edges(name, rule)
    return out


def _edges(name: str, rule: str) -> Edges:
    parts = [part.strip() for part in rule.split(",")]
    try:
        edges = [float(part) + 0.0 for part in parts]
    except ValueError:
        raise UsageError(
            f"`bands={name}={rule}`: write numbers, each the first of a band, or one of {', '.join((*PARTS, EACH))}"
        ) from None
    if not np.isfinite(edges).all():
        raise UsageError(f"`bands={name}={rule}`: the outer bands have no end; leave out what is not finite")
    if any(one >= other for one, other in pairwise(edges)):
        rising = ",".join(map(written, sorted(set(edges))))
        raise UsageError(f"`bands={name}={rule}`: the numbers do not rise; write `bands={name}={rising}`")
    return tuple(edges)


def rising(bands: Mapping[str, Sequence[float]]) -> dict[str, Edges]:
    """Return bands as they were saved; ``ValueError`` where edges do not rise."""
    for name, edges in bands.items():
        if any(one >= other for one, other in pairwise(edges)):
            raise ValueError(f"the edges of the bands of {name!r} do not rise")
    return {name: tuple(edges) for name, edges in bands.items()}


def written(edge: float) -> str:
    """Return a number as a user writes it: 25 for 25.0, and never two numbers alike."""
    return repr(float(edge)).removesuffix(".0")


def shown(value: Any) -> str:
    """Return a part of a reading as a user writes it: ``age=25,40`` of bands, ``race=a,A`` of names merged into a."""
    if isinstance(value, Mapping):
        return ", ".join(text for name, own in value.items() for text in _of_column(name, own)) or "none"
    if isinstance(value, (list, tuple)):
        return ",".join(map(shown, value)) or "none"
    if isinstance(value, float):
        return written(value)
    return "none" if value in (None, "") else str(value)


def _of_column(name: str, own: Any) -> Iterator[str]:
    """Yield what a reading says of one column: its bands, the names that are merged, or a policy."""
    if isinstance(own, Mapping):
        for into in dict.fromkeys(own.values()):
            yield with_values(name, dict.fromkeys((into, *(one for one in own if own[one] == into))))
    else:
        yield f"{quoted_name(name, '=')}={EACH if own in ((), []) else shown(own)}"


def band_names(edges: Edges) -> list[str]:
    """Return the names of the bands, the lowest first."""
    texts = [written(edge) for edge in edges]
    inner = [f"{one} to under {other}" for one, other in pairwise(texts)]
    return [f"under {texts[0]}", *inner, f"{texts[-1]} or more"]


def in_order(
    levels: Iterable[tuple[str, ...]], columns: Sequence[str], bands: Mapping[str, Edges]
) -> tuple[tuple[str, ...], ...]:
    """Return levels of columns sorted: those that are bands from the lowest to the highest, behind others as texts."""
    places = [
        {name: i for i, name in enumerate(band_names(edges), 1)} if (edges := bands.get(column)) else {}
        for column in columns
    ]

    def place(level: tuple[str, ...]) -> list[tuple[int, str]]:
        return [(at.get(one, 0), one) for at, one in zip(places, level, strict=True)]

    return tuple(sorted(levels, key=place))


def pieces(edges: Edges) -> tuple[list[float], list[int]]:
    """Return increasing cuts, and the band below the first of them and from each of them on.

    The cuts are the edges, and where an edge such as 0.7 is a smaller number when it is stored in 32 bits, that number
    too: it is taken for the edge, in a column of any type, so that a copy in more bits has the same bands.
    """
    stored = {}
    with np.errstate(over="ignore"):  # beyond the range of 32 bits lies infinity, which is no edge
        for edge in edges:
            short = np.float32(edge)
            if float(short) < edge == float(str(short)):
                stored[float(short)] = edge
    cuts = sorted({*edges, *stored, *(math.nextafter(one, math.inf) for one in stored)})
    return cuts, [0, *(bisect_right(edges, stored.get(cut, cut)) for cut in cuts)]


def bands_of(numbers: Floats, edges: Edges, kind: pa.DataType) -> Ints:
    """Return the band of each number, shape (n,); edges are rounded to 16 bits where ``kind``, of the column, is so."""
    cuts, bands = pieces(halved(edges) if pa.types.is_float16(kind) else edges)
    return np.array(bands)[np.searchsorted(cuts, numbers, side="right")]


def halved(edges: Edges) -> Edges:
    """Return edges rounded to 16 bits."""
    return tuple(float(np.float16(edge)) for edge in edges)


def as_number(level: str) -> float | None:
    """Return the number that a text is, None where it is none."""
    return float(level) if NUMBER.fullmatch(level) else None


def check_numbers(name: str, levels: Iterable[str], bands: Mapping[str, Any]) -> None:
    """Raise where levels of a column are too many numbers and nothing is said of its bands."""
    if name not in bands and sum(as_number(level) is not None for level in levels) > MOST_NUMBERS:
        raise NumbersAsGroupsError(name)


def check_many(name: str, many: int, bands: Mapping[str, Any]) -> None:
    """Raise where a column has more groups than people mean, and nothing confirms them."""
    if many > MOST_GROUPS and name not in bands:
        raise ColumnError(
            f"column {name!r} has more than {MOST_GROUPS:,} distinct values, so it does not look like groups; choose "
            "another column, merge its values into fewer groups, or confirm that each is a group with "
            f"`bands={quoted_name(name, '=')}={EACH}`"
        )


def check_sizes(name: str, rows: Sequence[int], bands: Mapping[str, Any]) -> None:
    """Raise where most groups of a column have a single row, and nothing confirms them."""
    if len(rows) <= MOST_SINGLE or sum(rows) >= 2 * len(rows) or name in bands:
        return
    raise ColumnError(
        f"column {name!r} has {len(rows):,} groups in {sum(rows):,} rows, most with a single row, like IDs and dates; "
        f"name another column with `protected`, group its values in the data, such as by year, or keep them "
        f"with `bands={quoted_name(name, '=')}={EACH}`"
    )


def quantiles(numbers: Floats, rows: Ints, parts: int) -> Edges:
    """Return the edges of bands with about as many rows; ``numbers`` rise, each with its number of rows."""
    below = np.cumsum(rows) - rows
    at = [int(np.argmin(np.abs(parts * below[1:] - k * rows.sum()))) + 1 for k in range(1, parts)]
    return tuple(float(numbers[i]) + 0.0 for i in dict.fromkeys(at))


def shortened(edge: float, below: float) -> float:
    """Return the number of fewest digits, three or more, above ``below`` and up to ``edge``.

    It cuts numbers as the edge does where none of them lies between ``below`` and the edge.
    """
    exact = Decimal(repr(edge))  # of 17 digits at most
    tries = (float(Context(digits, ROUND_FLOOR).create_decimal(exact)) for digits in range(3, 18))
    return next(one for one in tries if one > below) + 0.0


def proposal(numbers: Floats, rows: Ints) -> str:
    """Return edges to propose: quartiles, rounded as far as every band keeps rows."""
    edges = quantiles(numbers, rows, 4)
    for digits in range(2, 17):
        rounded = sorted({float(f"{edge:.{digits}g}") for edge in edges})
        held = np.bincount(np.searchsorted(rounded, numbers, side="right"), rows, len(rounded) + 1)
        if len(rounded) == len(edges) and held.all():
            return ",".join(map(written, rounded))
    return ",".join(map(written, edges))


def distribution(columns: Iterable[Floats]) -> tuple[Floats, Ints]:
    """Return the different numbers of a column, which rise, and the rows of each; NaN is left out."""
    numbers, rows = np.zeros(0), np.zeros(0, dtype=np.int64)
    for column in columns:
        own, many = np.unique(column[~np.isnan(column)], return_counts=True)
        numbers, into = np.unique(np.concatenate([numbers, own]), return_inverse=True)
        rows = np.bincount(into, np.concatenate([rows, many]), numbers.size).astype(np.int64)
    return numbers, rows


def quantile_edges(name: str, word: str, columns: Iterable[Floats], kind: pa.DataType) -> Edges:
    """Return the edges that a word stands for in a column of a type; ``ColumnError`` where there are none."""
    numbers, rows = distribution(columns)
    if numbers.size < 2:
        what = f"one number, {written(numbers[0])}" if numbers.size else "no number"
        raise ColumnError(f"column {name!r} holds {what}, which cannot be cut into {word}; leave out `bands`")
    edges = quantiles(numbers, rows, PARTS[word])
    if pa.types.is_float32(kind) or pa.types.is_float16(
        kind
    ):  # 0.1 is 0.1 also where it is stored in few bits
        edges = tuple(float(str(kind.to_pandas_dtype()(edge))) for edge in edges)
    return edges
