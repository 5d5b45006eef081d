"""Notations of numbers in text: thousands and decimal signs, which one value alone may not tell apart.

``12.500`` is 12.5 or 12,500. All values of a column decide, then the decimal sign that other columns of the file show.
What stays open is refused where a number is needed, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

SIGNS = (".", ",")
"""Signs that separate decimals or thousands, depending on who writes."""

THOUSANDS = r"[.,'’ \u00a0\u202f]"
"""Signs between thousands: also apostrophes and blanks, which are never decimal signs."""

GROUPED = re.compile(rf"[+-]?[1-9]\d{{0,2}}({THOUSANDS})\d{{3}}(?:\1\d{{3}})*(?:(?!\1)([.,])\d+)?")
DECIMAL = re.compile(r"[+-]?(?:\d+([.,])\d*|([.,])\d+)(?:[eE][+-]?\d+)?")
WHOLE = re.compile(r"[+-]?\d+(?:[eE][+-]?\d+)?")
UNIT = re.compile(
    r"^[(\s]+|[)\s]+$|[$€£¥₹₩₺₽¢%‰\u00a4]|\b(?:AUD|CAD|CHF|CNY|EUR|GBP|INR|JPY|NZD|USD)\b|^Rs\.?(?=\s*\d)|\bkr\.?$"
)
"""What stands beside a number with a unit: a currency or percent sign, or the brackets of a negative amount."""

SUSPECT = re.compile(
    rf"[1-9]\d{{0,2}}{THOUSANDS}\d{{3}}(?!\d)|\d\s*[%‰]|[$€£¥₹₩₺₽¢\u00a4]|[A-Z]{{3}}\s*[-+]?\d|\d\s*(?:[A-Z]{{3}}|kr)\b|\d,\d"
)
"""Text that may hold such numbers; most files have none, and nothing is looked at there."""

MISSING = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
        *("N/A", "NA", "NULL", "NaN", "n/a", "nan", "null", "inf", "-inf", "+inf", "Infinity", "-Infinity"),
    )
)
"""Entries of a column of numbers that show no notation."""


@dataclass
class Seen:
    """What the values of a column show; each entry keeps one of them, for messages."""

    text: bool = False
    """Whether a value is no number in any notation."""
    unit: str = ""
    """A number with a currency, a percent sign or brackets."""
    whole: bool = False
    """Whether a number has no sign."""
    open: dict[str, str] = field(default_factory=dict)
    """Sign -> number that it may separate into thousands or decimals, such as 12.500."""
    decimal: dict[str, str] = field(default_factory=dict)
    """Sign -> number of which it separates decimals for sure."""
    thousands: dict[str, str] = field(default_factory=dict)
    """Sign -> number of which it separates thousands for sure."""

    def add(self, cells: Iterable[str]) -> None:
        """Look at some more entries, up to one that is no number."""
        for value in cells:
            cell = value.strip()
            if self.text or cell in MISSING:
                continue
            if WHOLE.fullmatch(cell):
                self.whole = True
            elif grouped := GROUPED.fullmatch(cell):
                sign, decimal = grouped[1], grouped[2]
                if sign in SIGNS and not decimal and cell.count(sign) == 1:
                    self.open.setdefault(sign, cell)
                else:
                    self.thousands.setdefault(sign, cell)
                    if decimal:
                        self.decimal.setdefault(decimal, cell)
            elif real := DECIMAL.fullmatch(cell):
                self.decimal.setdefault(real[1] or real[2], cell)
            elif is_number(UNIT.sub("", cell)):
                self.unit = self.unit or cell
            else:
                self.text = True

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
    """How a column of numbers is written; ``doubt`` says why it cannot be read as numbers, or is empty."""

    decimal: str = "."
    thousands: str = ""
    doubt: str = ""
    note: str = field(default="", compare=False)
    """How a value is read, where other columns decide."""

    def number(self, value: str) -> float | None:
        """Return the number that a value is, NaN where it is missing, None where it is no number so written."""
        cell = value.strip()
        if cell in MISSING:
            return float(cell) if cell.strip("+-").lower().startswith(("inf", "nan")) else float("nan")
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
    if seen.unit:
        return Notation(
            doubt=f"holds {seen.unit!r}, a number with a unit; remove the unit, or leave the column out "
            "(for percentages, say `score_scale=percent` then)"
        )
    between = {*seen.thousands}
    if sign is None and len(between & {*SIGNS}) == 1:
        sign = other(*(between & {*SIGNS}))
    if sign is None and seen.open:
        return _open(*next(iter(seen.open.items())), others=False)
    sign = sign or "."
    between |= {one for one in seen.open if one != sign}
    if {*seen.decimal} - {sign} or sign in between or len(between) > 1:
        examples = " and ".join(
            map(repr, dict.fromkeys((*seen.thousands.values(), *seen.open.values(), *seen.decimal.values())))
        )
        return Notation(
            doubt=f"holds {examples}: no number in one notation with {sign!r} as decimal sign; write all numbers "
            f"alike without thousands signs, or say `decimal={other(sign)}` if that is the decimal sign"
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
    so = f"write {whole} in the file" if others else f"say `decimal={other(sign)}`"
    return Notation(
        doubt=f"holds {example!r}; say `decimal={sign}` if that is {part}, or {so} if it is {whole}"
    )
