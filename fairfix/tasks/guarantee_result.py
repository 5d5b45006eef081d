"""GuaranteeResult: what was asked about the population, what is known, and in which way; in words and as a struct."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.results import in_percent
from fairfix.models.trace import Caution, Note
from fairfix.schema.repair import GroupGuarantee, Guarantee, Needed, Price, RowsOfGroup

Way = Literal["uniform", "held-out", "construction"]

BY = {
    "uniform": "uniform over all rules of this kind, by the Dvoretzky-Kiefer-Wolfowitz inequality",
    "held-out": "measured on held-out rows after the fit, by {tail}",
    "construction": "by construction: the rule does not use what is changed",
}
"""Evidence for a bound, in words."""

ALIKE = (
    *("confidence", "criterion", "title", "attribute", "holds", "way", "by", "says"),
    *("rows", "needed", "price", "checks"),
)
"""Fields that a saved guarantee has by the same names."""

LISTED = 6
"""Groups whose limits a sentence lists."""


@dataclass(frozen=True)
class Limit:
    """Requested limit of a group, or of all groups, with the bound that was found."""

    group: str
    """Empty where it is of all groups alike."""
    asked: float
    """The largest gap or loss, or the smallest ratio."""
    bound: float
    measured: float
    inner: float | None
    """The limit of the fit; None where it does not change the fit."""

    @property
    def of_group(self) -> str:
        """The end of a phrase."""
        return f" for {self.group!r}" if self.group else ""


@dataclass(frozen=True, kw_only=True)
class GuaranteeResult:
    """Bounds on the gaps of the population, and whether they are within what was asked."""

    confidence: float
    criterion: str
    attribute: str
    title: str
    """Bounded quantity and groups, and its name in words."""
    way: Way
    tail: str
    """Name of the inequality."""
    limits: tuple[Limit, ...]
    """One of all groups alike, or one of each group."""
    parameter: str
    """The parameter that sets them."""
    rows: tuple[RowsOfGroup, ...]
    """Rows of each group that the bound is made of."""
    looked_at: int
    share: float
    """All rows that the bound is made of, and their part of the data's rows."""
    needed: Needed | None
    price: Price | None = None
    checks: tuple[str, ...] = ()
    """Checks of an audit that state the same of new decisions."""
    conditions: str = ""
    """Assumptions in addition to independent rows, and people not covered, as the end of a sentence."""

    @property
    def is_ratio(self) -> bool:
        """Whether a smallest ratio is guaranteed, and not a largest gap."""
        return Comparison.parse(self.criterion).kind == "ratio"

    @property
    def nearest(self) -> Limit:
        """The bound that is nearest to its limit, or exceeds it by most."""
        return max(self.limits, key=lambda one: (one.bound - one.asked) * (-1 if self.is_ratio else 1))

    @property
    def holds(self) -> bool:
        """Whether every bound is within what was asked."""
        one = self.nearest
        return one.bound >= one.asked if self.is_ratio else one.bound <= one.asked

    @property
    def by(self) -> str:
        """Evidence for the bound, in words."""
        return BY[self.way].format(tail=self.tail)

    @property
    def _limit_name(self) -> str:
        return "limit" if self.parameter == "constraint" else self.parameter

    @property
    def says(self) -> str:
        """The guarantee, to be read alone."""
        exact = self.way == "construction"
        up = not self.is_ratio or exact
        limits = [_rounded(one.bound, up) for one in self.limits]
        end = "at least" if self.is_ratio else "at most"
        given = [_rounded(one.asked if self.holds else one.bound, up) for one in self.limits]
        ends = [f"{end} {much}{one.of_group}" for much, one in zip(given, self.limits, strict=True)]
        bounds = f"bound{'s' * (len(limits) > 1)} {_listed(limits)}, {self.by}"
        if not exact:
            nobody = "0, or 0/0 where no group has any"
            seen = [
                nobody if self.is_ratio and not one.measured else f"{one.measured:.4f}" for one in self.limits
            ]
            of_fit = "the training rows" if self.way == "uniform" else "held-out rows"
            bounds += f"; on {of_fit}, {self.looked_at:,}, it is {_listed(seen)}"
        text = (
            f"with {in_percent(self.confidence)} confidence over the sampling of these rows, by {self.attribute}, the "
            f"{self.title} of this rule is {_listed(ends)} in the population that they "
            f"were sampled from ({bounds})"
        )
        if not exact:
            text += (
                f". This assumes that the rows are independent draws from that population{self.conditions}"
            )
        if self.holds:
            return f"{text[0].upper()}{text[1:]}.{self._price}"
        one = self.nearest
        limit = f"{self._limit_name} {one.asked:g}{one.of_group}"
        return f"not proven within the {limit}: {text}.{self._price} {self._remedy}"

    @property
    def _price(self) -> str:
        """The worth of more rows of the smallest group, as a sentence; empty where it is not known."""
        if self.price is None:
            return ""
        of_group = "" if self.price.group == "everybody" else f" of {self.price.group!r}"
        by = abs(self.price.bound - self.nearest.bound)
        return (
            f" With {self.price.rows:,} more rows{of_group} in the data and the same rates, the bound would be "
            f"{by:.2g} {'larger' if self.is_ratio else 'smaller'}."
        )

    @property
    def _remedy(self) -> str:
        allow = "allow more `slack`" if self.parameter == "slack" else "set another limit in `constraint`"
        if self.needed is None:
            return f"More rows with the same values would not prove it; {allow}"
        groups, many = self.needed.groups, self.needed.rows
        there = {one.group: round(one.rows / self.share) for one in self.rows}
        text = f"About {many:,} rows in the data are needed"
        if groups != ("everybody",):
            named = ", ".join(f"{name!r} (about {there[name]:,} here)" for name in groups[:3])
            more = f" and {len(groups) - 3:,} more" if len(groups) > 3 else ""
            text += f" of {'each of ' * (len(groups) > 1)}{named}{more}"
        return f"{text}; or {allow}"

    @property
    def messages(self) -> tuple[Note, ...]:
        """A caution where it does not hold, and the limit that the fit reports about."""
        out: list[Note] = [] if self.holds else [Caution(self.says, "guarantee")]
        given = [
            f"{one.inner:.4g} instead of {one.asked:g}{one.of_group}"
            for one in self.limits
            if one.inner is not None and one.inner != one.asked
        ]
        if given:
            inner = (
                f"to meet the guarantee, the repair was fitted with a {self._limit_name} of {_listed(given)}; what it "
                f"reports about its {self._limit_name} and its optimum refers to that value"
            )
            out.append(Note(inner, "guarantee"))
        return tuple(out)

    @property
    def struct(self) -> Guarantee:
        """The guarantee as results have it."""
        one, ratio = self.nearest, self.is_ratio
        own_limits = self.limits if one.group else ()
        alike: Any = {name: getattr(self, name) for name in ALIKE}
        return Guarantee(
            **alike,
            bound=one.bound,
            measured=one.measured,
            slack=None if ratio else one.asked,
            inner_slack=None if ratio else one.inner,
            least_ratio=one.asked if ratio else None,
            inner_least_ratio=one.inner if ratio else None,
            limits=tuple(
                GroupGuarantee(
                    group=own.group,
                    bound=own.bound,
                    measured=own.measured,
                    slack=own.asked,
                    inner_slack=own.inner,
                )
                for own in own_limits
            ),
        )


def _rounded(number: float, up: bool) -> str:
    """Return a number to four decimals, rounded up or down."""
    ends: Callable[[float], int] = math.ceil if up else math.floor
    return f"{ends(round(number * 1e4, 6)) / 1e4:.4g}" if number > 0 or not up else "0"


def _listed(parts: Sequence[str]) -> str:
    """Return texts as a list, a few of them where they are many."""
    few = [*parts[:LISTED], f"{len(parts) - LISTED:,} more"] if len(parts) > LISTED + 1 else [*parts]
    return " and ".join([", ".join(few[:-1]), few[-1]] if len(few) > 1 else few)
