"""The sentence of a guarantee: what was asked of people who are not in the data, what is known of it, and in which way.

How it is made to hold is told by :mod:`fairfix.tasks.guarantee`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.results import in_percent
from fairfix.models.trace import Caution, Note

Way = Literal["uniform", "held-out", "construction"]

BY = {
    "uniform": "uniform over all rules of this kind, by the Dvoretzky-Kiefer-Wolfowitz inequality",
    "held-out": "measured on held-out rows after the fit, by {tail}",
    "construction": "by construction: the rule does not use what is changed",
}
"""How a bound is known, in words."""

LISTED = 6
"""Groups whose limits a sentence lists."""


@dataclass(frozen=True)
class Limit:
    """What was asked of a group, or of all alike, and what is known of it."""

    group: str
    """Empty where it is of all groups alike."""
    asked: float
    """The largest gap or loss, or the least ratio."""
    bound: float
    measured: float
    inner: float | None
    """What the fit was given instead; None where nothing of it changes the fit."""


@dataclass(frozen=True)
class Guarantee:
    """A bound on the gap of the population, and whether it is within the slack.

    Attributes
    ----------
    criterion, attribute
        What is bounded, and of which groups.
    title
        What is bounded, in words.
    limits
        What was asked with its bound: one of all groups alike, or one of each group.
    parameter
        By which it was asked.
    rows
        Name of each group that is looked at -> rows that the bound is made of.
    looked_at, share
        How many rows the bound is made of, whatever groups they are in, and which part of the data's rows these are.
    needed
        Groups that have too few rows, and how many of each would do; of all rows of the data.
    left_out
        Rows of the data that were left out: they are of people of whom nothing is promised.
    """

    confidence: float
    criterion: str
    attribute: str
    title: str
    way: Way
    tail: str
    limits: tuple[Limit, ...]
    parameter: str
    rows: tuple[tuple[str, int], ...]
    looked_at: int
    share: float
    needed: tuple[tuple[str, ...], int] | None
    left_out: int
    learned: bool
    granted: str = ""
    """What the promise takes for granted besides, as the end of a sentence."""

    @property
    def is_ratio(self) -> bool:
        """Whether a least ratio is promised, and not a largest gap."""
        return Comparison.parse(self.criterion).kind == "ratio"

    @property
    def nearest(self) -> Limit:
        """That which is nearest to being broken, or the furthest beyond."""
        return max(self.limits, key=lambda one: (one.bound - one.asked) * (-1 if self.is_ratio else 1))

    @property
    def holds(self) -> bool:
        """Whether every bound is within what was asked."""
        one = self.nearest
        return one.bound >= one.asked if self.is_ratio else one.bound <= one.asked

    @property
    def _asked_with(self) -> str:
        """What was asked, in words."""
        return "limit" if self.parameter == "constraint" else self.parameter

    @property
    def by(self) -> str:
        """How the bound is known, in words."""
        return BY[self.way].format(tail=self.tail)

    @property
    def says(self) -> str:
        """The promise, to be read alone."""
        shown = (_down if self.is_ratio else _up) if self.way != "construction" else _up
        sure = f"with {in_percent(self.confidence)} confidence over the sampling of these rows"
        end = "at least" if self.is_ratio else "at most"
        limits = [shown(one.bound) for one in self.limits]
        least = [shown(one.asked if self.holds else one.bound) for one in self.limits]
        bound = f"bound {limits[0]}" if len(limits) == 1 else f"bounds {_listed(limits)}"
        of_fit = "the training rows" if self.way == "uniform" else "held-out rows"
        nobody = "0, or 0/0 where no group has any"
        seen = _listed(
            [nobody if self.is_ratio and not one.measured else f"{one.measured:.4f}" for one in self.limits]
        )
        measured = "" if self.way == "construction" else f"; on {of_fit}, {self.looked_at:,}, it is {seen}"
        what = f"{end} {least[0]}"
        if self.limits[0].group:
            what = _listed(
                [f"{end} {much} for {one.group!r}" for much, one in zip(least, self.limits, strict=True)]
            )
        text = (
            f"{sure}, by {self.attribute}, the {self.title} of this rule is {what} in the population that they "
            "were sampled from "
            f"({bound}, {self.by}{measured})"
        )
        if self.way != "construction":
            text += (
                f". This assumes that the rows are independent draws from that population{self._conditions}"
            )
        if self.holds:
            return f"{text[0].upper()}{text[1:]}."
        one = self.nearest
        of_group = f" for {one.group!r}" if one.group else ""
        name = self._asked_with
        return f"not proven within the {name} {one.asked:g}{of_group}: {text}. {self._remedy}"

    @property
    def _conditions(self) -> str:
        """What the promise rests on besides."""
        text = "" if self.learned else ", and that the score was not learned from them"
        text += self.granted
        if self.left_out:
            text += f"; it does not cover people like the {self.left_out:,} rows that were left out"
        return text

    @property
    def _remedy(self) -> str:
        """What would make it proven."""
        allow = "allow more `slack`" if self.parameter == "slack" else "set another limit in `constraint`"
        if self.needed is None:
            return f"More rows with the same values would not prove it; {allow}"
        groups, many = self.needed
        there = {name: round(used / self.share) for name, used in self.rows}
        text = f"About {many:,} rows in the data are needed"
        if groups != ("everybody",):
            named = ", ".join(f"{name!r} ({there[name]:,} here)" for name in groups[:3])
            more = f" and {len(groups) - 3:,} more" if len(groups) > 3 else ""
            text += f" of {'each of ' * (len(groups) > 1)}{named}{more}"
        return f"{text}; or {allow}"

    @property
    def messages(self) -> tuple[Note, ...]:
        """A caution where it does not hold, and of which slack the fit speaks."""
        out: list[Note] = [] if self.holds else [Caution(self.says, "guarantee")]
        given = [
            f"{one.inner:.4g} instead of {one.asked:g}{f' for {one.group!r}' if one.group else ''}"
            for one in self.limits
            if one.inner is not None and one.inner != one.asked
        ]
        if given:
            name = self._asked_with
            inner = (
                f"to meet the guarantee, the repair was fitted with a {name} of {_listed(given)}; what it "
                f"reports about its {name} and "
                "its optimum refers to that value"
            )
            out.append(Note(inner, "guarantee"))
        return tuple(out)

    def state(self) -> dict[str, Any]:
        """Return the JSON form."""
        one, asked = self.nearest, "least_ratio" if self.is_ratio else "slack"
        out: dict[str, Any] = {
            "confidence": self.confidence,
            "criterion": self.criterion,
            "title": self.title,
            "attribute": self.attribute,
            "holds": self.holds,
            "bound": one.bound,
            "measured": one.measured,
            asked: one.asked,
            f"inner_{asked}": one.inner,
            "way": self.way,
            "by": self.by,
            "rows": [{"group": name, "rows": many} for name, many in self.rows],
            "says": self.says,
        }
        if one.group:
            out["limits"] = [
                {"group": own.group, "bound": own.bound, "measured": own.measured}
                | {"slack": own.asked, "inner_slack": own.inner}
                for own in self.limits
            ]
        if self.needed is not None:
            out["needed"] = {"groups": list(self.needed[0]), "rows": self.needed[1]}
        return out


def _up(number: float) -> str:
    """Return a number to four decimals, not rounded down."""
    return f"{math.ceil(round(number * 1e4, 6)) / 1e4:.4g}" if number > 0 else "0"


def _down(number: float) -> str:
    """Return a number to four decimals, not rounded up."""
    return f"{math.floor(round(number * 1e4, 6)) / 1e4:.4g}"


def _listed(parts: Sequence[str]) -> str:
    """Return texts as a list, a few of them where they are many."""
    few = [*parts[:LISTED], f"{len(parts) - LISTED:,} more"] if len(parts) > LISTED + 1 else [*parts]
    return " and ".join([", ".join(few[:-1]), few[-1]] if len(few) > 1 else few)
