"""A program as a query of SQL: standard expressions only, numbers as doubles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairfix.data.canonical import spellings, stems
from fairfix.data.choices import Database
from fairfix.errors import UsageError
from fairfix.models.program import Step, names_of

ROW = "fairfix_row"
"""Alias of whatever a layer reads. Every column is qualified by it: SQLite takes a quoted name that is no column for a
text.
"""

LONG, SHORT = 80, 24
"""Characters beyond which an expression becomes a column of its own: one that is used twice, and one that is compared
with many numbers.
"""


@dataclass(frozen=True)
class SqlDialect:
    """Notation of a database for names, texts and types."""

    quote: str = '""'
    text: str = "VARCHAR"
    double: str = "DOUBLE PRECISION"
    backslash: bool = False
    """Whether a backslash in a text begins an escape."""
    escaped_names: bool = False
    """Whether names are escaped as texts are (BigQuery)."""
    one_line: bool = False
    """Whether a text may hold no line break, and is written with an escape (BigQuery)."""
    shorn: str = "RTRIM({}, '0')"
    """A text without the zeros at its end."""
    layer: str = "AS MATERIALIZED"
    """Start of a layer: databases that merge layers would compute a column once for each use."""

    def name(self, column: str) -> str:
        """Return a quoted name; a UsageError where no name can hold it."""
        first, last = self.quote[0], self.quote[1]
        column = self._escaped(column, last) if self.escaped_names else column.replace(last, last * 2)
        return first + _without_nul(column) + last

    def column(self, name: str) -> str:
        """Return a column of the row that is read."""
        return f"{ROW}.{self.name(name)}"

    def literal(self, text: str) -> str:
        """Return a quoted text; a UsageError where no text can hold it."""
        text = self._escaped(text, "'") if self.backslash else text.replace("'", "''")
        return f"'{_without_nul(text)}'"

    def _escaped(self, text: str, quote: str) -> str:
        text = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
        return text.replace("\n", "\\n").replace("\r", "\\r") if self.one_line else text


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise UsageError(
            f"{text!r} holds the character NUL, which SQL cannot write; rename it and repair again"
        )
    return text


DIALECTS: Mapping[Database, SqlDialect] = {
    "duckdb": SqlDialect(),
    "postgresql": SqlDialect(),
    "sqlite": SqlDialect(text="TEXT", double="REAL"),
    "snowflake": SqlDialect(backslash=True, layer="AS"),
    "bigquery": SqlDialect(
        "``", "STRING", "FLOAT64", backslash=True, escaped_names=True, one_line=True, layer="AS"
    ),
    "spark": SqlDialect(
        "``", "STRING", "DOUBLE", backslash=True, shorn="TRIM(TRAILING '0' FROM {})", layer="AS"
    ),
}
"""Databases whose SQL is known."""


def query(
    steps: Sequence[Step], results: Mapping[str, int], columns: Sequence[str], table: str, dialect: Database
) -> str:
    """Return a query that gives results for the rows of a table.

    Parameters
    ----------
    results
        Name -> number of the step.
    columns
        Columns of the table that are returned as well.
    """
    own = DIALECTS[dialect]
    writer = _SqlWriter(steps, own)
    kept = [own.column(column) for column in columns]
    final = [f"{writer.texts[place]} AS {own.name(name)}" for name, place in results.items()]
    layers, source = [], own.name(table)
    for i, layer in enumerate(writer.layers, 1):
        made = ",\n    ".join(
            ["*", *(f"{text} AS {writer.dialect.name(f'fairfix_{step}')}" for step, text in layer)]
        )
        layers.append(f"fairfix_step_{i} {own.layer} (\n  SELECT\n    {made}\n  FROM {source} AS {ROW}\n)")
        source = f"fairfix_step_{i}"
    head = "WITH " + ",\n".join(layers) + "\n" if layers else ""
    return head + "SELECT\n  " + ",\n  ".join([*kept, *final]) + f"\nFROM {source} AS {ROW}\n"


class _SqlWriter:
    """Writes steps one after the other; those that are long and used twice become columns of layers."""

    def __init__(self, steps: Sequence[Step], dialect: SqlDialect) -> None:
        self.dialect = dialect
        uses, compared = [0] * len(steps), set()
        for step in steps:
            for one in step.of:
                uses[one] += 2 if step.operation in _CUTS else 1
            compared |= set(step.of) if step.operation in ("search", "take", "trees") else set()
        self.texts: list[str] = []
        self.layers: list[list[tuple[int, str]]] = []
        depth: list[int] = []  # layers below a step
        for i, step in enumerate(steps):
            text = self._text(step, [self.texts[one] for one in step.of], steps)
            below = max((depth[one] for one in step.of), default=0)
            often = (uses[i] > 1 and len(text) > LONG) or (i in compared and len(text) > SHORT)
            if often and step.operation not in _TRUTHS:
                if below == len(self.layers):
                    self.layers.append([])
                self.layers[below].append((i, text))
                text, below = self.column(i), below + 1
            self.texts.append(text)
            depth.append(below)

    def column(self, step: int) -> str:
        """Return the column of a step."""
        return self.dialect.column(f"fairfix_{step}")

    def _text(self, step: Step, of: list[str], steps: Sequence[Step]) -> str:
        own, name = step.settings, self.dialect.column
        if step.operation in _CUTS and steps[step.of[1]].operation == "constant":
            sign, cut = _CUTS[step.operation], of[1]
            return f"(CASE WHEN {of[0]} {sign} {cut} THEN {cut} ELSE {of[0]} END)"
        if step.operation in _FORMS:
            return _FORMS[step.operation].format(*of)
        if (level := _level_of(step, steps)) is not None:
            return self._cases(level.settings, [number(one) for one in step.settings["numbers"]])
        match step.operation:
            case "number" if own["kind"] == "boolean":
                column = name(own["column"])
                return f"(CASE WHEN {column} IS NULL THEN NULL WHEN {column} THEN 1e0 ELSE 0e0 END)"
            case "number":
                return f"CAST({name(own['column'])} AS {self.dialect.double})"
            case "level":
                return self._cases(own, [number(i) for i in range(-1, len(own["levels"]))])
            case "draw":
                return f"CAST({name('fairfix_draw')} AS {self.dialect.double})"
            case "constant":
                return number(own["value"])
            case "dot":
                terms = (f"{x} * {number(w)}" for x, w in zip(of, own["weights"], strict=True))
                return "(" + " + ".join(terms) + ")"
            case "search":
                sign = "<" if own["right"] else "<="
                cuts = [f"{of[0]} {sign} {number(one)}" for one in own["grid"]]
                return _branches(cuts, [number(i) for i in range(len(cuts) + 1)])
            case "take":
                numbers = own["numbers"]
                cuts = [f"{of[0]} < {number(i)}" for i in range(1, len(numbers))]
                return _branches(cuts, [number(one) for one in numbers])
            case "trees":
                walks = (self._tree(own, root, of) for root in own["roots"])
                return "(" + " + ".join([number(own["start"]), *walks]) + ")"
            case _:
                raise AssertionError(step.operation)

    def _cases(self, own: Mapping[str, Any], leaves: Sequence[str]) -> str:
        """Return the case of each level of a text; the first leaf is that of any other text."""
        text = f"COALESCE(CAST({self.dialect.column(own['column'])} AS {self.dialect.text}), '(missing)')"
        meant = zip(names_of(own), leaves[1:], strict=True)
        pairs = [(name, leaf) for names, leaf in meant for name in names]
        if all(spellings(name) == (name,) and not stems(name) for name, _ in pairs):
            cases = " ".join(f"WHEN {self.dialect.literal(name)} THEN {leaf}" for name, leaf in pairs)
            return f"(CASE {text} {cases} ELSE {leaves[0]} END)"
        cases = " ".join(f"WHEN {self._means(text, name)} THEN {leaf}" for name, leaf in pairs)
        return f"(CASE {cases} ELSE {leaves[0]} END)"

    def _means(self, text: str, level: str) -> str:
        """Return the condition that a text means a level: the number 1 may be written 1.00, and True as true."""
        whole, shorn = (", ".join(map(self.dialect.literal, part(level))) for part in (spellings, stems))
        out = f"{text} IN ({whole})"
        return f"({out} OR {self.dialect.shorn.format(text)} IN ({shorn}))" if shorn else out

    def _tree(self, own: Mapping[str, Any], at: int, of: Sequence[str]) -> str:
        if own["left"][at] == at:
            return number(own["value"][at])
        entry = of[own["feature"][at]]
        condition = f"{entry} <= {number(own['threshold'][at])}"
        condition += f" OR {entry} IS NULL" if own["missing_left"][at] else ""
        left, right = (self._tree(own, own[side][at], of) for side in ("left", "right"))
        return f"(CASE WHEN {condition} THEN {left} ELSE {right} END)"


_FORMS = {
    "add": "({} + {})",
    "subtract": "({} - {})",
    "multiply": "({} * {})",
    "divide": "({} / {})",
    "minimum": "(CASE WHEN {0} > {1} THEN {1} WHEN {1} IS NULL THEN NULL ELSE {0} END)",
    "maximum": "(CASE WHEN {0} < {1} THEN {1} WHEN {1} IS NULL THEN NULL ELSE {0} END)",
    "exp": "EXP({})",
    "log": "LN({})",
    "below": "({} < {})",
    "at_most": "({} <= {})",
    "equal": "({} = {})",
    "is_missing": "({} IS NULL)",
    "choose": "(CASE WHEN {} THEN {} ELSE {} END)",
}

_CUTS = {"minimum": ">", "maximum": "<"}
"""Operators with a constant, which is not missing."""


def _level_of(step: Step, steps: Sequence[Step]) -> Step | None:
    """Return the step of the level, plus 1, that a number is looked up for; None where it is something else."""
    place = steps[step.of[0]] if step.operation == "take" else None
    if place is None or place.operation != "add":
        return None
    level, one = (steps[i] for i in place.of)
    return level if level.operation == "level" and one.settings.get("value") == 1.0 else None


_TRUTHS = ("below", "at_most", "equal", "is_missing")


def number(value: float) -> str:
    """Return a number with an exponent, which every database reads as a double and not as a decimal; NULL for NaN."""
    if value != value:
        return "NULL"
    text = repr(float(value))
    text = text if "e" in text else text + "e0"
    return f"({text})" if value < 0 else text


def _branches(cuts: Sequence[str], leaves: Sequence[str]) -> str:
    """Return nested cases: leaf ``i`` where cut ``i`` is the first that holds, the last leaf where none does."""
    if not cuts or len(set(leaves)) == 1:
        return leaves[0]
    middle = len(cuts) // 2
    low = _branches(cuts[:middle], leaves[: middle + 1])
    high = _branches(cuts[middle + 1 :], leaves[middle + 1 :])
    return f"(CASE WHEN {cuts[middle]} THEN {low} ELSE {high} END)"
