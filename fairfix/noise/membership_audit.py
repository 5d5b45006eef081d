"""The audit of groups known by probabilities alone: a probability of membership per row and group (BISG and the like).

Row ``i`` carries a vector ``z_i`` with ``z_ij = P(true = j | z_i)``, which has to be right for the people in the data.

* **N1**, the worst case: nothing ties the true group to the cell among rows of one vector. The limits of
  :mod:`fairfix.noise.membership_moments` are of means that are at least the worst case; it is looked for on a part of
  the rows (:data:`SEARCHED`), in bins of like vectors, which depend on the vectors alone.
* **N4**, independence: given ``z``, the true group is independent of label and decision, so each row counts in group
  ``j`` by its probability. It is a statement on people that the data cannot show, so it has to be made.

Sampling error is that of rows, drawn independently of one another. The far end of a comparison needs the limit of the
one pair that attains it; the near end is taken at a level that holds for all pairs at once. Under N1 both limits of a
pair hold at once, each at half the level. Under N4 they are put together with their correlation (MOVER; Zou and Donner,
2008). Derivations are in ``docs/methods/noise.md``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace as fields_replaced

from fairfix.auditing.audit import More
from fairfix.auditing.checks import Check
from fairfix.auditing.results import Settings
from fairfix.data.choices import ROLES, Level
from fairfix.data.counts import Ints
from fairfix.data.data_spec import DataSpec
from fairfix.data.encoder import Encoder, Rows, numbers
from fairfix.data.files import Source
from fairfix.data.memberships import checked, memberships
from fairfix.data.scan import scan, stream_batches
from fairfix.data.table import Table
from fairfix.errors import ColumnError, DataError, UsageError
from fairfix.noise.assumptions import Assumption, Unavailable
from fairfix.noise.bounds import Pair
from fairfix.noise.comparisons import RateBounds, bound_of, ends_of, pairs, worst
from fairfix.noise.description import Noise
from fairfix.noise.membership_moments import MomentMeans, Sample, correlations, weighted_means, worst_means
from fairfix.noise.observed_groups import NO_DECISIONS, NOT_OF_VALUES, Recorded, rates_with
from fairfix.noise.rates import Floats, cells_of, flipped, quotient
from fairfix.noise.resampling import ResampledGroups
from fairfix.noise.true_groups import TrueGroups, audited
from fairfix.schema import audit as schema
from fairfix.schema.audit import Audit, Bound, MemberGroup, Membership
from fairfix.schema.common import SavedComparison

ATTRIBUTE = "membership"
"""Name of the attribute in reports and checks."""

SEARCHED = 0.25
"""Share of the rows on which the worst case is looked for. Limits are of the others, so they are 1 / sqrt(0.75) = 1.15
times as wide as those of all rows; a guess from fewer rows would cost more than that."""

LEAST = 50
"""Rows that a bin has at least: a share of them is known within 0.07."""

MOST = 1000
"""Bins at most."""


def check_columns(
    source: Source,
    data_spec: DataSpec,
    names: Collection[str],
    parameter: str = "noise",
    what: str = "membership probabilities",
) -> None:
    """Raise where a column that a parameter names is not there, holds no numbers, or plays another part."""
    source.require(list(names))
    for name in names:
        if name in data_spec.columns.roles:
            part = next(part for part in ROLES if name in (getattr(data_spec.columns, part) or ()))
            raise UsageError(
                f"column {name!r} is given to `{part}` and to `{parameter}`; it can have only one role: leave it out "
                f"of `{part}`, or name another column in `{parameter}`"
            )
        kind = source.schema.field(name).type
        if not source.text and not (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        ):
            raise ColumnError(f"column {name!r} has type {kind}; it must contain {what}")


# ---------------------------------------------------------------------- rows


@dataclass(frozen=True, eq=False)
class MembershipPatterns:
    """Rows by distinct vector of probabilities."""

    groups: Mapping[str, str]
    """True group -> column."""
    vectors: Floats
    """Distinct vectors, shape (V, J), each of sum 1."""
    into: Ints
    """Vector of each row, shape (n,)."""
    cells: Floats
    """Part of each row in TP, FN, FP, TN, shape (n, 4); without labels positive decisions are in FP."""
    weight: Floats
    labelled: bool

    @property
    def effective(self) -> float:
        """Effective number of rows."""
        return float(self.weight.sum() ** 2 / (self.weight**2).sum())

    def sample(self, chosen: Ints) -> Sample:
        """Return the rows chosen, by vector and cell; a decision drawn with a chance counts as drawn."""
        into, cells, weight = self.into[chosen], self.cells[chosen], self.weight[chosen]
        return Sample(
            self.vectors,
            _summed(into, cells * weight[:, None], len(self.vectors)),
            _summed(into, cells * (weight * weight)[:, None], len(self.vectors)),
        )

    def parts(self, share: float, seed: int) -> tuple[Ints, Ints]:
        """Return a random part of the rows, and the others; the same whatever the order of the rows."""
        order = np.lexsort((self.weight, *self.cells.T, self.into))
        shuffled = order[np.random.default_rng(seed).permutation(order.size)]
        first = math.floor(share * order.size)
        return shuffled[:first], shuffled[first:]


def _summed(into: Ints, parts: Floats, size: int) -> Floats:
    """Return sums of rows (n, c) by place, shape (size, c)."""
    return np.stack([np.bincount(into, part, size) for part in parts.T], -1).astype(np.float64)


def _checked_rows(
    source: Source, data_spec: DataSpec, columns: Sequence[str]
) -> Iterator[tuple[Floats, Rows]]:
    """Yield batches of probabilities, (n, J), with their rows; a DataError names the row in the data that has none."""
    seen: dict[str, int] = {}
    for before, part, batch in stream_batches(source, data_spec, dict.fromkeys(columns, pa.float64())):
        at = seen.get(part.where, part.first_row)
        seen[part.where] = at + batch.num_rows
        rows = Encoder(data_spec, part.where, at).encode(batch)
        kept = np.arange(batch.num_rows) if rows.kept is None else np.flatnonzero(rows.kept)
        z = np.stack([numbers(batch.column(name), name, "membership") for name in columns], -1)[kept]
        where = f" of {part.where}" if part.where else ""
        yield checked(z, columns, kept + (at if part.where else before) + 1, where), rows


def check_memberships(table: Table, source: Source, data_spec: DataSpec, columns: Sequence[str]) -> None:
    """Raise a DataError where a row of a table has no probabilities; it names the row in the source of the table.

    The source is read again only to find that row.
    """
    try:
        memberships(table, columns)
    except DataError:
        for _ in _checked_rows(source, data_spec, columns):
            pass
        raise


def read_members(source: Source, data_spec: DataSpec, groups: Mapping[str, str]) -> MembershipPatterns:
    """Return the rows with their vectors of probabilities; the reading is that of a scan."""
    columns = list(groups.values())
    check_columns(source, data_spec, columns)
    vectors, cells, weights = [], [], []
    for z, rows in _checked_rows(source, data_spec, columns):
        vectors.append(z)
        cells.append(_cells(rows, data_spec))
        weights.append(np.ones(len(rows)) if rows.weight is None else rows.weight)
    parts = np.concatenate(vectors), np.concatenate(cells), np.concatenate(weights)
    return _members(groups, *parts, labelled=data_spec.columns.label is not None)


def members_of(table: Table, groups: Mapping[str, str]) -> MembershipPatterns:
    """Return the decided rows of a table with their vectors of probabilities, which are among its features."""
    positive, label = table.chance, table.rows.label
    if positive is None:
        raise UsageError(NO_DECISIONS)
    cells = _of_decisions(positive, label)
    z = memberships(table, tuple(groups.values()))
    return _members(groups, z, cells, table.weight, labelled=label is not None)


def _members(
    groups: Mapping[str, str], z: Floats, cells: Floats, weight: Floats, *, labelled: bool
) -> MembershipPatterns:
    """Return rows by distinct vector."""
    counted = weight > 0  # a row without weight has no part in anything
    z, cells, weight = z[counted], cells[counted], weight[counted]
    distinct, into = np.unique(z, axis=0, return_inverse=True)
    return MembershipPatterns(groups, distinct, into.ravel().astype(np.int64), cells, weight, labelled)


def _cells(rows: Rows, data_spec: DataSpec) -> Floats:
    """Return the part of each row in TP, FN, FP, TN, shape (n, 4)."""
    if rows.decision is not None:
        positive = rows.decision
    elif rows.score is not None and data_spec.threshold is not None:
        positive = (rows.score >= data_spec.threshold).astype(np.float64)
    else:
        raise UsageError(NO_DECISIONS)
    return _of_decisions(positive, rows.label)


def _of_decisions(positive: Floats, labels: Any) -> Floats:
    """Return the part of each row in TP, FN, FP, TN, by the chance of a positive decision and the label, if any."""
    label = np.zeros(positive.size) if labels is None else labels.astype(np.float64)
    of_label = np.stack([1 - label, label], -1)
    return cells_of(of_label * positive[:, None], of_label * (1 - positive)[:, None])


# ---------------------------------------------------------------------- bins


def merged(vectors: Floats, rows: Ints, least: int = LEAST, most: int = MOST) -> Ints:
    """Return the bin of each vector: cut at medians, until a bin is one vector or its halves have too few rows.

    Of distinct vectors, shape (V, J), and rows of each, shape (V,), to bins numbered from 0, shape (V,). A bin has
    ``least`` rows or more, if there are as many in all, and there are ``most`` bins at most.
    """
    if len(vectors) > most:
        least = max(least, math.ceil(int(rows.sum()) / most))
    out = np.zeros(len(vectors), dtype=np.int64)
    bins, todo = 0, [np.arange(len(vectors))]
    while todo:
        here = todo.pop()
        halves = _halves(vectors, rows, here, least)
        if halves is None:
            out[here] = bins
            bins += 1
        else:
            todo.extend(reversed(halves))
    return out


def _halves(vectors: Floats, rows: Ints, here: Ints, least: int) -> tuple[Ints, Ints] | None:
    """Return both sides of the cut nearest to the median, of the group with the largest variance that has one."""
    count = rows[here]
    total = int(count.sum())
    if here.size < 2 or total < 2 * least:
        return None
    z = vectors[here]
    spread = count @ (z - count @ z / total) ** 2
    for j in np.argsort(-spread, kind="stable"):
        order = np.argsort(z[:, j], kind="stable")
        value, below = z[order, j], np.cumsum(count[order])
        good = (value[:-1] < value[1:]) & (below[:-1] >= least) & (total - below[:-1] >= least)
        if good.any():
            cut = np.flatnonzero(good)
            at = int(cut[np.abs(below[cut] - total / 2).argmin()]) + 1
            return here[order[:at]], here[order[at:]]
    return None


# ---------------------------------------------------------------------- limits


@dataclass(frozen=True, eq=False)
class Limits(RateBounds):
    """Bounds of every rate with limits in closed form."""

    ends: Mapping[str, tuple[MomentMeans, MomentMeans]] = field(default_factory=dict)
    """Rate -> the means of its highest value, and of the highest value of its complement."""
    together: Mapping[str, Floats] | None = None
    """Rate -> correlations of the groups' rates, shape (J, J); None where limits of a pair are to hold at once."""

    def limits(self, metric: str, level: float) -> Pair:
        """Return the lower and the upper limit of each group, either missed with a probability of ``level``."""
        high, low = self.ends[metric]
        return 1.0 - low.upper(level), high.upper(level)

    def of_groups(self, metric: str) -> Iterator[Bound]:
        """Yield where each group's rate lies."""
        yield from map(bound_of, *self.rates[metric], *self.limits(metric, self.alpha / 2))

    def of_comparison(self, kind: str, metrics: Sequence[str]) -> Bound:
        """Return where a comparison lies; of several rates the worst."""
        lows, highs = ends_of(kind, [self.rates[name] for name in metrics])
        one, all_ = self.alpha / 2, self.alpha / 2 / lows.size
        near, far = (all_, one) if kind in ("difference", "max") else (one, all_)
        return bound_of(
            worst(kind, lows),
            worst(kind, highs),
            worst(kind, self._limits_of(kind, metrics, near)[0]),
            worst(kind, self._limits_of(kind, metrics, far)[1]),
        )

    def _limits_of(self, kind: str, metrics: Sequence[str], level: float) -> Pair:
        """Return the limits of each pair of groups, or of each group."""
        if kind in ("min", "max") or self.together is None:
            each_level = level if kind in ("min", "max") else level / 2
            return ends_of(kind, [self.limits(name, each_level) for name in metrics])
        each = [self._mover(self.together[name], kind, name, level) for name in metrics]
        return np.concatenate([low for low, _ in each]), np.concatenate([high for _, high in each])

    def _mover(self, together: Floats, kind: str, metric: str, level: float) -> Pair:
        """Return the limits of each pair of groups from those of both rates and their correlation."""
        rate, (low, high) = self.rates[metric][0], self.limits(metric, level)
        a, b = pairs(rate.size)
        r = together[a, b]
        if kind == "ratio":
            with np.errstate(divide="ignore"):
                rate, low, high = np.log(rate), np.log(low), np.log(high)
        with np.errstate(invalid="ignore"):
            ends = []
            for sign, x, y in ((-1.0, low[a], high[b]), (1.0, high[a], low[b])):
                p, q = np.abs(x - rate[a]), np.abs(y - rate[b])
                put = rate[a] - rate[b] + sign * np.sqrt(np.maximum(p * p + q * q - 2.0 * r * p * q, 0.0))
                ends.append(np.where(np.isfinite(put) | np.isnan(rate[a] + rate[b]), put, x - y))
        if kind == "ratio":
            return np.minimum(np.exp(ends[0]), 1.0), np.minimum(np.exp(ends[1]), 1.0)
        return ends[0], ends[1]


# ---------------------------------------------------------------------- audit


class MemberEvidence(ResampledGroups):
    """Rows with probabilities of membership, by distinct vector, and the parts on which the worst case is looked for.

    Nothing is recorded, so there is no table, and rates of recorded groups are NaN.
    """

    curve = None
    balls = None
    other_joint = None

    def __init__(
        self, members: MembershipPatterns, seed: int, least: int, most: int, attribute: str = ATTRIBUTE
    ) -> None:
        searched, held = members.parts(SEARCHED, seed)
        self.searched, self.held = searched.size, held.size
        self.all, self.judged = members.sample(np.arange(members.into.size)), members.sample(held)
        rows = np.bincount(members.into[searched], minlength=len(members.vectors)).astype(np.int64)
        into = merged(members.vectors, rows, least, most)
        bins = int(into.max()) + 1
        self.bin_rows = np.bincount(into, rows).astype(np.int64)
        counts = _summed(into, members.sample(searched).weight, bins)
        self.guess = quotient(counts, counts.sum(1, keepdims=True), 0.0)[into]
        """Shares of the cells in each vector's bin, shape (V, 4); zeros in a bin without rows."""
        masses = self.all.weight / self.all.weight.sum()
        self.joint = _summed(into, members.vectors * masses.sum(1, keepdims=True), bins).T
        self.plain_joints = self.joint[None]
        cells = _summed(into, masses, bins)
        self.data = Recorded(attribute, (), cells, members.effective, rates_with(members.labelled))
        self.noise, self.table, self.replicates = Noise(radii={}), None, 0
        self.members, self.true = members, tuple(members.groups)
        by_probability = members.vectors.T @ self.all.weight
        self.weighted = {name: ratio.of(by_probability) for name, ratio in self.data.metrics.items()}

    @property
    def recorded(self) -> Mapping[str, Floats]:
        """NaN for every rate."""
        return {name: np.full(len(self.true), math.nan) for name in self.data.metrics}


class Probable(Assumption):
    """The probabilities are right, and nothing ties the true group to the cell."""

    level = "N1"
    evidence: MemberEvidence

    @property
    def stated(self) -> str:
        """The columns."""
        return f"the membership probabilities in {', '.join(self.evidence.members.groups.values())}"

    def bounds(self, weaker: Mapping[Level, RateBounds]) -> RateBounds:
        """Return the bounds whose limits hold at once for both groups of a pair."""
        judged, guess = self.evidence.judged, self.evidence.guess
        ends = {
            name: (worst_means(judged, guess, ratio), worst_means(judged, guess, flipped(ratio)))
            for name, ratio in self.evidence.data.metrics.items()
        }
        rates = {name: (1.0 - low.rate, high.rate) for name, (high, low) in ends.items()}
        return Limits(rates, {}, self.alpha, ends)


class Independent(Assumption):
    """Given the probabilities, the true group is independent of label and decision."""

    level = "N4"
    evidence: MemberEvidence

    def __init__(self, evidence: MemberEvidence, alpha: float, *, stated: bool) -> None:
        super().__init__(evidence, alpha)
        self.is_stated = stated

    @property
    def stated(self) -> str | None:
        """The statement, in words."""
        if not self.is_stated:
            return None
        return "given the membership probabilities, the true group is independent of label and decision"

    def bounds(self, weaker: Mapping[Level, RateBounds]) -> RateBounds:
        """Return the weighted rates, with the correlations of pairs: one number, and no two that differ by rounding."""
        if not self.is_stated:
            raise Unavailable("not stated (`assume=independent`)")
        rows, metrics = self.evidence.all, self.evidence.data.metrics
        ends = {n: (weighted_means(rows, r), weighted_means(rows, flipped(r))) for n, r in metrics.items()}
        together = {name: correlations(rows, ratio) for name, ratio in metrics.items()}
        rates = {name: (high.rate, high.rate) for name, (high, _) in ends.items()}
        return Limits(rates, {}, self.alpha, ends, together)

    def points(self, bounds: RateBounds) -> Mapping[str, Floats]:
        """Return the weighted rates."""
        return {name: low for name, (low, _) in bounds.rates.items()}


class MembershipGroups(TrueGroups):
    """Bounds and estimates of true groups in which each row has membership probabilities.

    ``independent`` states N4, ``seed`` is that of the part of the rows on which the worst case is looked for, ``least``
    and ``most`` are those of :func:`merged`, and by ``attribute`` the groups go in reports.
    """

    def __init__(
        self,
        members: MembershipPatterns,
        *,
        independent: bool = False,
        alpha: float = 0.05,
        seed: int = 0,
        least: int = LEAST,
        most: int = MOST,
        attribute: str = ATTRIBUTE,
    ) -> None:
        self.evidence: MemberEvidence
        evidence = MemberEvidence(members, seed, least, most, attribute)
        self._rest(
            evidence, [Probable(evidence, alpha), Independent(evidence, alpha, stated=independent)], seed
        )
        self.unavailable |= {
            "N0": "there are no recorded groups to compare with",
            "N2": "the probabilities are not by label",
            "N3": "eps is about a noise table (`noise=FILE`)",
        }

    def shortfall(self, level: Level, sides: Iterable[tuple[str, float]]) -> Pair:
        """Return the distance of the worst group on the wrong side of the overall rate, and an upper limit of it.

        The limit holds for the one group and side that attain it, so each takes half of alpha; the overall rate
        and the group's each take half of that.
        """
        bounds, rows = self.bounds[level], self.evidence.all
        assert isinstance(bounds, Limits)
        everybody = replace(rows, vectors=np.ones((len(rows.vectors), 1)))
        points, limits, share = [], [], bounds.alpha / 4
        for name, sign in sides:
            ratio, side = self.data.metrics[name], 0 if sign > 0 else 1
            end = bounds.rates[name][side]
            if name == "accuracy":  # compared with 1, as in shortfalls
                overall, most = np.ones(1), np.ones(1)
            else:
                overall = ratio.of(self.data.cells.sum(0))
                most = weighted_means(everybody, ratio if sign > 0 else flipped(ratio)).upper(share)
                most = most if sign > 0 else 1.0 - most
            points.append(sign * (overall - end))
            limits.append(sign * (most - bounds.limits(name, share)[side]))
        point = worst("max", np.concatenate(points))
        return point, np.fmax(point, worst("max", np.concatenate(limits)))

    def report(self, checks: Sequence[Check] = ()) -> tuple[schema.NoiseResults, list[SavedComparison]]:
        """Return the report on true groups, and what checks can look at."""
        report, comparisons = super().report(checks)
        evidence, members = self.evidence, self.evidence.members
        shares = dict(zip(self.true, evidence.joint.sum(1).tolist(), strict=True))
        membership = Membership(
            groups=tuple(
                MemberGroup(group=group, column=column, share=shares[group])
                for group, column in members.groups.items()
            ),
            vectors=len(members.vectors),
            bins=len(evidence.bin_rows),
            smallest_bin=int(evidence.bin_rows.min()),
            searched=evidence.searched,
            held=evidence.held,
        )
        notes = [
            "the membership probabilities are taken as known, and as right for the people in these data",
            (
                f"the worst case was searched on {membership.searched:,} randomly chosen rows (seed {self.seed}), in "
                f"{membership.bins:,} bins of similar probabilities ({membership.vectors:,} distinct vectors). Its "
                f"limits come from the other {membership.held:,} rows: few rows make them wide, not narrow"
            ),
        ]
        if "N4" in self.stated:
            notes.append(
                "N4 is about the people behind the probabilities, and the data cannot show it: results that "
                "assume it hold only if it holds"
            )
        notes += report.notes
        table = fields_replaced(report.table, form="membership", noisy=())
        report = fields_replaced(report, table=table, membership=membership, notes=tuple(notes))
        return report, comparisons


def audit_membership(
    source: Source,
    data_spec: DataSpec,
    groups: Mapping[str, str],
    settings: Settings | None = None,
    *,
    independent: bool = False,
    seed: int = 0,
    more: More | None = None,
) -> Audit:
    """Audit data that hold a probability of membership per true group, which ``groups`` maps to its column.

    ``data_spec`` may name protected columns, which are audited as usual; ``independent`` states N4, and ``seed`` is
    that of the part of the rows on which the worst case is looked for; else as in :func:`fairfix.auditing.audit.audit`.
    """
    settings = settings or Settings()
    if data_spec.task == "regression":
        raise UsageError(NOT_OF_VALUES)
    if ATTRIBUTE in data_spec.columns.protected:
        raise UsageError(
            f"`protected={ATTRIBUTE}`: the report uses this name for the groups of `noise=membership:...`; rename "
            "the column"
        )
    data_spec.check(protected=False)
    check_columns(source, data_spec, groups.values())
    scanned = scan(source, data_spec, exact=settings.exact)
    members = read_members(source, scanned.data_spec, groups)
    alpha = 1.0 - settings.confidence
    true = MembershipGroups(members, independent=independent, alpha=alpha, seed=seed)
    return audited(true, scanned, source, settings, more, tuple(groups.values()))
