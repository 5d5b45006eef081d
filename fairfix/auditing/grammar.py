"""The grammar of checks and constraints: of what metric, compared how, of whom, and within which limit.

::

    METRIC[.KIND][.SCOPE][[ATTRIBUTE[=GROUP]]] [<=|>=|<|> LIMIT]

``each`` for the attribute is each protected column by itself. A name with a sign of the grammar in it, or that is the
word ``each``, is in double quotes, with a double quote in it doubled: ``tpr["a]b"="5"" pipe"]>=0.6``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from fairfix.auditing.comparisons import EACH, Comparison
from fairfix.data.canonical import canonical_group
from fairfix.data.choices import Operator
from fairfix.data.names import QUOTED, unquoted, written_attribute
from fairfix.errors import UsageError

MIRRORED: Mapping[str, Operator] = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
"""Operator -> the same in the other direction."""

SIGNS: Mapping[str | None, Operator] = {sign: sign for sign in MIRRORED.values()}
"""Text of an operator -> the operator."""

NUMBERS = ("covariance", "decision_covariance")
"""Bounded statistic of a column of numbers."""

_OF = rf"\s*(?P<attribute>{QUOTED}|[^\]=\"][^\]=]*)?\s*(?:=\s*(?P<group>{QUOTED}|[^\]\"][^\]]*)\s*)?"
_CONDITION = re.compile(
    r"\s*(?P<subject>(?P<metric>[^\W\d]\w*)(?P<parts>(?:\.\w+)*)\s*(?:\[" + _OF + r"\])?)\s*"
    r"(?:(?P<operator>>=|<=|>|<)\s*(?P<limit>[^\s<>=,\[\]]+)\s*)?"
)
_TURNED = re.compile(r"\s*(?P<limit>[^\s<>=,\[\]]+)\s*(?P<operator>>=|<=|>|<)(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True)
class Condition:
    """A condition as it is written; ``operator`` and ``limit`` are empty where it has none."""

    written: str
    subject: str
    metric: str
    parts: tuple[str, ...]
    """Part after the metric: its kind and scope."""
    attribute: str | None
    group: str | None
    each: bool
    operator: Operator | Literal[""]
    limit: str

    def text(self, limit: str = "", operator: str = "") -> str:
        """Return the condition with another limit, or another operator."""
        return f"{self.subject}{operator or self.operator}{limit or self.limit}"

    @property
    def of_change(self) -> str | None:
        """The same condition without its word ``change``, which is empty before the limit alone; None without it."""
        *parts, last = self.metric, *self.parts
        before = ".".join(parts)
        where = self.subject[self.subject.find("[") :] if "[" in self.subject else ""
        return f"{before}{where}{self.operator}{self.limit}" if last == "change" else None

    def limit_on(self, of: Comparison) -> float:
        """Return the limit as a number; 10% is 0.1 where the value is a fraction. UsageError where it is none."""
        fraction = of.kind == "ratio" or of.entry.percent
        number = self.limit.removesuffix("%") if fraction else self.limit
        try:
            value = float(number) / (1.0 if number == self.limit else 100.0)
        except ValueError:
            value = math.nan
        if not fraction and self.limit.endswith("%"):
            raise UsageError(
                f"the limit {self.limit!r} is a percentage, which is for rates and ratios; {of.id} is neither, so "
                "write a plain number"
            )
        if not math.isfinite(value):
            raise UsageError(f"the limit {self.limit!r} is not a number")
        if fraction and abs(value) > 1.0:
            error = f"{of.id} is at most 1, and the limit is {value:g}"
            if not 2.0 <= value <= 100.0:
                raise UsageError(error)
            right = self.text(f"{value / 100:g}")
            raise UsageError(f"{error}; write '{right}' for {value:g}%").proposing((self.written, right))
        return value


def read(text: str) -> list[Condition]:
    """Return the conditions of a text, which are separated by commas; none where it cannot be read."""
    out, at = list[Condition](), 0
    while match := _CONDITION.match(text, at):
        attribute, group = match["attribute"], match["group"]
        out.append(
            Condition(
                match[0].strip(),
                match["subject"].strip(),
                match["metric"],
                tuple(match["parts"].split(".")[1:]),
                _attribute(attribute),
                canonical_group(unquoted(group)) or None if group else None,
                (attribute or "").strip() == EACH,
                SIGNS.get(match["operator"], ""),
                match["limit"] or "",
            )
        )
        if match.end() == len(text):
            return out
        if text[match.end()] != ",":
            return []
        at = match.end() + 1
    return []


def read_one(text: str) -> Condition | None:
    """Return the condition that a text is; None where it is none, or several."""
    conditions = read(text)
    return conditions[0] if len(conditions) == 1 else None


def _attribute(text: str | None) -> str | None:
    """Return the name of an attribute; None where none is named, or each is meant."""
    plain = (text or "").strip()
    if not plain or plain == EACH:
        return None
    return unquoted(plain) if plain.startswith('"') else written_attribute(plain)


def turned(text: str) -> str:
    """Return ``dp.ratio>=0.8`` for ``0.8<=dp.ratio``; empty where the text is no such condition."""
    match = _TURNED.fullmatch(text)
    made = f"{match['rest'].strip()}{MIRRORED[match['operator']]}{match['limit']}" if match else ""
    return made if match and re.match(r"[\d.]", match["limit"]) and len(read(made)) == 1 else ""


def with_quotes(text: str) -> str:
    """Return the condition with its group in quotes, where these make it one; else an empty text."""
    parts = re.fullmatch(r"([\w.]+)\[([^=\]]+)=(.+)\]([^\]]*)", text.strip(), re.DOTALL)
    if parts is None:
        return ""
    subject, attribute, group, rest = parts.groups()
    right = f'{subject}[{attribute}="{group.replace(chr(34), 2 * chr(34))}"]{rest}'
    return right if read_one(right) else ""


def respelled(text: str) -> str:
    """Return ``dp.ratio>=0.8`` for ``dp.ratio≥0.8``, ``dp.ratio=>0.8`` and ``dp.ratio>=0,8``; else an empty text."""
    right = re.sub(r"([<>=≤≥]\s*0),(\d+\s*)$", r"\1.\2", text)
    for sign, operator in (("≤", "<="), ("≥", ">="), ("=<", "<="), ("=>", ">=")):
        right = right.replace(sign, operator)
    return right if right != text and read_one(right) else ""


def read_or_meant(text: str, read: Callable[[str], object]) -> str:
    """Return a text that can be read, or what is proposed in its place; empty where that is nothing."""
    try:
        read(text)
    except UsageError as error:
        return next((text.replace(old, new) for old, new in error.instead), "")
    return text


def of_numbers(text: str) -> bool:
    """Tell whether a constraint is about columns of numbers: ``covariance[age]``."""
    return any(one.metric in NUMBERS and one.attribute for one in read(text))
