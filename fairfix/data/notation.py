"""Notations of numbers in text: thousands and decimal signs, which one value alone may not tell apart.

``12.500`` is 12.5 or 12,500. All values of a column decide, then the decimal sign that other columns of the file show.
What stays open is refused where a number is needed, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fairfix.data.merging import SIGNS as MARKS

SIGNS = (".", ",")
"""Signs that separate decimals or thousands, depending on who writes."""

THOUSANDS = r"[.,'’ \u00a0\u202f]"
"""Signs between thousands: also apostrophes and blanks, which are never decimal signs."""

GROUPED = re.compile(rf"[+-]?[1-9]\d{{0,2}}({THOUSANDS})\d{{3}}(?:\1\d{{3}})*(?:(?!\1)([.,])\d+)?")
DECIMAL = re.compile(r"[+-]?(?:\d+([.,])\d*|([.,])\d+)(?:[eE][+-]?\d+)?")
CODE = re.compile(r"[+-]?0\d")
WHOLE = re.compile(r"[+-]?\d+(?:[eE][+-]?\d+)?")
UNIT = re.compile(
    r"(?:[A-Z]{2})?[$€£¥₹₩₺₽¢%‰\u00a4]|\b(?:AUD|CAD|CHF|CNY|EUR|GBP|INR|JPY|NZD|USD)\b|^[-+]?Rs\.?(?=\s*\d)|\bkr\.?$"
)
"""A currency or percent sign next to a number."""

BRACKETS = re.compile(r"\(\s*([^()]+?)\s*\)")
"""A negative amount as accountants write it."""

MISSING = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
        *("N/A", "NA", "NULL", "NaN", "n/a", "nan", "null", "inf", "-inf", "+inf", "Infinity", "-Infinity"),
    )
)
"""Entries of a column of numbers that show no notation."""


def is_missing(cell: str) -> bool:
    """Tell whether an entry of a column of numbers is none: empty, infinite, or a mark such as ``?`` and ``N/A``."""
    return cell in MISSING or cell.lower() in MARKS


def bare(cell: str) -> tuple[str, str]:
    """Return a number without its unit and the brackets of a negative amount, and the unit."""
    inner = BRACKETS.fullmatch(cell)
    text = "-" + inner[1] if inner else cell
    unit = UNIT.search(text)
    if unit is None:
        return text, ""
    text = (text[: unit.start()].rstrip() + text[unit.end() :].lstrip()).strip()
    return re.sub(r"^([-+])\s+", r"\1", text), unit[0]


@dataclass
class Seen:
    """Evidence in the values of a column; each entry keeps one of them, for messages."""

    text: bool = False
    """Whether a value is no number in any notation."""
    units: dict[str, str] = field(default_factory=dict)
    """Unit, empty for none -> number with it, such as $1,200 or 87.3%."""
    brackets: str = ""
    """A negative number in brackets."""
    mark: str = ""
    """A mark of a missing value that is no empty text."""
    whole: bool = False
    """Whether a number has no sign."""
    code: bool = False
    """Whether a number begins with a 0 that says nothing, as in 01234."""
    open: dict[str, str] = field(default_factory=dict)
    """Sign -> number that it may separate into thousands or decimals, such as 12.500."""
    decimal: dict[str, str] = field(default_factory=dict)
    """Sign -> a value in which it certainly separates decimals."""
    thousands: dict[str, str] = field(default_factory=dict)
    """Sign -> a value in which it certainly separates thousands."""

    def add(self, cells: Iterable[str]) -> None:
        """Look at some more entries, up to one that is no number."""
        for value in cells:
            cell = value.strip()
            if self.text or is_missing(cell):
                self.mark = self.mark or ("" if cell in MISSING else cell)
                continue
            number, unit = cell, ""
            if not is_number(cell):
                number, unit = bare(cell)
                if not is_number(number):
                    self.text = True
                    continue
            self.units.setdefault(unit, cell)
            self.brackets = self.brackets or (cell if BRACKETS.fullmatch(cell) else "")
            self._add(number, cell)

    def _add(self, number: str, cell: str) -> None:
        """Look at a number without unit, of an entry."""
        if WHOLE.fullmatch(number):
            self.whole = True
            self.code = self.code or CODE.match(number) is not None
        elif grouped := GROUPED.fullmatch(number):
            sign, decimal = grouped[1], grouped[2]
            if sign in SIGNS and not decimal and number.count(sign) == 1:
                self.open.setdefault(sign, number)
            else:
                self.thousands.setdefault(sign, cell)
                if decimal:
                    self.decimal.setdefault(decimal, cell)
        elif real := DECIMAL.fullmatch(number):
            self.decimal.setdefault(real[1] or real[2], cell)

    @property
    def unit(self) -> str:
        """A number with a unit or in brackets, or an empty text."""
        return next((cell for unit, cell in self.units.items() if unit), self.brackets)

    @property
    def in_words(self) -> str:
        """A value that is not plain: the one that is hardest to read."""
        return self.unit or next(iter({**self.decimal, **self.open, **self.thousands}.values()))

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing that could be misread."""
        return self.text or not (self.unit or self.open or self.thousands or self.decimal)


def is_number(text: str) -> bool:
    """Tell whether a text is a number in some notation."""
    cell = text.strip()
    return bool(WHOLE.fullmatch(cell) or GROUPED.fullmatch(cell) or DECIMAL.fullmatch(cell))


def decimal_of(columns: Iterable[Seen]) -> str | None:
    """Return the decimal sign that columns of a file show; None where none does, or they differ."""
    signs = {sign for one in columns if not one.text for sign in one.decimal}
    return signs.pop() if len(signs) == 1 else None


@dataclass(frozen=True)
class Notation:
    """Notation of a column of numbers; ``doubt`` says why it cannot be read as numbers, or is empty."""

    decimal: str = "."
    thousands: str = ""
    doubt: str = ""
    unit: str = ""
    """Sign next to each number, such as a currency sign."""
    brackets: bool = False
    """Whether negative numbers stand in brackets."""
    note: str = field(default="", compare=False)
    """Reading of a value, where other columns decide."""

    def number(self, value: str) -> float | None:
        """Return the number that a value is, NaN where it is missing, None where it is no number so written."""
        cell = value.strip()
        if is_missing(cell):
            return float(cell) if cell.strip("+-").lower().startswith(("inf", "nan")) else float("nan")
        if self.unit or self.brackets:
            if not self.brackets and BRACKETS.fullmatch(cell):
                return None
            cell, unit = bare(cell)
            if unit != self.unit:
                return None
        grouped = GROUPED.fullmatch(cell)
        if self.thousands and grouped and grouped[1] == self.thousands and grouped[2] in (None, self.decimal):
            return float(cell.replace(self.thousands, "").replace(self.decimal, "."))
        real = DECIMAL.fullmatch(cell)
        if WHOLE.fullmatch(cell) or (real and (real[1] or real[2]) == self.decimal):
            return float(cell.replace(self.decimal, "."))
        return None


def notation_of(seen: Seen, decimal: str | None, shown: str | None) -> Notation:
    """Return how a column of numbers is written.

    Parameters
    ----------
    seen
        What all of its values show.
    decimal
        The decimal sign that the user states; None where nothing is stated.
    shown
        The decimal sign that the file shows in other columns or by its separator; None where it shows none.
    """
    own = next(iter(seen.decimal)) if len(seen.decimal) == 1 else None
    sign = decimal or own or shown
    if seen.is_plain:
        return Notation(sign or ".")
    if len(seen.units) > 1:
        doubt = f"holds {' and '.join(map(repr, list(seen.units.values())[:2]))}"
        return Notation(doubt=f"{doubt}: numbers with and without a unit, or with several; use one notation")
    if seen.unit:
        (unit,) = seen.units
        without = replace(seen, units={}, brackets="")
        return replace(notation_of(without, decimal, shown), unit=unit, brackets=bool(seen.brackets))
    between = {*seen.thousands}
    if sign is None and len(between & {*SIGNS}) == 1:
        sign = other(*(between & {*SIGNS}))
    if sign is None and seen.open:
        return _open(*next(iter(seen.open.items())), others=False)
    sign = sign or "."
    between |= {one for one in seen.open if one != sign}
    if {*seen.decimal} - {sign} or sign in between or len(between) > 1:
        written = (*seen.thousands.values(), *seen.open.values(), *seen.decimal.values())
        examples = " and ".join(map(repr, dict.fromkeys(written)))
        return Notation(
            doubt=f"holds {examples}: no number in one notation with {sign!r} as decimal sign; write all numbers "
            f"the same way without thousands signs, or set `decimal={other(sign)}` if that is the decimal sign"
        )
    thousands = "".join(between)
    if sign in seen.open and decimal is None and own is None:
        # who writes all decimals writes 800.000, who writes those needed 12.5: 12.500 beside 800 may be thousands
        if seen.whole:
            return _open(sign, seen.open[sign], others=shown is not None)
        return Notation(sign, thousands, note=f"{seen.open[sign]} is {_part(seen.open[sign], sign)}")
    return Notation(sign, thousands)


def other(sign: str) -> str:
    """Return the other sign that may separate decimals."""
    return "," if sign == "." else "."


def _part(example: str, sign: str) -> str:
    return example.replace(sign, ".").rstrip("0").rstrip(".")


def _open(sign: str, example: str, *, others: bool) -> Notation:
    """Return the doubt about a number; with ``others``, decimals in other columns have its sign."""
    whole, part = example.replace(sign, ""), _part(example, sign)
    so = f"write {whole} in the file" if others else f"set `decimal={other(sign)}`"
    doubt = f"holds {example!r}; set `decimal={sign}` if that is {part}, or {so} if it is {whole}"
    return Notation(doubt=doubt)
