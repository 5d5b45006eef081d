"""Constraint: what a repair is to hold, in the words of a method or in the grammar of checks.

A method names its criteria by the comparisons that they bound, as in ``{"ks.to_overall": "statistical_parity"}``. A
constraint is a list of conditions with commas between them. Each is a name, a comparison, or either with a limit:
``demographic_parity``, ``dp.difference[each]<=0.02``, ``dp.ratio>=0.8``, ``ks.to_overall[race=Black]<=0.01``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

from fairfix.auditing.checks import compared
from fairfix.auditing.comparisons import WITH_NUMBER, Comparison, written
from fairfix.auditing.grammar import MIRRORED, NUMBERS, Condition, read, read_or_meant, respelled, turned
from fairfix.auditing.metrics import ALIASES, METRICS
from fairfix.data.data_spec import DataSpec
from fairfix.data.names import attribute_name, initials, nearest
from fairfix.errors import UsageError
from fairfix.noise.membership_audit import ATTRIBUTE

WORSE = "worse_than_overall"
"""Scope of a distance to all rows that counts only groups which are worse off."""

RATIO_NAMES = ("disparate_impact", "four_fifths", "p_rule", "disparate_impact_ratio")
"""Names of the ratio of selection rates in other tools."""


class Grammar(NamedTuple):
    """Constraints that a method accepts."""

    criteria: Mapping[str, str]
    """Identifier of a comparison -> name of the criterion that bounds it; the usual comparison of a name first."""
    without_gap: tuple[str, ...] = ()
    """Names whose limit is no allowed gap, so that it stays with the constraint."""
    without_limit: tuple[str, ...] = ()
    ratios: tuple[str, ...] = ()
    each: bool = False
    groups: tuple[str, ...] = ()
    """Names that may have a limit for each group."""
    numbers: bool = False
    one_sided: bool = False
    method: str = ""
    """Name of the method, for messages."""

    def comparison(self, name: str) -> str:
        """Return the usual comparison of a criterion."""
        return next(of for of, own in self.criteria.items() if own == name)


@dataclass(frozen=True)
class ParsedConstraint:
    """A constraint that was read."""

    text: str
    """Text without the limit that is the slack."""
    name: str
    """Name of the criterion."""
    metric: str
    slack: float | None = None
    """The limit of a gap; None where none is stated."""
    least: float | None = None
    """The least ratio of the rates of two groups; None where a gap is bounded."""
    most: float = math.inf
    """The largest loss of every group."""
    takes_slack: bool = True
    """Whether no limit is stated for all groups, so that the slack is it."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Limits of single groups."""
    general: bool = True
    """Whether it is about groups that have no limit of their own, too."""
    attribute: str | None = None
    each: bool = False
    numbers: tuple[str, ...] = ()
    """Columns of numbers with which decisions are not to covary."""
    worse: bool = False
    """Whether groups that are better off are left alone."""

    def with_least(self, ratio: float) -> str:
        """Return the text with another least ratio."""
        return self.text.replace(f">={self.least!r}", f">={ratio!r}")


class _Read(NamedTuple):
    """One condition, and what it bounds."""

    condition: Condition
    of: str
    """The comparison, one of the method's, or that with a number."""
    limit: float | None
    ratio: bool = False
    worse: bool = False


def read_constraint(grammar: Grammar, text: str) -> ParsedConstraint:
    """Read a constraint; UsageError, with what can be written, where the method cannot hold it."""
    conditions = read(text)
    if not conditions:
        plain = text.replace("-", "_")
        right = turned(text) or respelled(text) or (plain if read(plain) else "")
        right = right and read_or_meant(right, partial(read_constraint, grammar))
        like = f"write '{right}'" if right else f"write {_ways(grammar)}"
        error = UsageError(f"{grammar.method}: cannot read `constraint={text}`; {like}")
        raise error.proposing(*([(text, right)] if right else []))
    parts = [_one(grammar, condition) for condition in conditions]
    if any(part.of == WITH_NUMBER for part in parts):
        return _of_numbers(grammar, text, parts)
    one, *others = parts
    name = grammar.criteria[one.of]
    general = [part for part in parts if not part.condition.group]
    groups = [part.condition.group for part in parts if part.condition.group]
    alike = all(grammar.criteria[part.of] == name for part in others) and len({p.of for p in parts}) == 1
    if not alike or len(general) > 1 or len(set(groups)) < len(groups):
        raise UsageError(
            f"{grammar.method}: `constraint={text}` states more than one condition; give one"
            + (", and at most one for each group" if name in grammar.groups else "")
        )
    limits = {str(part.condition.group): part.limit for part in parts if part.condition.group}
    missing = next((group for group, limit in limits.items() if limit is None), "")
    if missing:
        raise UsageError(f"`constraint={text}`: give the limit of group {missing!r}, such as <=0.02")
    limit = general[0].limit if general else None
    gap = general and not one.ratio and name not in grammar.without_gap
    texts = (_without_limit(grammar, part) if gap and part in general else _written(part) for part in parts)
    of = next((part.condition for part in parts if part.condition.attribute or part.condition.each), None)
    return ParsedConstraint(
        ", ".join(texts),
        name,
        Comparison.parse(one.of).metric if one.condition.metric != name else "",
        limit if gap else None,
        limit if one.ratio else None,
        math.inf if limit is None or name not in grammar.without_gap else limit,
        bool(general) and limit is None,
        {group: number for group, number in limits.items() if number is not None},
        bool(general),
        None if of is None else of.attribute,
        of is not None and of.each,
        worse=one.worse,
    )


def _of_numbers(grammar: Grammar, text: str, parts: list[_Read]) -> ParsedConstraint:
    """Return the constraint of protected numbers."""
    names = tuple(str(part.condition.attribute) for part in parts)
    limits = {part.limit for part in parts}
    if any(part.of != WITH_NUMBER for part in parts) or len(set(names)) < len(names) or len(limits) > 1:
        raise UsageError(
            f"{grammar.method}: `constraint={text}`: name each column of numbers once, all with the same limit, "
            "such as 'covariance[age]<=0.02, covariance[income]<=0.02'"
        )
    text = ", ".join(f"covariance[{written(name)}]" for name in names)
    limit = limits.pop()
    return ParsedConstraint(
        text, "covariance", "decision_covariance", limit, takes_slack=limit is None, numbers=names
    )


def _written(part: _Read) -> str:
    limit = "" if part.limit is None else f"{part.condition.operator}{part.limit!r}"
    return f"{part.condition.subject}{limit}"


def _without_limit(grammar: Grammar, part: _Read) -> str:
    """Return the name of a criterion, with the attribute, or the comparison where only one side counts."""
    if part.worse:
        return part.condition.subject
    at = part.condition.subject.find("[")
    return grammar.criteria[part.of] + (part.condition.subject[at:] if at >= 0 else "")


# ---------------------------------------------------------------------- one condition


def _one(grammar: Grammar, one: Condition) -> _Read:
    """Read a condition; UsageError where the method cannot hold it."""
    of, ratio, worse = _bounded(grammar, one)
    name = grammar.criteria.get(of, "")
    if one.group and name not in grammar.groups:
        raise _refused(grammar, one, "it has no limit for a single group", [_plain(one.text(), one)])
    if one.each and not grammar.each:
        raise _refused(grammar, one, "it makes the intersections of all columns alike, not [each] column")
    if name in grammar.without_limit and one.operator:
        raise _refused(grammar, one, "it takes no limit", [name])
    if not one.operator:
        if ratio:
            raise _refused(grammar, one, "a ratio needs a limit", [f"{one.subject}>=0.8"])
        return _Read(one, of, None, ratio, worse)
    sign = ">=" if ratio else "<="
    if one.operator != sign:
        turn = one.operator in (sign[0], MIRRORED[sign], MIRRORED[sign][0])
        raise _refused(grammar, one, f"its limit must follow {sign}", [one.text(operator=sign)] * turn)
    number = Comparison.parse(of) if name not in grammar.without_gap else Comparison("log_loss", "max")
    limit = one.limit_on(Comparison.parse(of.replace(".difference", ".ratio")) if ratio else number)
    if limit < 0 or (ratio and limit == 0):
        raise _refused(grammar, one, f"its limit must be {'above' if ratio else 'at least'} 0")
    return _Read(one, of, limit, ratio, worse)


def _bounded(grammar: Grammar, one: Condition) -> tuple[str, bool, bool]:
    """Return what a condition bounds: a comparison of the method, whether its ratio, and whether one side alone."""
    named = {name: of for of, name in reversed(list(grammar.criteria.items()))}
    if one.metric in NUMBERS and grammar.numbers and one.attribute and not one.parts:
        return WITH_NUMBER, False, False
    if one.metric in named and not one.parts:
        if one.operator.startswith(">") and not one.group and named[one.metric] not in grammar.without_gap:
            raise _refused(grammar, one, "its limit must follow <=", _ratios(grammar, named[one.metric], one))
        return named[one.metric], False, False
    metric = ALIASES.get(one.metric, one.metric)
    if one.metric in RATIO_NAMES:
        raise _refused(grammar, one, "", _ratios(grammar, "selection_rate.difference.between_groups", one))
    if metric not in METRICS or (one.metric == "eo" and not one.parts):
        raise _refused(grammar, one, "", _meant(grammar, one))
    of_metric = [of for of in grammar.criteria if of.partition(".")[0] == metric]
    if not one.parts and METRICS[metric].kinds:
        if not of_metric:
            raise _refused(grammar, one, f"it has no constraint on {metric}")
        if one.operator.startswith(">"):
            raise _refused(grammar, one, "its limit must follow <=", _ratios(grammar, of_metric[0], one))
        return of_metric[0], False, False
    parts, worse = one.parts, False
    if grammar.one_sided and parts[-1:] == (WORSE,):
        parts, worse = (*parts[:-1], "to_overall"), True
    plain = Condition("", "", one.metric, parts, one.attribute, None, one.each, one.operator, one.limit)
    comparison = compared(plain)
    ratio = comparison.kind == "ratio"
    of = comparison.id.replace(".ratio", ".difference") if ratio else comparison.id
    if of not in grammar.criteria or (ratio and grammar.criteria[of] not in grammar.ratios):
        meant = [_like(own, one) for own in of_metric if not ratio or grammar.criteria[own] in grammar.ratios]
        raise _refused(grammar, one, f"it has no constraint on {comparison.id}", meant)
    return of, ratio, worse


def _like(of: str, one: Condition) -> str:
    """Return a condition on another comparison of its metric."""
    parts = _short(of).partition(".")[2]
    rest = one.text()[len(".".join((one.metric, *one.parts))) :]
    return f"{one.metric}{'.' * bool(parts)}{parts}{rest}"


def _short(of: str) -> str:
    """Return a comparison without the scope that it usually has."""
    return of.removesuffix(".between_groups").replace("covariance.to_overall", "covariance")


def _plain(text: str, one: Condition) -> str:
    """Return the text of a condition without its group."""
    at = one.subject.find("[")
    return text.replace(one.subject[at:], "", 1)


def _ratios(grammar: Grammar, of: str, one: Condition) -> list[str]:
    """Return the ratio that is meant where a rate is to be at least some part."""
    if grammar.criteria.get(of) not in grammar.ratios:
        return []
    metric = "dp" if of.startswith("selection_rate") else of.partition(".")[0]
    rest = one.text()[len(".".join((one.metric, *one.parts))) :] or ">=0.8"
    return [f"{metric}.ratio{rest}"]


def _meant(grammar: Grammar, one: Condition) -> list[str]:
    """Return what may be meant by a name that is none."""
    names = tuple(dict.fromkeys(grammar.criteria.values()))
    plain = one.metric.replace("_", "").casefold()
    short = [name for name in names if initials(name) == plain]
    same = [name for name in names if name.replace("_", "") == plain]
    rest = one.text()[len(one.metric) :]
    return [f"{name}{rest}" for name in short or same or nearest(one.metric, names)]


def _ways(grammar: Grammar) -> str:
    """Return in words what a method takes."""
    return "one of " + ", ".join(dict.fromkeys((*grammar.criteria.values(), *_examples(grammar))))


def _examples(grammar: Grammar) -> Iterator[str]:
    """Yield conditions that the method takes."""
    for of, name in list(grammar.criteria.items())[:2]:
        yield f"'{_short(of)}<=0.1'"
        if name in grammar.ratios:
            yield f"'{_short(of).replace('.difference', '.ratio')}>=0.8'"


def _refused(grammar: Grammar, one: Condition, why: str, meant: list[str] | None = None) -> UsageError:
    """Return the refusal of a condition, with what to write instead."""
    reason = f": {why}" if why else ""
    write = " or ".join(f"'{text}'" for text in meant) if meant else _ways(grammar)
    error = UsageError(f"{grammar.method} cannot meet `constraint={one.written}`{reason}; write {write}")
    return error.proposing(*((one.written, text) for text in meant or ()))


# ---------------------------------------------------------------------- methods with a constraint


class Constrained:
    """The part of a method that reads its constraint."""

    name: ClassVar[str]
    criterion: ClassVar[str]
    """Identifier of the audit comparison that ``slack`` bounds on the training rows, by default."""
    grammar: ClassVar[Grammar] = Grammar({})
    """Values of the parameter ``constraint``; without criteria where there is no such parameter."""
    constraint = ""
    """The constraint, where a method has several criteria: a parameter then, read by :attr:`parsed_constraint`."""

    slack: float

    @cached_property
    def parsed_constraint(self) -> ParsedConstraint:
        """The constraint, read; without a grammar, one of no name that a slack bounds."""
        if not self.grammar.criteria:
            return ParsedConstraint("", "", "")
        return read_constraint(self.grammar._replace(method=self.name), self.constraint)

    @property
    def goal(self) -> str:
        """Name of the criterion that the constraint bounds."""
        return self.parsed_constraint.name

    @property
    def membership(self) -> Mapping[str, str]:
        """True group -> the column of each row's probability to be of it; empty where groups are recorded."""
        return {}

    def bounded_comparison(self, data_spec: DataSpec) -> str:
        """Return the identifier of the audit comparison that is bounded on such data, strata aside."""
        if not self.grammar.criteria:
            return self.criterion
        of = self.grammar.comparison(self.goal)
        return of.replace(".difference", ".ratio") if self.parsed_constraint.least else of

    @property
    def shared_slack(self) -> float | None:
        """The slack that holds for every group alike; None where it does not change the fit, or groups have others."""
        wanted = self.parsed_constraint
        unused = self.goal in (*self.grammar.without_gap, *self.grammar.without_limit)
        return None if unused or wanted.least or wanted.limits else self.slack

    def constrained_attributes(self, protected: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return the attributes, by their columns, whose groups the slack holds alike: by default the cells of all."""
        if self.membership:
            return ((ATTRIBUTE,),)
        if self.parsed_constraint.numbers or self.parsed_constraint.each:
            return tuple((name,) for name in self.parsed_constraint.numbers or protected)
        return (tuple(protected),)

    def _take_limit(self) -> None:
        """Make the limit of a gap the slack, and leave the constraint without it."""
        wanted = self.parsed_constraint
        if not wanted.takes_slack and self.slack != type(self).slack:
            raise UsageError(two_limits(self.constraint, self.slack))
        if wanted.slack is not None:
            object.__setattr__(self, "slack", wanted.slack)
        object.__setattr__(self, "constraint", wanted.text)

    def _check_attribute(self, columns: Sequence[str]) -> None:
        """Raise a UsageError where the constraint is about another attribute than that of the groups."""
        asked, alike = self.parsed_constraint.attribute, attribute_name(columns)
        if asked not in (None, alike) and not self.parsed_constraint.numbers:
            raise UsageError(
                f"`constraint={self.constraint}`: {self.name} makes the groups of {alike!r} alike; write "
                f"{written(alike)} in place of {asked}, or name that column alone with `protected`"
            )


def two_limits(constraint: str, slack: object) -> str:
    """Return the refusal of a constraint with a limit together with a slack."""
    return f"`constraint={constraint}` has a limit, so leave out `slack={slack}`"
