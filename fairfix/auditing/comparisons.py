"""Comparisons: a metric, a kind, a scope, an attribute and a group as one value, and its text form.

The text form is ``metric.kind.scope``, with an empty part and its dot left out: ``selection_rate.ratio.to_overall``,
``accuracy.min``, ``ks.between_groups``. The value of a single group has neither kind nor scope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fairfix.auditing.metrics import CLASS_METRICS, METRICS, Better, Metric
from fairfix.data.names import quoted_name

if TYPE_CHECKING:
    from fairfix.schema.common import Change, SavedCheck

KINDS = ("difference", "ratio", "covariance", "min", "max")

TRUE_GROUPS = "true_groups"
NOISE_SCOPES = (TRUE_GROUPS, *(f"under_n{level}" for level in range(5)))
"""Scopes of true groups behind noisy ones, under the strongest stated assumption, or under that one."""

CLASS_SCOPES = ("rms_of_classes", "mean_of_classes")
"""Over the classes of a label, each against the rest."""

WITH_NUMBER = "decision_covariance.with_number"
"""Association of decisions with a protected number."""

MEANINGS: Mapping[str, str] = {
    "difference.between_groups": "largest minus smallest value over the groups",
    "ratio.between_groups": "smallest divided by largest value over the groups",
    "difference.to_overall": "largest absolute difference of a group to all rows",
    "ratio.to_overall": "the ratio of a group to all rows that is furthest from 1, as min(r, 1/r)",
    "covariance.to_overall": "largest product of a group's fraction of rows and its absolute difference to all rows",
    "covariance.within_strata": "largest absolute covariance with membership of a group within one stratum",
    "difference.to_reference": "largest absolute difference of a group to the reference group",
    "ratio.to_reference": "the ratio of a group to the reference group that is furthest from 1, as min(r, 1/r)",
    "difference.within_strata": "largest difference between two groups of one stratum, over the strata",
    "ratio.within_strata": "smallest ratio between two groups of one stratum, over the strata",
    "difference.true_groups": "largest minus smallest value over the true groups, under the strongest noise assumption "
    "that was stated",
    "ratio.true_groups": "smallest divided by largest value over the true groups, under the same assumption",
    "difference.true_groups.worst_case": "largest difference of true groups under any noise that fits the table",
    "difference.rms_of_classes": "root mean square, over all classes, of the largest minus smallest value over groups",
    "difference.mean_of_classes": "mean, over all classes, of the largest minus smallest value over groups",
    "min.true_groups": "smallest value over the true groups, under the same assumption",
    "max.true_groups": "largest value over the true groups, under the same assumption",
    "under_flips": "every row gets every level of the attribute, or stays unchanged, and keeps all other values",
    "under_comparable": "rows with one of the comparable values get each of them, and keep all other values",
    "under_everybody": "every row gets each of the comparable values, and keeps all other values",
    "under_counterfactuals": "people get the values of each of their copies in the file, and keep all other values",
    "within_radius": "rows get every level, and may move to near rows, on average within the radius",
    "with_number": "linear dependence on a protected number",
    "min": "smallest value over the groups",
    "max": "largest value over the groups",
    "between_groups": "largest distance between two groups",
    "to_overall": "largest distance of a group to all rows",
    "within_strata": "largest distance between two groups of one stratum, over the strata",
}
"""Kind and scope -> what is compared; a scope alone is of distances and flips."""

SUFFIXES: Mapping[str, str] = {
    "between_groups": "",
    "true_groups": ", true groups",
    "true_groups.worst_case": ", true groups, worst case",
    "rms_of_classes": ", root mean square of classes",
    "mean_of_classes": ", mean of classes",
}
"""Scope -> end of a title, where it is not the scope's own name."""


WORSE: Mapping[Better, Better] = {"larger": "smaller", "smaller": "larger", "": ""}
"""Which way is worse, by which is better."""


ENDS = {"min": "smallest", "max": "largest"}
"""The kinds that take the value of one group, in words."""


EACH = "each"
"""The word for each attribute by itself, in place of a name."""


def written(name: str) -> str:
    """Return the name of an attribute or a group as it is written in brackets."""
    return f'"{EACH}"' if name == EACH else quoted_name(name, "[]=*")


@dataclass(frozen=True)
class Comparison:
    """A number that compares groups, or that of a single group."""

    metric: str
    """Name in the catalogue."""
    kind: str = ""
    scope: str = ""
    """One of :data:`KINDS`, and which groups are compared; either may be empty."""
    attribute: str | None = None
    group: str | None = None
    """The protected attribute, None for every one; the group, None for all."""

    @classmethod
    def parse(cls, text: str, attribute: str | None = None, group: str | None = None) -> Comparison:
        """Read the text form, ``metric.kind.scope``."""
        metric, *parts = text.split(".")
        kind = parts.pop(0) if parts and parts[0] in KINDS else ""
        return cls(metric, kind, ".".join(parts), attribute, group or None)

    @classmethod
    def of(cls, one: SavedCheck | Change) -> Comparison:
        """Return what a check or a change of a result is about."""
        return cls.parse(one.comparison, one.attribute, one.group)

    @property
    def part(self) -> str:
        """Kind and scope as text."""
        return ".".join(filter(None, (self.kind, self.scope)))

    @property
    def short_part(self) -> str:
        """Kind and scope as text, without the scope that a check has if it names none."""
        return self.part.removesuffix(".between_groups")

    @property
    def id(self) -> str:
        """The text form."""
        return ".".join(filter(None, (self.metric, self.kind, self.scope)))

    def __str__(self) -> str:
        """The text form, and of what: ``accuracy.min[race]``, ``accuracy[race=Black]``."""
        return self.text()

    def text(self, more: str = "") -> str:
        """Return the text form with the attribute and the group; ``more`` stands behind the comparison."""
        names = (written(one) for one in (str(self.attribute), self.group) if one)
        return f"{'.'.join(filter(None, (self.id, more)))}[{'='.join(names)}]"

    def to(self, scope: str) -> Comparison:
        """Return the comparison in another scope."""
        return replace(self, scope=scope)

    def covers(self, other: Comparison) -> bool:
        """Whether another is the comparison meant, of this attribute or of any."""
        return other == (self if self.attribute else replace(self, attribute=other.attribute))

    @property
    def entry(self) -> Metric:
        """The metric's entry in the catalogue."""
        return METRICS[self.metric]

    @property
    def exists(self) -> bool:
        """Whether there can be such a number at all, of recorded or of true groups, or of classes."""
        averaged = self.of_classes and self.kind == "difference" and self.metric in CLASS_METRICS
        return self.of_true_groups or averaged or self.part in self.entry.comparisons

    @property
    def of_true_groups(self) -> bool:
        """Whether it is about the groups behind noisy ones."""
        return self.scope in NOISE_SCOPES

    @property
    def of_classes(self) -> bool:
        """Whether it is about all classes of a label together."""
        return self.scope in CLASS_SCOPES

    @property
    def in_points(self) -> bool:
        """Whether it is written in points, as a difference of shares or distances is."""
        return self.kind == "difference" or self.metric == "ks" or self.id == WITH_NUMBER

    @property
    def worse(self) -> Better:
        """Which way is worse; empty where nobody can say, as of one group's selection rate."""
        if self.kind == "ratio":
            return "smaller"
        if not self.group and self.kind not in ("min", "max"):
            return "larger"
        return WORSE[self.entry.better]

    @property
    def meaning(self) -> str:
        """The compared numbers, in words."""
        if self.of_true_groups and self.scope != TRUE_GROUPS:
            whole = MEANINGS[f"{self.kind}.{TRUE_GROUPS}"].partition(", under")[0]
            return f"{whole}, under N{self.scope.removeprefix('under_n')}"
        return MEANINGS[self.part]

    @property
    def definition(self) -> str:
        """Definition of the number, in words."""
        formula = f"{self.metric} = {self.entry.formula}"
        return f"{self.meaning}; {formula}" if self.part else formula

    @property
    def title(self) -> str:
        """Heading in reports."""
        metric = self.entry
        if self.part in metric.titles:
            return metric.titles[self.part]
        if not self.part:
            return metric.title
        if self.kind in ENDS:
            return (
                f"{ENDS[self.kind]} group {metric.title}{SUFFIXES[self.scope] if self.of_true_groups else ''}"
            )
        name = " ".join(filter(None, (metric.parity or metric.title, self.kind)))
        return name + SUFFIXES.get(self.scope, f", {self.scope.replace('_', ' ')}" if self.scope else "")


CLASS_GAPS = tuple(
    Comparison(metric, "difference", scope).id for metric in CLASS_METRICS for scope in CLASS_SCOPES
)
"""Gaps over all classes of a label."""
