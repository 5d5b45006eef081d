"""Cutoffs as users write them: a threshold, one for each group, or the number of rows to select.

This module imports no numpy, since every request is checked by it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fairfix.data.canonical import canonical, canonical_group
from fairfix.data.domain import Domain
from fairfix.data.names import QUOTED, quoted_name, split_names, unquoted
from fairfix.errors import UsageError


@dataclass(frozen=True)
class Capacity:
    """Largest number of rows to select, or largest percentage of all rows."""

    number: float
    percent: bool = False

    @classmethod
    def parse(cls, value: Any) -> Capacity:
        """Read ``500`` or ``10%``; a UsageError where it is neither."""
        text = str(value).strip()
        percent = text.endswith("%")
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = math.nan
        right = 0 < number <= 100 if percent else number >= 1 and number.is_integer()
        if not right or math.isinf(number):
            hint = f"; for a fraction of the rows write {100 * number:g}%" if 0 < number < 1 else ""
            raise UsageError(
                f"`top={text}` is neither a whole number of rows, such as 500, nor a percentage up to 100%, such as "
                f"10%{hint}"
            )
        return cls(number, percent)

    def most(self, total: float) -> float:
        """Return the largest size of those selected out of all."""
        return total * self.number / 100 if self.percent else self.number

    def __str__(self) -> str:
        return f"{self.number:.15g}{'%' * self.percent}"


ATTRIBUTE = re.compile(rf"\s*({QUOTED}|[^:\"]+?)\s*:(.*)", re.DOTALL)
"""A column, a colon and the rest."""


@dataclass(frozen=True)
class GroupThresholds:
    """Decision thresholds of a model in use that differ by the groups of one column."""

    attribute: str
    cuts: Mapping[str, float]
    """Group -> the score at and above which its rows are selected."""

    @classmethod
    def parse(cls, text: str) -> GroupThresholds | None:
        """Read ``race:Black=0.4,White=0.5``; None where no column is named before a colon."""
        if (match := ATTRIBUTE.fullmatch(text)) is None:
            return None
        parts = [part.rpartition("=") for part in split_names(match[2]) if part]
        return cls.of(unquoted(match[1]), parts, text)

    @classmethod
    def of(cls, attribute: str, parts: Any, text: object) -> GroupThresholds:
        """Return the thresholds of (group, sign, number); a UsageError where one is none, or a group is there twice."""
        cuts: dict[str, float] = {}
        for group, sign, number in parts:
            name = canonical_group(group.strip()) if isinstance(group, str) else canonical(group)
            if not (sign and name):
                raise UsageError(
                    f"`threshold={text}`: write COLUMN:GROUP=SCORE,..., such as `threshold=race:Black=0.4,White=0.5`"
                )
            if name in cuts:
                raise UsageError(f"`threshold={text}` names the group {name!r} twice; give one threshold")
            cuts[name] = _number(number, f"`threshold` of group {name!r}")
        if not cuts:
            raise UsageError(
                f"`threshold={text}` names no group of {attribute!r}; give each group a threshold"
            )
        return cls(attribute, cuts)

    @property
    def edges(self) -> tuple[float, ...]:
        """Distinct thresholds, which rise."""
        return tuple(sorted(set(self.cuts.values())))

    def mapped(self, change: Callable[[float], float]) -> GroupThresholds:
        """Return the thresholds, each changed."""
        return GroupThresholds(self.attribute, {group: change(cut) for group, cut in self.cuts.items()})

    def is_close(self, other: GroupThresholds | None) -> bool:
        """Tell whether others are the same but for the type of the scores, to which they were rounded."""
        return (
            other is not None
            and (self.attribute, self.cuts.keys()) == (other.attribute, other.cuts.keys())
            and all(is_close(cut, other.cuts[group]) for group, cut in self.cuts.items())
        )

    def require(self, groups: Any) -> None:
        """Raise a UsageError that names the groups that have no threshold."""
        if lacking := sorted(set(groups) - self.cuts.keys()):
            error = UsageError(
                f"`threshold={self}`: {', '.join(map(repr, lacking))} of {self.attribute!r} "
                f"{'has' if len(lacking) == 1 else 'have'} no threshold; give each group one"
            )
            error.quotes = True
            raise error

    def __str__(self) -> str:
        name = quoted_name(self.attribute, ":")
        return f"{name}:{','.join(quoted_name(f'{group}={cut!r}') for group, cut in self.cuts.items())}"

    def __repr__(self) -> str:
        return repr(str(self))


def is_close(cut: float, other: float) -> bool:
    """Tell whether two thresholds are the same but for the type of the scores."""
    return math.isclose(cut, other, rel_tol=1e-3, abs_tol=1e-7)


def threshold_of(value: Any) -> float | GroupThresholds | None:
    """Return the threshold that a number, a text or a mapping is: one, or one for each group of a column."""
    if value is None or isinstance(value, GroupThresholds):
        return value
    if isinstance(value, Mapping):
        if len(value) != 1 or not isinstance(own := next(iter(value.values())), Mapping):
            raise UsageError(
                "`threshold` takes a number, or a mapping of one column to its groups, such as "
                "{'race': {'Black': 0.4, 'White': 0.5}}"
            )
        attribute, parts = next(iter(value)), [(group, "=", cut) for group, cut in own.items()]
        return GroupThresholds.of(str(attribute), parts, attribute)
    return (GroupThresholds.parse(value) if isinstance(value, str) else None) or _number(value)


def _number(value: Any, what: str = "`threshold`") -> float:
    """Return a finite number; a UsageError where it is none, which says ``what`` it is of."""
    number: float = Domain("", kind=float).one_of(what, value)
    return number
