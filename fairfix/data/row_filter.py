"""Row filters: conditions on columns, such as ``year==2024 and product in ('car','van')``.

A condition is parsed here, never run as code. It has comparisons of a column with values, ``in``, ``is missing``,
``and``, ``or``, ``not`` and parentheses. Texts are in quotes of either kind,
and a name that is no plain word is in backquotes.

Values are compared as names: ``year==2024`` meets 2024, 2024.0 and "2024" in every source. A number is compared with
entries that are numbers, also where they are written as text; a text is compared with the other entries, letter by
letter, which orders dates. A missing entry meets no comparison but ``!=`` and ``not in``, as in pandas.

:class:`FilteredSource` reads the rows of files and frames that meet a condition; a database filters its own.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.data.canonical import canonical, canonical_text
from fairfix.data.counts import Bools
from fairfix.data.data_spec import ORDERS
from fairfix.data.encoder import arrow_array, group_codes, null_mask, primitive
from fairfix.data.files import NO_TYPES, DerivedSource, Source, SourcePart, Types
from fairfix.data.names import did_you_mean, in_quotes
from fairfix.data.numeric_groups import as_number
from fairfix.errors import ColumnError, DataError, UsageError

MOST_SIGNS, MOST_DEPTH = 10_000, 50
"""Characters of a condition, and parentheses inside each other."""

SHOWN = 6
"""Values that a message lists."""

LEFT_OUT = "where"
"""Reason of the rows that do not meet a condition."""

TOKEN = re.compile(
    r"\s*(?:(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))"
    r"|(?P<word>[^\W\d][\w.-]*)"
    r"|`(?P<name>(?:[^`]|``)+)`"
    r"|'(?P<single>(?:[^']|'')*)'"
    r'|"(?P<double>(?:[^"]|"")*)"'
    r"|(?P<sign>==|!=|<>|<=|>=|[=<>(),])|(?P<end>$))"
)
WORD = re.compile(r"[^\W\d][\w.-]*")
PLAIN_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
KEYWORDS = frozenset(("and", "or", "not", "in", "is", "missing", "null", "true", "false"))
"""Words of the grammar, which name a column only in backquotes."""

SIGNS = {"=": "==", "<>": "!="}
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
VALUED = ("==", "in")
INFINITE = ("inf", "-inf")
"""Names of infinite entries (:func:`~fairfix.data.canonical.canonical`)."""
OPPOSITES = {"!=": "==", "not in": "in", "is not missing": "is missing"}
"""Operator -> the one that it negates."""


@dataclass(frozen=True)
class ColumnTest:
    """A comparison of a column with values, which are texts of :func:`~fairfix.data.canonical.canonical`."""

    column: str
    operator: str
    operands: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the comparison as it is parsed."""
        name = _written_name(self.column)
        if self.operator.endswith("missing"):
            return f"{name} {self.operator}"
        if self.operator.endswith("in"):
            return f"{name} {self.operator} ({', '.join(map(_written, self.operands))})"
        return f"{name} {self.operator} {_written(self.operands[0])}"

    def meets(self, level: str) -> bool:
        """Return whether an entry that is not missing meets the comparison, given its text."""
        number = as_number(level)
        if self.operator in ORDERS:
            (value,) = self.operands
            limit = as_number(value)
            if (number is None) != (limit is None):
                return False
            own: Any = (level, value) if number is None else (number, limit)
            return bool(ORDERS[self.operator](*own))
        return level in self.operands or (number is not None and number in map(as_number, self.operands))


@dataclass(frozen=True)
class Negation:
    """The rows that do not meet a condition."""

    part: Condition

    def __str__(self) -> str:
        """Return the condition as it is parsed."""
        return f"not {self.part}" if isinstance(self.part, (ColumnTest, Negation)) else f"not ({self.part})"


@dataclass(frozen=True)
class Junction:
    """The rows that meet all of several conditions (``and``), or any of them (``or``)."""

    word: str
    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        """Return the condition as it is parsed."""
        texts = (f"({part})" if isinstance(part, Junction) else str(part) for part in self.parts)
        return f" {self.word} ".join(texts)


Condition = ColumnTest | Negation | Junction


def comparisons(condition: Condition) -> Iterator[ColumnTest]:
    """Yield the comparisons of a condition."""
    if isinstance(condition, ColumnTest):
        yield condition
    elif isinstance(condition, Negation):
        yield from comparisons(condition.part)
    else:
        for part in condition.parts:
            yield from comparisons(part)


def columns_of(condition: Condition) -> tuple[str, ...]:
    """Return the columns of a condition, each once."""
    return tuple(dict.fromkeys(one.column for one in comparisons(condition)))


def combined(condition: Condition, each: Callable[[ColumnTest], Any]) -> Any:
    """Return masks, or expressions of a database, put together as the condition says.

    ``each`` returns that of a comparison with one of ``==``, ``in``, ``is missing`` and the orders.
    """
    if isinstance(condition, Negation):
        return ~combined(condition.part, each)
    if isinstance(condition, Junction):
        join = operator.and_ if condition.word == "and" else operator.or_
        return reduce(join, (combined(part, each) for part in condition.parts))
    if condition.operator in OPPOSITES:
        return ~each(replace(condition, operator=OPPOSITES[condition.operator]))
    return each(condition)


def _written_name(name: str) -> str:
    plain = WORD.fullmatch(name) and name.casefold() not in KEYWORDS
    return name if plain else in_quotes(name, "`")


def _written(value: str) -> str:
    if value in ("True", "False"):
        return value.lower()
    return value if PLAIN_NUMBER.fullmatch(value) else in_quotes(value, "'")


# ---------------------------------------------------------------------- parsing


class _Parser:
    """A parser of one condition, by recursive descent."""

    def __init__(self, text: str) -> None:
        if len(text) > MOST_SIGNS:
            raise UsageError(f"`where` has {len(text):,} characters; at most {MOST_SIGNS:,} are read")
        self.text, self.at, self.depth = text, 0, 0
        self.begin, self.kind, self.value = 0, "", ""
        self._next()

    def _next(self) -> None:
        match = TOKEN.match(self.text, self.at)
        if match is None:
            self.begin = self.at + len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
            sign = self.text[self.begin]
            more = "; close it" if sign in "'\"`" else ""
            hint = {"&": "; write and", "|": "; write or", "~": "; write not", "!": "; write not"}
            raise self._error(f"{sign!r} is not a valid character{more or hint.get(sign, '')}")
        self.kind = str(match.lastgroup)
        self.begin, self.at, self.value = match.start(self.kind), match.end(), match[self.kind]
        if self.kind == "word" and self.value.casefold() in KEYWORDS:
            self.kind, self.value = self.value.casefold(), self.value.casefold()
        elif self.kind == "sign":
            self.kind = self.value = SIGNS.get(self.value, self.value)

    def _error(self, what: str) -> UsageError:
        begin = max(0, self.begin - 20)
        near = self.text[begin : self.begin + 20].strip()
        return UsageError(f"`where`, character {self.begin + 1} (near {near!r}): {what}")

    def _accept(self, kind: str) -> bool:
        there = self.kind == kind
        if there:
            self._next()
        return there

    def _take(self, *kinds: str) -> str:
        if self.kind not in kinds:
            there = f"{self.text[self.begin : self.at]!r} is there"
            what = "the condition ends" if self.kind == "end" else there
            needed = "a column or a value" if "word" in kinds else " or ".join(kinds)
            raise self._error(f"{what}, where {needed} is needed")
        value = self.value
        self._next()
        return value

    def whole(self) -> Condition:
        """Return the condition."""
        if self.kind == "end":
            raise UsageError("`where` is empty; write a condition such as year==2024")
        out = self._either()
        if self.kind != "end":
            what = f"{self.text[self.begin : self.at]!r} follows a complete condition"
            raise self._error(f"{what}; write and, or")
        return out

    def _either(self) -> Condition:
        return self._junction("or", lambda: self._junction("and", self._negated))

    def _junction(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._accept(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Junction(word, tuple(parts))

    def _negated(self) -> Condition:
        if self.kind not in ("not", "("):
            return self._comparison()
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise self._error(f"more than {MOST_DEPTH} conditions are nested")
        if self._accept("not"):
            out: Condition = Negation(self._negated())
        else:
            self._take("(")
            out = self._either()
            self._take(")")
        self.depth -= 1
        return out

    def _comparison(self) -> Condition:
        """Return a comparison, of a column between values too: ``18 <= age < 65``."""
        begin = self.begin
        first, is_name = self._operand()
        if is_name and self.kind in ("in", "not", "is"):
            return self._membership(first)
        out, left = list[Condition](), (first, is_name)
        while self.kind in ("==", "!=", *ORDERS):
            sign = self._take(self.kind)
            right = self._operand()
            out.append(self._pair(left, sign, right))
            left = right
        if not out:
            self.begin = begin if not is_name else self.begin
            kind = "a comparison such as == is needed" if is_name else "a comparison is missing"
            raise self._error(f"{kind} after {first!r}")
        return out[0] if len(out) == 1 else Junction("and", tuple(out))

    def _pair(self, left: tuple[str, bool], sign: str, right: tuple[str, bool]) -> ColumnTest:
        if left[1] and right[1]:
            text = in_quotes(right[0], "'")
            raise self._error(
                f"{left[0]!r} and {right[0]!r} are both read as columns; put a text in quotes: "
                f"{_written_name(left[0])}{sign}{text}"
            )
        if not (left[1] or right[1]):
            raise self._error(
                f"{left[0]!r} and {right[0]!r} are both values; compare a column with a value, and put a name that "
                "is not a plain word in backquotes"
            )
        name, value = (left[0], right[0]) if left[1] else (right[0], left[0])
        return ColumnTest(name, sign if left[1] else TURNED.get(sign, sign), (value,))

    def _membership(self, name: str) -> ColumnTest:
        if self._accept("is"):
            word = "not missing" if self._accept("not") else "missing"
            self._take("missing", "null")
            return ColumnTest(name, f"is {word}")
        word = "not in" if self._accept("not") else "in"
        self._take("in")
        self._take("(")
        operands = [self._value()]
        while self._accept(","):
            operands.append(self._value())
        self._take(")")
        return ColumnTest(name, word, tuple(dict.fromkeys(operands)))

    def _value(self) -> str:
        value, is_name = self._operand()
        if is_name:
            text = in_quotes(value, "'")
            raise self._error(f"{value!r} is not a value; put a text in quotes: {text}")
        return value

    def _operand(self) -> tuple[str, bool]:
        """Return a name or a value, and whether it is a name."""
        kind, value = self.kind, self.value
        if kind in ("missing", "null"):
            raise self._error(
                f"nothing equals a missing value; write COLUMN is {kind}, or COLUMN is not {kind}"
            )
        self._take("word", "name", "number", "single", "double", "true", "false")
        if kind in ("word", "name"):
            return value.replace("``", "`") if kind == "name" else value, True
        if kind == "number":
            code = re.fullmatch(r"[+-]?0\d.*", value) or not math.isfinite(float(value))
            number: Any = value if code else int(value) if value.lstrip("+-").isdecimal() else float(value)
            return canonical(number), False
        if kind in ("single", "double"):
            quote = "'" if kind == "single" else '"'
            return canonical_text(value.replace(quote * 2, quote)), False
        return kind.capitalize(), False


def parse_condition(text: str) -> Condition:
    """Return the condition that a text is; a UsageError names the character where it is none."""
    return _Parser(text).whole()


# ---------------------------------------------------------------------- arrays


@dataclass
class Observed:
    """Summary of the entries of a comparison's column: kinds of entries, values that occur, some others."""

    kinds: set[str] = field(default_factory=set)
    """Kinds that occur, of ``number``, ``truth`` and ``text``."""
    matched: set[str] = field(default_factory=set)
    others: dict[str, None] = field(default_factory=dict)
    """Entries, up to a few hundred, for messages."""

    def add(self, comparison: ColumnTest, levels: Sequence[str]) -> None:
        """Note entries, given by their texts, each once."""
        self.kinds.update(map(kind_of, levels))
        if comparison.operator in VALUED:
            numbers = set(map(as_number, levels)) - {None}
            self.matched |= {one for one in comparison.operands if one in levels or as_number(one) in numbers}
        for level in levels[: max(0, 200 - len(self.others))]:
            self.others.setdefault(level)


def kind_of(text: str) -> str:
    """Return what an entry is by its text: a number, a truth value, or another text."""
    if as_number(text) is not None:
        return "number"
    return "truth" if text in ("True", "False") else "text"


def mask_of(
    batch: pa.RecordBatch, condition: Condition, observed: Mapping[ColumnTest, Observed] | None = None
) -> Bools:
    """Return which rows of a batch meet a condition, shape (n,); what its columns hold is added to ``observed``."""

    def each(comparison: ColumnTest) -> Bools:
        array = batch.column(comparison.column)
        if comparison.operator == "is missing":
            return missing_in(array)
        seen = None if observed is None else observed.get(comparison)
        if pa.types.is_integer(array.type) or pa.types.is_float64(array.type):
            return _of_numbers(array, comparison, seen)
        codes, levels, missing = group_codes(array, comparison.column)
        if missing is not None:
            levels = levels[:-1]
        if seen is not None:
            present = np.unique(codes)
            seen.add(comparison, [levels[i] for i in present if i < len(levels)])
        table = np.array([*map(comparison.meets, levels), False])
        return np.asarray(table[codes])

    return np.asarray(combined(condition, each))


def missing_in(array: pa.Array) -> Bools:
    """Return which entries are missing, shape (n,)."""
    missing = null_mask(array)
    none = np.zeros(len(array), dtype=bool) if missing is None else missing
    if not pa.types.is_floating(array.type):
        return none
    nan: Bools = np.isnan(primitive(array, array.type.to_pandas_dtype()))
    return none | nan


def _of_numbers(array: pa.Array, comparison: ColumnTest, seen: Observed | None) -> Bools:
    """Return which entries of a column of whole numbers or doubles meet a comparison."""
    column, whole = primitive(array, array.type.to_pandas_dtype()), pa.types.is_integer(array.type)
    there = ~missing_in(array)
    limits = limits_of(comparison, whole=whole)
    out = np.zeros(len(array), dtype=bool)
    compare: Callable[[Any, Any], Any] = ORDERS.get(comparison.operator, operator.eq)
    for limit in limits:
        out |= compare(column, limit)
    out &= there
    if seen is not None and there.any():
        held = set(np.unique(column[out]).tolist()) if comparison.operator in VALUED else set()
        seen.matched |= {one for one in comparison.operands if _limit(one, whole=whole) in held}
        seen.kinds.add("number")
        for entry in column[there][: max(0, SHOWN - len(seen.others))].tolist():
            seen.others.setdefault(canonical(entry))
    return out


def limits_of(comparison: ColumnTest, *, whole: bool) -> list[int | float]:
    """Return the numbers of a comparison; of a column of ``whole`` numbers the exact ones."""
    limits = (_limit(one, whole=whole) for one in comparison.operands)
    # infinity is compared as a value alone, as it is where it is a text
    ordered = comparison.operator not in VALUED
    return [one for one in limits if one is not None and not (ordered and math.isinf(one))]


def _limit(value: str, *, whole: bool) -> int | float | None:
    """Return the number that a value is, infinity too where a column can hold it; None where it is none."""
    if not whole and value in INFINITE:
        return float(value)
    if whole and re.fullmatch(r"-?(0|[1-9]\d{0,17})", value):
        return int(value)
    return as_number(value)


def check_observed(observed: Mapping[ColumnTest, Observed], where: str) -> Iterator[str]:
    """Yield notes on values that no row has.

    A UsageError where a comparison can meet no row, since all entries are of another kind than its values.
    """
    words = {"number": "numbers", "truth": "True and False", "text": "texts"}
    for comparison, seen in observed.items():
        wanted = {kind_of(value) for value in comparison.operands}
        if seen.kinds and not wanted & seen.kinds and not seen.matched:
            own = " and ".join(words[kind] for kind in sorted(seen.kinds))
            example = next(iter(seen.others), "")
            like = replace(comparison, operator="==", operands=(example,))
            raise UsageError(
                f"`where`: {comparison} matches no row: column {comparison.column!r} of {where} holds {own}, such as "
                f"{example!r}; compare it with such a value, as in {like}"
            )
        if comparison.operator not in VALUED or not seen.kinds:
            continue
        for value in comparison.operands:
            if value not in seen.matched:
                hint = _hint(value, seen)
                yield f"no row has {value!r} in column {comparison.column!r}, which `where` names{hint}"


def _hint(value: str, seen: Observed) -> str:
    """Return the value that is meant, or some that are there."""
    others = list(seen.others)
    if hint := did_you_mean(value, others):
        return hint
    return f"; it holds {', '.join(map(repr, others[:SHOWN]))}" + ", ..." * (len(others) > SHOWN)


# ---------------------------------------------------------------------- sources


class FilteredSource(DerivedSource):
    """The rows of another source that meet a condition; they are counted when the source is made.

    Rows are numbered among those that meet it.
    """

    def __init__(self, source: Source, condition: Condition) -> None:
        super().__init__(source)
        self._condition, self._names = condition, columns_of(condition)
        require_columns(self._names, source)
        observed = observing(condition)
        self._first, rows, read = list[int](), 0, 0
        before: dict[str, int] = {}
        for part in source.parts(self._names, self._types()):
            self._first.append(before.get(part.where, 0))
            for batch in part.batches():
                met = int(np.count_nonzero(mask_of(batch, condition, observed)))
                before[part.where] = before.get(part.where, 0) + met
                rows, read = rows + met, read + batch.num_rows
        self.rows = self.about_rows = rows
        self.left_out = read - rows
        self.notes = tuple(check_observed(observed, self.name))
        require_rows(rows, read, condition, self)

    def _types(self) -> dict[str, pa.DataType]:
        """Return the types that a text file is read as: numbers only where their notation needs it."""
        coded = pa.dictionary(pa.int32(), pa.string())
        spelt = (name for name in self._names if self.source.spells(name) and name not in self.doubtful)
        return {**dict.fromkeys(self._names, coded), **dict.fromkeys(spelt, pa.float64())}

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return the parts of the source with the rows that meet the condition."""
        inner, own = list(dict.fromkeys((*columns, *self._names))), self._types()
        held = {name: kind for name, kind in own.items() if pa.types.is_floating(kind)}
        parts = self.source.parts(inner, {**own, **types, **held})
        meeting = partial(_meeting, columns=list(columns), condition=self._condition)
        return [
            part.mapped(
                meeting,
                where=f"the rows of {part.where} that meet {str(self._condition)!r}",
                first_row=first,
            )
            for part, first in zip(parts, self._first, strict=True)
        ]


def _meeting(batch: pa.RecordBatch, columns: list[str], condition: Condition) -> pa.RecordBatch:
    met, rows = mask_of(batch, condition), batch.select(columns)
    return rows if met.all() else rows.filter(arrow_array(met))


def filtered(source: Source, condition: Condition) -> Source:
    """Return the rows of a source that meet a condition; a database filters its own."""
    if not source.answers:
        return FilteredSource(source, condition)
    from fairfix.data.query_filter import filtered_table

    return filtered_table(source, condition)


def absent_values(source: Source, column: str, levels: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each value that no row has in a column, and a hint at what it has; one pass over the column."""
    comparison = ColumnTest(column, "in", tuple(levels))
    observed = {comparison: Observed()}
    if source.answers:
        from fairfix.data.query_filter import observe

        observe(source, observed)
    else:
        for batch in source.batches([column], {column: pa.dictionary(pa.int32(), pa.string())}):
            mask_of(batch, comparison, observed)
    seen = observed[comparison]
    for value in levels:
        if value not in seen.matched:
            yield value, _hint(value, seen)


def observing(condition: Condition) -> dict[ColumnTest, Observed]:
    """Return what is to be filled in while the entries of a condition's columns are looked at."""
    made = [
        replace(one, operator=OPPOSITES.get(one.operator, one.operator)) for one in comparisons(condition)
    ]
    return {one: Observed() for one in made if one.operator in (*VALUED, *ORDERS)}


def require_columns(names: Sequence[str], source: Source) -> None:
    """Raise where a column of a condition is not there, there twice, or holds no values that can be compared."""
    try:
        source.require(names)
    except ColumnError as error:
        raise ColumnError(f"`where`: {error.text}", error.listing).without_values() from None
    for name in names:
        kind = source.schema.field(name).type
        if pa.types.is_nested(kind) and not pa.types.is_dictionary(kind):
            raise ColumnError(f"`where`: column {name!r} is of type {kind}, whose values cannot be compared")


def require_rows(rows: int, read: int, condition: Condition, source: Source) -> None:
    """Raise a DataError where no row meets a condition."""
    if read and not rows:
        more = "".join(f"; {note}" for note in source.notes)
        raise DataError(f"none of the {read:,} rows of {source.name} meets `where`: {condition}{more}")
