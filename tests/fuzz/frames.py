"""Tables to fuzz with: columns of every Arrow type under every kind of name, and some whose parts a command can use."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

NAMES = (
    "line\nbreak",
    'quo"te',
    "com,ma",
    "semi;colon",
    "tab\there",
    "\x1b[31mred\x1b[0m",
    "right\u202eleft",
    "\u200f\u200bmark",
    "<script>alert(1)</script>",
    "%0A::error::x",
    "::error::x",
    "",
    " ",
    "n" * 10_000,
    "a]b",
    "a[b=c]",
    "a & b x c",
    "x=1;y",
    "back`tick`",
    "`data`",
    "{0} %s %(x)s",
    "\ufeffbom",
    "null\x00byte",
    "\x9b31m",
    "ünï 群体 ✔ 👩‍👩‍👧",
    "--label",
    "-",
    "1",
    "everybody",
    "p_positive",
    "decision",
    "$ref",
    "|pipe|",
    "*star*",
    "/slash",
    "..",
    "'",
    "\\",
    "é",
    "é",
)
"""Names of columns, and of groups, that tempt a reader, a shell, a terminal or a format."""

REACHABLE = tuple(name for name in NAMES if "\x00" not in name)
"""Those that an argument of a process can hold."""

NUMBERS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    math.inf,
    -math.inf,
    math.nan,
    5e-324,
    -2.2e-308,
    1.7e308,
    -1.7e308,
    2.0**53 + 2,
    2.0**63,
    1e-17,
    0.1,
    1 / 3,
    100.0,
)
"""Numbers at the edges of what a float is."""

WHOLE = (0, 1, -1, 2, 127, 255, 2**31 - 1, -(2**31), 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**64 - 1)
"""Whole numbers at the edges of types."""

ZONES = (
    "UTC",
    "Europe/Berlin",
    "+05:30",
    "-23:59",
    "Nowhere/Never",
    "",
    "utc+1",
    "America/Argentina/ComodRivadavia",
)
"""Time zones, some of which nobody knows."""

SIZES = (*range(5), *[20] * 9, *[40] * 6, *[60] * 14, *[100] * 8, *[200] * 6, 400, 900)
"""Rows of a table; a repair or an interval that says something needs some 60."""

TAKEN = ("", "p_positive", "decision")
"""Names with which a column can play no part, or that prediction adds; seldom drawn, since they end every run."""


class Unregistered(pa.ExtensionType):
    """A type of somebody else's."""

    def __init__(self) -> None:
        super().__init__(pa.int32(), "tests.fuzz.unregistered")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Unregistered:
        return cls()


def _clipped(low: int, high: int) -> Callable[[random.Random], int]:
    edges = [one for one in WHOLE if low <= one <= high]
    return lambda draw: (
        draw.choice(edges) if draw.random() < 0.5 else draw.randint(max(low, -9), min(high, 9))
    )


def _number(draw: random.Random) -> float:
    return draw.choice(NUMBERS) if draw.random() < 0.4 else draw.gauss(0, 3)


def _small(draw: random.Random) -> float:
    number = _number(draw)
    return number if abs(number) <= 65_504 or not math.isfinite(number) else 1.0


def _single(draw: random.Random) -> float:
    number = _number(draw)
    return number if abs(number) < 3e38 or not math.isfinite(number) else 1.0


def _text(draw: random.Random) -> str:
    return draw.choice(NAMES) if draw.random() < 0.4 else draw.choice("abc")


def _decimal(scale: int) -> Callable[[random.Random], decimal.Decimal]:
    return lambda draw: decimal.Decimal(draw.choice((0, 1, -1, 7, 10**9, 999, -(10**8)))).scaleb(-scale)


def _ticks(draw: random.Random) -> int:
    return draw.choice(
        (0, 1, -1, 86_400, 10**12, 2**62, -(2**62), 2**63 - 1, -(2**63), draw.randint(-(10**9), 10**9))
    )


def _zone(draw: random.Random) -> str:
    return draw.choice(ZONES)


def _plain(kind: pa.DataType, one: Callable[[random.Random], Any]) -> Callable[..., pa.Array]:
    def make(draw: random.Random, rows: int, gaps: float) -> pa.Array:
        pool = [one(draw) for _ in range(draw.choice((1, 2, 3, 30)))]
        return pa.array([None if draw.random() < gaps else draw.choice(pool) for _ in range(rows)], kind)

    return make


def _stamped(unit: str, zone: bool) -> Callable[..., pa.Array]:
    def make(draw: random.Random, rows: int, gaps: float) -> pa.Array:
        ints = _plain(pa.int64(), _ticks)(draw, rows, gaps)
        return ints.cast(pa.timestamp(unit, _zone(draw) or None if zone else None))

    return make


def _from_ints(kind: pa.DataType, low: int, high: int) -> Callable[..., pa.Array]:
    storage = pa.int32() if kind.bit_width == 32 else pa.int64()

    def make(draw: random.Random, rows: int, gaps: float) -> pa.Array:
        return _plain(storage, _clipped(low, high))(draw, rows, gaps).cast(kind)

    return make


def _dictionary(draw: random.Random, rows: int, gaps: float) -> pa.Array:
    if rows == 0 or draw.random() < 0.3:
        return _plain(pa.string(), _text)(draw, rows, gaps).dictionary_encode()
    pool = [
        draw.choice(("a", "b", "b", None, *NAMES[:4])) for _ in range(4)
    ]  # perhaps one entry twice, or a null
    index = pa.array([None if draw.random() < gaps else draw.randrange(4) for _ in range(rows)], pa.int8())
    return pa.DictionaryArray.from_arrays(index, pa.array(pool, pa.string()), ordered=draw.random() < 0.3)


def _run_ends(draw: random.Random, rows: int, gaps: float) -> pa.Array:
    ends = list(range(1, rows + 1))
    return pa.RunEndEncodedArray.from_arrays(
        pa.array(ends, pa.int32()), _plain(pa.int64(), _clipped(0, 3))(draw, rows, gaps)
    )


def _extension(draw: random.Random, rows: int, gaps: float) -> pa.Array:
    kind = draw.choice((Unregistered(), pa.uuid(), pa.bool8(), pa.json_(pa.string())))
    entries = {
        "tests.fuzz.unregistered": lambda: draw.randint(0, 3),
        "arrow.uuid": lambda: uuid.UUID(int=draw.randint(0, 3)).bytes,
        "arrow.bool8": lambda: draw.randint(0, 1),
        "arrow.json": lambda: draw.choice(("{}", "1", "null")),
    }[kind.extension_name]
    return pa.ExtensionArray.from_storage(
        kind, _plain(kind.storage_type, lambda _: entries())(draw, rows, gaps)
    )


def _viewed(
    kind: pa.DataType, of: pa.DataType, one: Callable[[random.Random], Any]
) -> Callable[..., pa.Array]:
    return lambda draw, rows, gaps: _plain(of, one)(draw, rows, gaps).cast(kind)


COLUMNS: dict[str, Callable[..., pa.Array]] = {
    **{
        f"{sign}int{bits}": _plain(
            getattr(pa, f"{sign}int{bits}")(),
            _clipped(0 if sign else -(2 ** (bits - 1)), 2**bits - 1 if sign else 2 ** (bits - 1) - 1),
        )
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    "half": _plain(pa.float16(), _small),
    "float": _plain(pa.float32(), _single),
    "double": _plain(pa.float64(), _number),
    "decimal32": _plain(pa.decimal32(9, 0), lambda draw: decimal.Decimal(draw.randint(0, 3))),
    "decimal128": _plain(pa.decimal128(38, 4), _decimal(4)),
    "decimal256": _plain(pa.decimal256(76, 2), _decimal(2)),
    "bool": _plain(pa.bool_(), lambda draw: draw.random() < 0.5),
    "string": _plain(pa.string(), _text),
    "large_string": _plain(pa.large_string(), _text),
    "string_view": _viewed(pa.string_view(), pa.string(), _text),
    "binary": _plain(pa.binary(), lambda draw: draw.choice((b"", b"\xff\xfe", b"a", b"\x00"))),
    "binary_view": _viewed(pa.binary_view(), pa.binary(), lambda draw: draw.choice((b"", b"\xff", b"a"))),
    "fixed_binary": _plain(pa.binary(2), lambda draw: draw.choice((b"\x00\x00", b"\xff\xff", b"ab"))),
    "date32": _from_ints(pa.date32(), -(2**31), 2**31 - 1),
    "date64": lambda draw, rows, gaps: _plain(
        pa.date32(), lambda d: dt.date(d.choice((1, 1970, 9999)), 1, 1)
    )(draw, rows, gaps).cast(pa.date64()),
    "time32": _from_ints(pa.time32("s"), 0, 86_399),
    "time64": _from_ints(pa.time64("ns"), 0, 86_399),
    **{f"timestamp_{unit}": _stamped(unit, False) for unit in ("s", "ns")},
    **{f"timestamp_{unit}_zone": _stamped(unit, True) for unit in ("s", "us")},
    **{
        f"duration_{unit}": lambda draw, rows, gaps, unit=unit: _plain(pa.int64(), _ticks)(
            draw, rows, gaps
        ).cast(pa.duration(unit))
        for unit in ("s", "ns")
    },
    "interval": _plain(
        pa.month_day_nano_interval(),
        lambda draw: pa.scalar((draw.randint(-9, 9), 1, 0), pa.month_day_nano_interval()).as_py(),
    ),
    "dictionary": _dictionary,
    "list": _plain(pa.list_(pa.int8()), lambda draw: [draw.randint(0, 1)] * draw.randint(0, 2)),
    "struct": _plain(pa.struct([("a", pa.int8())]), lambda draw: {"a": draw.randint(0, 2)}),
    "map": _plain(pa.map_(pa.string(), pa.int8()), lambda draw: [("k", draw.randint(0, 2))]),
    "null": lambda draw, rows, gaps: pa.nulls(rows),
    "run_ends": _run_ends,
    "extension": _extension,
}
"""Every kind of column: a draw, rows and the share of gaps -> an array."""

GROUP_TYPES = (
    "string",
    "string",
    "string",
    "large_string",
    "string_view",
    "dictionary",
    "int",
    "bool",
    "float",
    "date",
    "decimal",
)
LABEL_TYPES = ("int", "int", "int8", "uint64", "bool", "float", "half", "string", "decimal", "dictionary")
SCORE_TYPES = ("double", "double", "double", "float", "half", "decimal", "string")


@dataclass
class Frame:
    """A table, and which of its columns can have which part; a part whose column was spoilt may be refused."""

    table: pa.Table
    parts: dict[str, list[str]] = field(default_factory=dict)
    spoilt: bool = False
    """Whether some entries or columns are odd, so that a refusal is no wonder."""


def _typed(values: list[Any], kind: str, draw: random.Random) -> pa.Array:
    """Return entries 0, 1, ... (or scores) as a column of a kind."""
    if kind in ("string", "large_string", "string_view", "dictionary"):
        named = values
        if values and isinstance(values[0], int):
            pool = (
                draw.sample(NAMES, 6)
                if draw.random() < 0.3
                else draw.choice((list("abcdef"), list("012345")))
            )
            named = [pool[v % 6] for v in values]
        texts = pa.array([str(v) for v in named], pa.string())
        if kind == "dictionary":
            return texts.dictionary_encode()
        return texts.cast(
            {"string": pa.string(), "large_string": pa.large_string(), "string_view": pa.string_view()}[kind]
        )
    if kind == "date":
        return pa.array(values, pa.int32()).cast(pa.date32())
    if kind == "decimal":
        return pa.array([decimal.Decimal(str(round(v, 6))) for v in values], pa.decimal128(20, 6))
    if kind == "bool":
        return pa.array([bool(v % 2) for v in values], pa.bool_())
    types = {"int": "int64", "float": "float32", "half": "float16", "double": "float64"}
    array = pa.array([float(v) for v in values], pa.float64())
    return array.cast(getattr(pa, types.get(kind, kind))(), safe=False)


def frame(draw: random.Random) -> Frame:
    """Return a table of people with odd types and names, of which, most of the time, an audit can be made."""
    rows = draw.choice(SIZES)
    tame = draw.random() < 0.85
    groups = draw.choice((2, 2, 2, 2, 3, 3, 5) if tame and draw.random() < 0.9 else (1, 2, 3))
    parts: dict[str, list[str]] = {}
    columns: list[tuple[str, pa.Array]] = []

    def add(part: str, name: str, array: pa.Array) -> None:
        taken = {one for one, _ in columns}
        if draw.random() < (0.12 if tame else 0.3):
            name = draw.choice(NAMES if part == "odd" else REACHABLE)
            if name in TAKEN and draw.random() < 0.8:
                name = draw.choice([one for one in REACHABLE if one not in TAKEN])
        while name in taken and (tame or draw.random() < 0.9):  # else a name twice
            name += "2"
        parts.setdefault(part, []).append(name)
        columns.append((name, array))

    constant = draw.random() < 0.05
    race = [draw.randrange(groups) for _ in range(rows)]
    score = [min(max(draw.betavariate(2, 2) + 0.05 * g, 0.0), 1.0) for g in race]
    if draw.random() < 0.4:
        score = [round(one, draw.choice((1, 2))) for one in score]
    label = [int(draw.random() < one) for one in score]
    if constant:
        label, score = [draw.randint(0, 1)] * rows, [0.5] * rows

    def gapped(array: pa.Array) -> pa.Array:
        if draw.random() > (0.03 if tame else 0.2) or not rows:
            return array
        at = draw.randrange(rows)
        try:
            return pa.concat_arrays([array[:at], pa.nulls(1, array.type), array[at + 1 :]])
        except pa.ArrowNotImplementedError:
            return array

    def kind(kinds: tuple[str, ...]) -> str:
        """Return a kind, most often the first; no text for numbers, which only CSV bears, but now and then."""
        chosen = kinds[0] if draw.random() < 0.5 else draw.choice(kinds)
        return kinds[0] if kinds is SCORE_TYPES and chosen == "string" and draw.random() < 0.7 else chosen

    def typed(part: str, name: str, values: list[Any], kinds: tuple[str, ...]) -> None:
        add(part, name, gapped(_typed(values, kind(kinds) if kinds[1:] else kinds[0], draw)))

    typed("group", "race", race, GROUP_TYPES)
    typed("group", "sex", [draw.randrange(2) for _ in range(rows)], GROUP_TYPES)
    typed("label", "label", label, LABEL_TYPES)
    typed("score", "score", score, SCORE_TYPES)
    typed("score", "old", [min(1.0, max(0.0, s + draw.gauss(0, 0.1))) for s in score], SCORE_TYPES)
    typed("prediction", "yes", [int(s >= 0.5) for s in score], LABEL_TYPES)
    typed("probability", "p_yes", [round(draw.random(), 3) for _ in range(rows)], ("double",))
    weights = [draw.choice((1, 2, 0.5, 3)) for _ in range(rows)]
    typed("weight", "weight", weights, ("double", "int", "half", "decimal"))
    ids = (
        list(range(rows)) if draw.random() < 0.8 else [draw.randrange(max(rows // 2, 1)) for _ in range(rows)]
    )
    add(
        "id",
        "id",
        _typed(ids, draw.choice(("int", "int", "decimal")), draw)
        if draw.random() < 0.5
        else pa.array([f"p{i}" for i in ids], pa.string()),
    )
    typed("stratum", "town", [draw.randrange(2) for _ in range(rows)], GROUP_TYPES)
    ages = [draw.randint(18, 90) for _ in range(rows)]
    typed("number", "age", ages, ("int", "double", "half", "decimal", "uint64"))
    typed("number", "real", [draw.gauss(3, 2) for _ in range(rows)], ("double",))
    for k in range(groups):
        many = (
            [1.0 / groups] * rows
            if draw.random() < 0.3
            else [0.9 if g == k else 0.1 / max(groups - 1, 1) if groups > 1 else 1.0 for g in race]
        )
        add("membership", f"is{k}", _typed(many, "double", draw))
    odd = draw.choice((0, 0, 1, 3)) if tame else draw.choice((1, 3, 8))
    for at in range(odd):
        add(
            "odd",
            f"odd{at}",
            draw.choice(list(COLUMNS.values()))(draw, rows, draw.choice((0.0, 0.0, 0.2, 1.0))),
        )
    if not tame:
        for _ in range(draw.choice((0, 1, 1, 2))):  # a part is of an odd type, or has odd entries
            at = draw.randrange(len(columns))
            columns[at] = (
                columns[at][0],
                draw.choice(list(COLUMNS.values()))(draw, rows, draw.choice((0.0, 0.1))),
            )
    order = draw.sample(range(len(columns)), len(columns))
    table = pa.Table.from_arrays([columns[i][1] for i in order], names=[columns[i][0] for i in order])
    return Frame(table, parts, not tame)
