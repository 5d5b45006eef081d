"""Evaluation of a repair on true groups: held-out rows, with the sampling error of rows and table.

The fit takes its rows for the population and the noise table for the truth. Neither is: other rows are drawn, and a
table of counts is a survey. So the results on held-out rows are audited like those of any file with a noise table
(:mod:`fairfix.noise.true_groups`): rows and table are drawn anew together, and each worst case gets an outer interval.
The rule itself stays as it is.

A repair may decide by the recorded group. Worst cases (N0, N1, N2) hold for any decisions. The estimate under N4 does
not: the decision then depends on the recording. It is made of what the rule of *each* recorded group would decide,
which is known of every row. Decisions that are drawn are drawn after the recording, so worst cases are those of
:mod:`fairfix.noise.randomized_rule_bounds`; of the precision they are those of cells, which are wider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fairfix.auditing.checks import Check
from fairfix.auditing.criteria import CRITERIA, metric_of, rates_of
from fairfix.data.choices import Level
from fairfix.data.names import attribute_name, group_name
from fairfix.data.numeric_groups import in_order
from fairfix.data.scan import count_table
from fairfix.data.table import Table
from fairfix.errors import DataError
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import Caution, Note
from fairfix.noise.added_rows import LOWER, UPPER
from fairfix.noise.bounds import Pair
from fairfix.noise.comparisons import quantile, worst
from fairfix.noise.description import Noise
from fairfix.noise.membership_audit import ATTRIBUTE, MembershipGroups, members_of
from fairfix.noise.observed_groups import Profiles, Recorded, recorded_groups
from fairfix.noise.rates import DEMANDS, Floats, bounded_in_words, shortfalls
from fairfix.noise.total_variation_radii import recorded_in
from fairfix.noise.true_groups import TrueGroups
from fairfix.schema.common import Estimate, SavedComparison
from fairfix.schema.compare import GapName, SavedGap

DIGITS = 6
"""Digits of probabilities by which rows are distinguished; linear programs are solved to 1e-7."""

HOLDS = 1e-6
"""Tolerance of the slack, which is that of the programs."""

LEVELS: tuple[Level, ...] = ("N4", "N2", "N1", "N0")
"""Assumptions whose bounds are told, the strongest first; N3 is about bins, which an audit does not look at."""

DIFFERENCES = {metric_of(criterion): rates_of(criterion) for criterion in CRITERIA}
"""Name -> rates of the differences whose worst case a comparison of repairs shows."""


@dataclass(frozen=True)
class RobustnessClaim:
    """The promise of a repair on true groups: the noise that the fit was held to, and the rates that a slack bounds."""

    noise: Noise
    demands: tuple[tuple[str, float], ...]
    """Rates, with 1 where a group must not be below the overall rate, -1 where above; none where nothing is
    recorded and the slack bounds a difference."""
    slack: float
    rates: tuple[str, ...] = ("selection_rate",)
    """Where nothing is recorded: the rates whose differences the slack bounds."""

    @property
    def uncertain(self) -> dict[str, tuple[str, ...]]:
        """Attribute that is known by probabilities alone -> their columns."""
        members = self.noise.membership
        return {} if members is None or self.demands else {ATTRIBUTE: tuple(members.values())}


def true_groups_of(
    table: Table, claim: RobustnessClaim, alpha: float, predictor: RepairedPredictor | None = None
) -> TrueGroups | None:
    """Return the audit of the true groups of decided rows; None where the noise says too little of these rows.

    ``alpha`` is one minus the confidence; without the predictor that decided, decisions do not look at the recorded
    group.
    """
    columns, noise = table.data_spec.columns.protected, claim.noise
    if noise.membership is not None:
        members = members_of(table, noise.membership)
        attribute = attribute_name(columns) if columns else ATTRIBUTE
        return MembershipGroups(members, independent=noise.independent, alpha=alpha, attribute=attribute)
    data = recorded_groups(count_table(table).counts, table.data_spec, columns)
    named = tuple(dict.fromkeys(recorded_in(key, data.names) for key in noise.radii or ()))
    if noise.table is not None:
        named = noise.table.noisy
    if len(columns) == 1:
        levels = in_order({(name,) for name in (*data.names, *named)}, columns, table.data_spec.bands)
        data = _padded(data, tuple(name for (name,) in levels))
    else:
        data = _padded(data, (*data.names, *sorted(set(named) - set(data.names))))
    if predictor is not None:
        data = replace(data, profiles=_profiles(table, data.names, predictor))
    # N3 is about bins of the score, and decisions of a repair may look at the recorded group besides: weaker ones hold
    for assume in ("" if noise.epsilon is not None else noise.assume, ""):
        try:
            true = TrueGroups(data, replace(noise, assume=assume), alpha)
            _ = true.bounds
        except DataError:  # not identified, or the table does not say enough of these rows
            continue
        return true
    return None


def _padded(data: Recorded, names: tuple[str, ...]) -> Recorded:
    """Return the data with recorded groups, those without rows included."""
    at = [names.index(name) for name in data.names]
    cells, row_mass = np.zeros((len(names), 4)), np.full((len(names), 2), 1.0 / data.rows)
    cells[at], row_mass[at] = data.cells, data.row
    return replace(data, names=names, cells=cells, row_mass=row_mass)


def _profiles(table: Table, names: tuple[str, ...], predictor: RepairedPredictor) -> Profiles:
    """Return the rows by recorded group, by what each group's rule makes of them, and by label."""
    of_each = predictor.of_each_group(table)
    own, label = table.decisions, table.labels
    each = np.repeat(own[:, None], len(names), 1)
    if of_each is not None:
        levels, probabilities = of_each
        each[:, [names.index(group_name(level)) for level in levels]] = probabilities
    # chances that differ by no more than a linear program is solved to are one, else the draws hang on the processor
    _, first, into = np.unique(np.round(each, DIGITS), axis=0, return_index=True, return_inverse=True)
    groups = table.groups()
    codes = np.array([names.index(name) for name in groups.names])[groups.codes]
    weight = table.weight
    shape = (len(names), first.size, 2)
    at = np.ravel_multi_index((codes, into.ravel(), label.astype(np.int64)), shape)
    masses = np.bincount(at, weight, int(np.prod(shape))).reshape(shape)
    return Profiles(masses / masses.sum(), each[first].T)


def comparisons_of(true: TrueGroups | None, checks: Iterable[Check]) -> dict[str, list[SavedComparison]]:
    """Return the comparisons of true groups by attribute, for an audit of the same rows."""
    return {} if true is None else {true.data.attribute: list(true.comparisons(checks))}


def values_of(true: TrueGroups | None) -> dict[str, dict[str, dict[str, Estimate]]]:
    """Return the rates of true groups by attribute, for checks on one of them."""
    return {} if true is None else {true.data.attribute: true.rates()}


def worst_of(true: TrueGroups | None) -> Iterator[SavedGap]:
    """Yield the largest gaps of true groups that the noise allows, with their upper limits."""
    if true is None:
        return
    bounds = true.bounds[true.rests_on]
    for name, metrics in DIFFERENCES.items():
        if all(metric in true.data.metrics for metric in metrics):
            bound = bounds.of_comparison("difference", metrics)
            comparison = f"{name}.difference.true_groups.worst_case"
            gap = GapName(comparison=comparison, attribute=true.data.attribute)
            yield SavedGap(gap=gap, value=bound.high, low=None, high=bound.outer_high, reason=bound.reason)


def said_of(before: TrueGroups | None, after: TrueGroups | None, claim: RobustnessClaim) -> Iterator[Note]:
    """Yield in words what held-out rows say of the true groups: a warning, if it is beyond the slack or not smaller."""
    if before is None or after is None:
        return
    if claim.uncertain:
        yield _said_of_membership(before, after, claim.rates)
        return
    parts, worse = [], []
    slack, bounded = claim.slack, set(claim.demands) != set(DEMANDS["minimax"])
    for level in LEVELS:
        if level in after.bounds and level in before.bounds:
            was, _ = shortfall(before, level, claim.demands)
            point, upper = shortfall(after, level, claim.demands)
            beyond, no_less = point > slack + HOLDS, point > was - HOLDS
            worse.append((beyond, was > slack + HOLDS and no_less) if bounded else (False, no_less))
            parts.append(f"{point:z.4f} under {level} (up to {upper:z.4f}; before the repair {was:z.4f})")
    if not parts:
        return
    (beyond, no_less), table = worse[0], after.evidence.table
    rows = "rows and table" if table is not None and table.rows is not None else "rows"
    yield (Caution if beyond or no_less else Note)(
        ("the repair does not reduce the gap: " if no_less else "")
        + f"on held-out rows, {bounded_in_words(claim.demands)} at most {', '.join(parts)}. 'Up to' includes the "
        f"sampling error of {rows}{f'. The slack is {slack:g}' if bounded else ''}",
        "claim",
    )


def _said_of_membership(before: TrueGroups, after: TrueGroups, rates: tuple[str, ...]) -> Note:
    """Return in words what held-out rows say of groups that are known by probabilities of membership alone."""
    was, now, worst_case = (
        bounds.of_comparison("difference", rates)
        for bounds in (before.bounds["N4"], after.bounds["N4"], after.bounds["N1"])
    )
    names = " or ".join(f"{name.replace('_', ' ')}s" for name in rates)
    of = "the decision" if rates == ("selection_rate",) else "label and decision"
    return Note(
        f"on held-out rows, the {names} of the true groups differ by {now.high:.4f} if, given the probabilities, "
        f"the true group is independent of {of} (N4; before the repair by {was.high:.4f}), and by at most "
        f"{worst_case.high:.4f} whatever their dependence (N1); with sampling error, by at most "
        f"{now.outer_high:.4f} and "
        f"{worst_case.outer_high:.4f}",
        "claim",
    )


def shortfall(true: TrueGroups, level: Level, sides: Iterable[tuple[str, float]]) -> tuple[float, float]:
    """Return the distance of the worst true group on the wrong side of the overall rate, and an upper limit.

    ``sides`` are rates, with 1 where a group must not be below and -1 where it must not be above. The limit is the
    quantile over the draws, one-sided, at half of alpha.
    """
    bounds, data = true.bounds[level], true.data
    if isinstance(true, MembershipGroups):
        here, limit = true.shortfall(level, sides)
        return float(here), float(limit)

    def most(rates: Mapping[str, Pair], overall: Callable[[str, int], Floats]) -> Floats:
        every = []
        for name, sign in sides:
            of_all = overall(name, UPPER if sign > 0 else LOWER)[..., None]
            every += shortfalls([(name, sign)], {name: of_all}.__getitem__, rates.__getitem__)
        return worst("max", np.concatenate(every, -1))

    point = float(most(bounds.rates, lambda name, _: data.metrics[name].of(data.cells.sum(-2))))
    if not bounds.draws:
        return point, point
    evidence = true.evidence

    def drawn(name: str, end: int) -> Floats:
        ratio = data.metrics[name]
        return ratio.of(evidence.drawn_for(ratio, end).sum(-2))

    limit = quantile(most(bounds.draws, drawn), 1 - bounds.alpha / 2)
    return point, float(np.fmax(point, limit))
