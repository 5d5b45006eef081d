"""The audit of true groups when the data hold recorded ones: bounds, estimates and breakdown points.

Every number of a true group, and every comparison of true groups, is given under each of
:data:`fairfix.noise.assumptions.ASSUMPTIONS` that can be used. It *rests on* the strongest assumption that was stated;
the worst case under each weaker one is reported as well. The breakdown point of a check is the largest eps of N3 at
which its limit is kept for certain on these rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import get_args

import numpy as np
from msgspec.structs import replace

from fairfix.auditing.audit import More, judge
from fairfix.auditing.checks import Check
from fairfix.auditing.comparisons import NOISE_SCOPES
from fairfix.auditing.metrics import EQUALIZED_ODDS
from fairfix.auditing.results import Settings
from fairfix.data.choices import Level
from fairfix.data.data_spec import DataSpec
from fairfix.data.files import Source
from fairfix.data.scan import Scan, scan
from fairfix.errors import UsageError
from fairfix.noise.assumptions import ASSUMPTIONS, SHARES_OPEN, Assumption, Unavailable
from fairfix.noise.bounds import Pair, conditional_radius, table_bounds, vacuous
from fairfix.noise.comparisons import RateBounds, compared, comparisons_of, ends_of, pairs
from fairfix.noise.description import Noise, NoiseTable
from fairfix.noise.observed_groups import NOT_OF_VALUES, Recorded, recorded_groups
from fairfix.noise.rates import Floats
from fairfix.noise.resampling import REPLICATES, TOLERANCE, ResampledGroups
from fairfix.schema import audit as schema
from fairfix.schema.audit import Audit, Bound, CurvePoint, Ends, NoiseFigure, SavedBreakdown
from fairfix.schema.common import Estimate, SavedComparison, comparison, no_number, number

COARSE = 2e-3
"""Precision of the eps up to which a difference is certain."""

Metrics = tuple[str, ...]


LEVELS: Mapping[str, Level] = {f"under_{level.lower()}": level for level in get_args(Level)}
"""Scope of a comparison of true groups -> the assumption that it is under."""


class TrueGroups:
    """Bounds and estimates of the true groups behind recorded groups.

    ``alpha`` is one minus the confidence of intervals; data are drawn anew ``replicates`` times, or never if 0.
    """

    def __init__(
        self,
        data: Recorded,
        noise: Noise,
        alpha: float = 0.05,
        seed: int = 0,
        replicates: int = REPLICATES,
    ) -> None:
        evidence = ResampledGroups(data, noise, seed, replicates)
        self._rest(evidence, [kind(evidence, alpha) for kind in ASSUMPTIONS], seed)

    def _rest(self, evidence: ResampledGroups, assumptions: Sequence[Assumption], seed: int) -> None:
        """Rest on evidence and assumptions."""
        self.evidence, self.seed = evidence, seed
        self.data, self.true = evidence.data, evidence.true
        self.assumptions = {assumption.level: assumption for assumption in assumptions}
        self.stated = {level: one.stated for level, one in self.assumptions.items() if one.stated is not None}
        self.unavailable: dict[Level, str] = {}

    @property
    def rests_on(self) -> Level:
        """The strongest assumption that was stated, or radii where nothing else is to be used."""
        return "N0" if self.evidence.noise.assumption.word == "radii" else max(self.stated)

    @cached_property
    def bounds(self) -> dict[Level, RateBounds]:
        """Assumption -> bounds of every rate."""
        out: dict[Level, RateBounds] = {}
        for level, assumption in self.assumptions.items():
            try:
                out[level] = assumption.bounds(out)
            except Unavailable as reason:
                self.unavailable[level] = str(reason)
        return out

    @cached_property
    def of_groups(self) -> dict[str, list[dict[Level, Bound]]]:
        """Metric -> for each true group, assumption -> bounds of its rate."""
        out = {}
        for metric in self.data.metrics:
            each = zip(*(bounds.of_groups(metric) for bounds in self.bounds.values()), strict=True)
            out[metric] = [dict(zip(self.bounds, one, strict=True)) for one in each]
        return out

    @cached_property
    def of_comparisons(self) -> dict[tuple[str, str, Metrics], dict[Level, Bound]]:
        """Kind, name and rates of a comparison -> assumption -> its bounds."""
        return {
            (kind, name, rates): {
                level: bounds.of_comparison(kind, rates) for level, bounds in self.bounds.items()
            }
            for kind, name, rates in comparisons_of(self.data.metrics)
        }

    @cached_property
    def points(self) -> dict[Level, Mapping[str, Floats]]:
        """Assumption -> metric -> the best single guess of each rate."""
        return {level: self.assumptions[level].points(bounds) for level, bounds in self.bounds.items()}

    # ------------------------------------------------------------------ checks

    def comparisons(self, checks: Iterable[Check] = ()) -> Iterator[SavedComparison]:
        """Yield what checks can look at: what the report rests on, and what is asked for under another assumption."""
        asked = {check.comparison.id for check in checks}
        for kind, name, rates in self.of_comparisons:
            for scope in NOISE_SCOPES:
                if scope == "true_groups" or f"{name}.{kind}.{scope}" in asked:
                    yield self._compared(kind, name, rates, scope)

    def _level(self, scope: str) -> Level:
        return self.rests_on if scope == "true_groups" else LEVELS[scope]

    def _value(self, bounds: Mapping[Level, Bound], level: Level, point: float) -> Estimate:
        """Return a number under an assumption, or why there is none."""
        bound = bounds.get(level)
        if bound is None or bound.reason:
            why = bound.reason if bound else f"{level}: {self.unavailable[level]}"
            return no_number(why)
        worst = f"worst case {bound.low:.4f} to {bound.high:.4f}"
        rests = f"estimate {bound.low:.4f}" if level == "N4" else worst
        return Estimate(
            value=number(point),
            low=bound.outer_low,
            high=bound.outer_high,
            reason=f"assumes {level}; {rests}",
        )

    def _compared(self, kind: str, name: str, rates: Metrics, scope: str) -> SavedComparison:
        """Return a comparison for checks."""
        level, bounds = self._level(scope), self.of_comparisons[kind, name, rates]
        identifier = f"{name}.{kind}.{scope}"
        if level not in bounds or bounds[level].reason:
            return comparison(identifier, self._value(bounds, level, math.nan))
        point = _single(kind, rates, self.points[level])
        ends = [self.bounds[level].rates[rate] for rate in rates]
        lost = np.any([np.isnan(low) for low, _ in ends], axis=0)
        return comparison(
            identifier,
            self._value(bounds, level, point),
            self._who(kind, ends),
            undefined=tuple(self.true[j] for j in np.flatnonzero(lost)),
        )

    def _who(self, kind: str, bounds: Sequence[Pair]) -> tuple[str, ...]:
        """Return the groups that reach the worst case."""
        lows, highs = ends_of(kind, bounds)
        ends = highs if kind in ("difference", "max") else -lows
        if np.isnan(ends).all():
            return ()
        best = int(np.nanargmax(ends))
        if kind in ("min", "max"):
            return (self.true[best % len(self.true)],)
        a, b = pairs(len(self.true))
        best %= a.size
        return self.true[int(a[best])], self.true[int(b[best])]

    def rates(self) -> dict[str, dict[str, Estimate]]:
        """Return metric and scope -> group -> value, for checks on one group."""
        out: dict[str, dict[str, Estimate]] = {}
        for metric, groups in self.of_groups.items():
            for scope in NOISE_SCOPES:
                level = self._level(scope)
                points = self.points[level][metric] if level in self.bounds else np.full(len(groups), np.nan)
                out[f"{metric}.{scope}"] = {
                    group: self._value(bounds, level, float(point))
                    for group, bounds, point in zip(self.true, groups, points, strict=True)
                }
        return out

    def breakdowns(self, checks: Iterable[Check]) -> Iterator[SavedBreakdown]:
        """Yield the breakdown points of all checks that have some."""
        curve = self.evidence.curve
        if curve is None:
            return
        rates_of = {(name, kind): rates for kind, name, rates in self.of_comparisons}
        for check in checks:
            of = check.comparison
            name, kind = of.metric, of.kind
            ours = of.attribute in (None, self.data.attribute) and of.group is None
            if ours and (name, kind) in rates_of and of.scope in ("", "between_groups", *NOISE_SCOPES):
                kept, broken = (
                    curve.largest(partial(holds, check), kind, rates_of[name, kind])
                    for holds in (_kept, _broken)
                )
                yield SavedBreakdown(check=check.text, holds_up_to=number(kept), fails_up_to=number(broken))

    # ------------------------------------------------------------------ report

    def figures(self) -> tuple[dict[str, list[NoiseFigure]], tuple[NoiseFigure, ...]]:
        """Return the numbers of each group, and those of comparisons."""
        evidence, curve = self.evidence, self.evidence.curve
        every_eps = () if curve is None else curve.grid
        naive, other, weighted = _naive(evidence), evidence.other_joint, evidence.weighted
        others = (
            {}
            if other is None
            else {name: table_bounds(self.data.cells, other, r) for name, r in self.data.metrics.items()}
        )
        n4 = self.points.get("N4")
        groups = {group: list[NoiseFigure]() for group in self.true}
        for metric, ratio in self.data.metrics.items():
            error = None if n4 is None else self.assumptions["N4"].standard_error(ratio)
            for j, group in enumerate(self.true):
                same = self.data.names.index(group) if group in self.data.names else None
                figure = NoiseFigure(
                    name=metric,
                    recorded=None if same is None else number(evidence.recorded[metric][same]),
                    weighted=number(weighted[metric][j]) if weighted else None,
                    bounds=self.of_groups[metric][j],
                    naive=None if naive is None else _ends_at(naive[metric], j),
                    identified=None if n4 is None else number(n4[metric][j]),
                    standard_error=None if error is None else number(error[j]),
                    other_transport=_ends_at(others[metric], j) if others else None,
                    curve=()
                    if curve is None
                    else tuple(_point(eps, _ends_at(curve.at(metric, eps), j)) for eps in every_eps),
                )
                groups[group].append(figure)
        comparisons = []
        for (kind, name, rates), bounds in self.of_comparisons.items():
            figure = NoiseFigure(
                name=f"{name}.{kind}",
                recorded=number(_single(kind, rates, evidence.recorded)),
                weighted=number(_single(kind, rates, weighted)) if weighted else None,
                bounds=bounds,
                naive=None if naive is None else _ends(compared(kind, [naive[rate] for rate in rates])),
                identified=None if n4 is None else number(_single(kind, rates, n4)),
                other_transport=_ends(compared(kind, [others[rate] for rate in rates])) if others else None,
            )
            if curve is not None and every_eps and kind == "difference":
                certain = curve.largest(lambda low, _: low > TOLERANCE, kind, rates, COARSE)
                figure = replace(
                    figure,
                    curve=tuple(_point(eps, _ends(curve.compared(kind, rates, eps))) for eps in every_eps),
                    certain_up_to=number(certain),
                )
            comparisons.append(figure)
        return groups, tuple(comparisons)

    def vacuous(self) -> Iterator[tuple[str, str]]:
        """Yield (metric, group) that tables without labels leave open, whatever the decisions are."""
        tables = self.evidence.plain_joints
        for name in EQUALIZED_ODDS:
            if tables is not None and name in self.data.metrics:
                empty = [vacuous(self.data.cells, table, self.data.metrics[name]) for table in tables]
                yield from ((name, self.true[j]) for j in np.flatnonzero(np.any(empty, axis=0)))

    def report(self, checks: Sequence[Check] = ()) -> tuple[schema.NoiseResults, list[SavedComparison]]:
        """Return the results for true groups, and what checks can look at."""
        evidence, names = self.evidence, self.data.names
        table, joints = evidence.table, evidence.plain_joints
        groups, comparisons = self.figures()  # with them come the bounds, and the notes on them
        notes = [note for assumption in self.assumptions.values() for note in assumption.notes]
        plain = None if table is None or joints is None else joints[0]
        ways = () if table is None else table.ways
        result = schema.NoiseResults(
            attribute=self.data.attribute,
            source="" if table is None else table.source,
            rests_on=self.rests_on,
            assumptions=self.stated,
            unavailable=self.unavailable,
            table=schema.SavedNoiseTable(
                form="" if table is None else table.form,
                rows=None if table is None else table.rows,
                by_label=evidence.by_label,
                kept=ways[0] if len(ways) == 1 else "either" if ways else "",
                shift=None if table is None else table.shift(evidence.masses(self.data.cells)),
                transport_difference=None if table is None else self._transport_difference(table),
                true=self.true,
                noisy=names,
                joint=() if plain is None else tuple(tuple(row) for row in plain.tolist()),
            ),
            radii=tuple(_radii(evidence, plain if evidence.same_groups else None)),
            smallest_eps=None if evidence.curve is None else evidence.curve.least,
            vacuous=tuple(
                schema.MetricOfGroup(metric=metric, group=group) for metric, group in self.vacuous()
            ),
            groups=tuple(schema.NoiseGroup(group=group, figures=tuple(own)) for group, own in groups.items()),
            comparisons=comparisons,
            breakdown=tuple(self.breakdowns(checks)),
            resampling=schema.Resampling(replicates=evidence.replicates, seed=self.seed),
            notes=(*notes, *(() if table is None else self._cautions(table))),
        )
        return result, list(self.comparisons(checks))

    def _transport_difference(self, table: NoiseTable) -> float | None:
        """Return how far tables are apart that were carried over in both ways."""
        evidence = self.evidence
        if table.keep is None and table.says_noisy:
            most = float(np.ptp(evidence.joints, 0).max())
            return most if most > TOLERANCE else 0.0
        if evidence.other_joint is not None:
            return float(np.abs(evidence.other_joint - evidence.joints[0]).max())
        return 0.0 if table.says_noisy else None

    def _cautions(self, table: NoiseTable) -> Iterator[str]:
        """Yield what has to be borne in mind of the table, and of what is stated besides."""
        joints, curve = self.evidence.joints, self.evidence.curve
        if table.rows is None:
            yield (
                f"{table.source} holds probabilities, which are taken as known; counts would show their sampling error"
            )
        if "N4" in self.stated or "N3" in self.stated:
            yield (
                f"{self.rests_on} assumes that decisions do not use the recorded group, which the data "
                "cannot show"
            )
        if len(joints) > 1 and np.ptp(joints, 0).max() > TOLERANCE:
            yield (
                f"the groups of {table.source} have other fractions than in the data, and it is not stated what "
                "holds for "
                "both: N0, N1 and N2 allow P(true | noisy) and P(noisy | true). "
                "With `noise=FILE(keep=...)`, which states it, bounds become narrower"
            )
        if curve is None:
            yield f"{SHARES_OPEN}: there are no breakdown points and no curve over eps"
            return
        if not curve.grid:
            yield "there are many groups, so the curve over eps is left out; breakdown points of checks are shown"
        if curve.least > 0:
            yield (
                f"the data refute that noise is independent of outcomes; the smallest eps they allow is "
                f"{curve.least:.4f}, part of it sampling error"
            )


def _naive(evidence: ResampledGroups) -> dict[str, Pair] | None:
    """Return recorded rates give or take the share of the true group that is recorded as another."""
    if not evidence.same_groups or evidence.balls is None:
        return None
    plain = evidence.plain_joints
    gamma = evidence.balls[0].radii if plain is None else conditional_radius(plain[0])
    return {
        name: (np.clip(rate - gamma, 0.0, 1.0), np.clip(rate + gamma, 0.0, 1.0))
        for name, rate in evidence.recorded.items()
    }


def _radii(evidence: ResampledGroups, plain: Floats | None) -> Iterator[schema.Radius]:
    """Yield the radius of each true group; ``plain`` is the table, where its groups are the recorded ones."""
    if evidence.balls is None:
        return
    balls, names = evidence.balls[0], evidence.data.names
    if_equal = {} if plain is None else dict(zip(names, conditional_radius(plain).tolist(), strict=True))
    for group, near, radius in zip(balls.true, balls.recorded(names), balls.radii.tolist(), strict=True):
        yield schema.Radius(group=group, near=near, radius=radius, if_shares_were_equal=if_equal.get(group))


def _single(kind: str, rates: Metrics, points: Mapping[str, Floats]) -> float:
    """Return a comparison of rates that are single numbers."""
    return compared(kind, [(points[rate], points[rate]) for rate in rates])[0]


def _ends(pair: tuple[float, float]) -> Ends:
    return number(pair[0]), number(pair[1])


def _ends_at(bounds: Pair, group: int) -> Ends:
    return number(bounds[0][group]), number(bounds[1][group])


def _point(eps: float, ends: Ends) -> CurvePoint:
    return CurvePoint(eps=eps, low=ends[0], high=ends[1])


def _kept(check: Check, low: float, high: float) -> bool:
    """Return whether no value from low to high breaks a limit, but for rounding."""
    return not (check.violated_by(high - TOLERANCE) or check.violated_by(low + TOLERANCE))


def _broken(check: Check, low: float, high: float) -> bool:
    """Return whether every value from low to high breaks a limit."""
    return check.violated_by(low) and check.violated_by(high)


def audited(
    true: TrueGroups,
    scanned: Scan,
    source: Source,
    settings: Settings,
    more: More | None,
    own: tuple[str, ...],
) -> Audit:
    """Return the audit of data with what is said of true groups, which are known by columns of their ``own``."""
    report, comparisons = true.report(settings.checks)
    attribute, every = true.data.attribute, dict(more or {})
    every[attribute] = [*every.get(attribute, ()), *comparisons]
    rates, columns = {attribute: true.rates()}, {attribute: own} if own else None
    verdicts = judge(scanned, settings, source.name, source, every, rates, columns)
    return replace(verdicts, noise=report)


def audit_noisy(
    source: Source,
    data_spec: DataSpec,
    noise: Noise,
    settings: Settings | None = None,
    *,
    seed: int = 0,
    more: More | None = None,
) -> Audit:
    """Audit data whose protected column holds recorded groups; the data are read once, as in any audit.

    ``data_spec`` names one protected column, that of the recorded groups; ``seed`` is that of the resampling; else as
    in :func:`fairfix.auditing.audit.audit`.
    """
    settings = settings or Settings()
    if len(data_spec.columns.protected) != 1:
        raise UsageError(
            f"noise is described for one column, and `protected` names {', '.join(data_spec.columns.protected)}: name "
            "the column of the recorded groups alone"
        )
    if data_spec.task == "regression":
        raise UsageError(NOT_OF_VALUES)
    data_spec.check()
    scanned = scan(source, data_spec, exact=settings.exact)
    data = recorded_groups(scanned.counts, scanned.data_spec, data_spec.columns.protected)
    true = TrueGroups(data, noise, 1.0 - settings.confidence, seed)
    return audited(true, scanned, source, settings, more, ())
