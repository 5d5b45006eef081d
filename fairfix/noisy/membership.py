r"""Groups known by chances alone: an audit with a probability of membership per row and group (BISG and the like).

Row ``i`` carries a vector ``z_i`` with ``z_ij = P(true = j | z_i)``. What is known of the population is the mass
``m_z(c)`` of each cell (TP, FN, FP, TN) among the rows of a vector, and the mass ``C_jz = z_j m_z`` of true group ``j``
there. Two things follow.

**The worst case (N1).** Nothing ties the true group to the cell inside a vector, so the mass ``q_jz(c)`` of group ``j``
in cell ``c`` is any with ``q >= 0``, ``sum_j q_jz(c) = m_z(c)`` and ``sum_c q_jz(c) = C_jz``. These are the constraints
of a noise table whose noisy groups are the distinct vectors: the closed form of
:func:`fairfix.noisy.bounds.soft_bounds` holds, and is sharp.

*Merging vectors only widens bounds.* Let ``q`` satisfy the constraints for the vectors of a bin ``B``. Then
``q_jB(c) = sum_{z in B} q_jz(c)`` satisfies those of the bin, with ``m_B = sum m_z`` and ``C_jB = sum C_jz``: the sums
change places. A rate only looks at ``sum_z q_jz(c) = sum_B q_jB(c)``, so every rate that was possible still is.

*Bounds of estimated masses are too narrow.* ``min(a, C)`` is concave and ``(C - t + a)_+`` convex in the masses, so
with masses of a sample highest rates come out too low and lowest too high; with one row per vector nothing would be
free. So they are not computed: what is reported are means whose expectation is *at least* the worst case, whatever is
guessed of the masses, and limits of these means. The guess is made on a part of the rows (``SEARCHED``), in bins of
like vectors, and the means are taken over the others; see :mod:`fairfix.noisy.members`. A bad guess makes limits
wide, not false. Bins depend on the vectors alone, never on outcomes.

**Independence (N4).** If the true group is independent of label and decision given ``z``, then ``q_jz(c) = z_j
m_z(c)``, and each row counts in group ``j`` by its probability: the weighted rate is the rate. It is a statement on
people that the data cannot show, and another one than the N4 of a noise table, so it has to be made. In both cases the
probabilities have to be right for the people in the data: among rows with the same vector, a share ``z_j`` is of group
``j``.

**Sampling error** is that of rows, drawn independently of one another. Probabilities are taken as known. The far end of
a comparison needs the limit of the one pair that attains it; the near end, which says that groups differ, is taken at a
level that holds for all pairs at once. Under N1 both limits of a pair hold at once, each at half the level: they are of
the same rows. Under N4 a pair's limits are put together with their correlation (MOVER; Zou and Donner, 2008).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fairfix.auditing.audit import More, judge
from fairfix.auditing.checks import Check
from fairfix.auditing.results import (
    AuditReport,
    Bound,
    ComparisonReport,
    MembershipReport,
    NoiseReport,
    Settings,
)
from fairfix.data.counts import Floats
from fairfix.data.encoder import Encoder, Rows
from fairfix.data.files import Source
from fairfix.data.reading import Reading
from fairfix.data.scan import scan, stream_batches
from fairfix.errors import ColumnError, DataError, UsageError
from fairfix.noisy.bounds import FN, FP, TN, TP, Ratio, flipped, vacuous
from fairfix.noisy.description import ROUNDED, Noise
from fairfix.noisy.members import Means, Sample, correlations, weighted_means, worst_means
from fairfix.noisy.true_groups import (
    NO_DECISIONS,
    NOT_OF_VALUES,
    Bounds,
    Pair,
    Seen,
    TrueGroups,
    _bound,
    _ends,
    _worst,
    known_rates,
)

ATTRIBUTE = "membership"
"""Name of the attribute in reports and checks."""

SEARCHED = 0.25
"""Share of the rows on which the worst case is looked for. Limits are of the others, so they are 1 / sqrt(0.75) = 1.15
times as wide as those of all rows; a guess from fewer rows would cost more than that."""

LEAST = 50
"""Rows that a bin has at least: a share of them is known within 0.07."""

MOST = 1000
"""Bins at most."""

Ints = npt.NDArray[np.int64]


def parse_membership(parts: Sequence[str]) -> dict[str, str]:
    """Read ``COLUMN`` or ``GROUP=COLUMN`` of each part; return group -> column.

    Raises
    ------
    UsageError
        A group or a column is named twice, or there are fewer than two.
    """
    out: dict[str, str] = {}
    for part in parts:
        group, sign, column = (text.strip() for text in part.partition("="))
        column = column if sign else group
        if not group or not column:
            raise UsageError(
                f"--noise-membership: cannot read {part!r}; write COLUMN,... or GROUP=COLUMN,..."
            )
        if group in out or column in out.values():
            twice = f"group {group!r}" if group in out else f"column {column!r}"
            raise UsageError(f"--noise-membership names the {twice} twice; each group has one column")
        out[group] = column
    if len(out) < 2:
        raise UsageError(
            f"--noise-membership {','.join(parts)}: name a column for each true group, two or more; for a group and "
            "everybody else both are needed"
        )
    return out


# ---------------------------------------------------------------------- rows


@dataclass(frozen=True, eq=False)
class Members:
    """The data, by distinct vector of probabilities.

    Attributes
    ----------
    groups
        True group -> column.
    chances
        Distinct vectors, shape (V, J), each of sum 1.
    into
        Vector of each row, shape (n,).
    cells
        Part of each row in TP, FN, FP, TN, shape (n, 4); without labels positive decisions are in FP.
    weight
        Weight of each row, shape (n,).
    labelled
        Whether there are labels.
    """

    groups: Mapping[str, str]
    chances: Floats
    into: Ints
    cells: Floats
    weight: Floats
    labelled: bool

    @property
    def effective(self) -> float:
        """Effective number of rows."""
        return float(self.weight.sum() ** 2 / (self.weight**2).sum())

    def rows(self, chosen: Ints) -> Ints:
        """Return the number of rows of each vector among those chosen, shape (V,)."""
        return np.bincount(self.into[chosen], minlength=len(self.chances)).astype(np.int64)

    def sample(self, chosen: Ints) -> Sample:
        """Return the rows chosen, by vector and cell; a decision drawn with a chance counts as drawn."""
        into, cells, weight = self.into[chosen], self.cells[chosen], self.weight[chosen]

        def summed(values: Floats) -> Floats:
            parts = [np.bincount(into, part * values, len(self.chances)) for part in cells.T]
            return np.stack(parts, -1)

        return Sample(self.chances, summed(weight), summed(weight * weight))

    def parts(self, share: float, seed: int) -> tuple[Ints, Ints]:
        """Return a random part of the rows, and the others; the same whatever the order of the rows."""
        order = np.lexsort((self.weight, *self.cells.T, self.into))
        shuffled = order[np.random.default_rng(seed).permutation(order.size)]
        first = math.floor(share * order.size)
        return shuffled[:first], shuffled[first:]


def read_members(source: Source, reading: Reading, groups: Mapping[str, str]) -> Members:
    """Return the rows with their vectors of probabilities; the reading is that of a scan.

    Raises
    ------
    DataError, UsageError
        Names column, row and remedy.
    """
    columns = list(groups.values())
    source.require(columns)
    for name in columns:
        kind = source.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise ColumnError(f"column {name!r} is of type {kind}; it must hold probabilities of membership")
    chances, cells, weights = [], [], []
    seen: dict[str, int] = {}
    for before, part, batch in stream_batches(source, reading, dict.fromkeys(columns, pa.float64())):
        at = seen.get(part.where, part.first_row)
        seen[part.where] = at + batch.num_rows
        rows = Encoder(reading, part.where, at).encode(batch)
        kept = np.arange(batch.num_rows) if rows.kept is None else np.flatnonzero(rows.kept)
        found = np.stack([_column(batch, name) for name in columns], -1)[kept]
        where = f" of {part.where}" if part.where else ""
        chances.append(_checked(found, columns, kept + (at if part.where else before) + 1, where))
        cells.append(_cells(rows, reading))
        weights.append(np.ones(len(rows)) if rows.weight is None else rows.weight)
    weight = np.concatenate(weights)
    counted = weight > 0  # a row without weight has no part in anything
    z, cell, weight = np.concatenate(chances)[counted], np.concatenate(cells)[counted], weight[counted]
    distinct, into = np.unique(z, axis=0, return_inverse=True)
    labelled = reading.columns.label is not None
    return Members(groups, distinct, into.ravel().astype(np.int64), cell, weight, labelled)


def _column(batch: pa.RecordBatch, name: str) -> Floats:
    """Return a column's numbers, NaN where they are missing."""
    values = pc.fill_null(pc.cast(batch.column(batch.schema.get_field_index(name)), pa.float64()), math.nan)
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def _checked(chances: Floats, columns: Sequence[str], rows: Ints, where: str) -> Floats:
    """Return probabilities of sum 1, or say which are none."""
    bad = ~((chances >= 0) & (chances <= 1 + ROUNDED))
    if bad.any():
        i, j = (int(at[0]) for at in np.nonzero(bad))
        value = chances[i, j]
        told = "is missing" if math.isnan(value) else f"is {value:g}, which is no probability,"
        raise DataError(
            f"column {columns[j]!r} {told} in row {rows[i]:,}{where}; correct it, or leave the row out"
        )
    sums = chances.sum(-1)
    off = np.flatnonzero(np.abs(sums - 1) > ROUNDED)
    if off.size:
        i = int(off[0])
        raise DataError(
            f"the probabilities of {', '.join(columns)} sum to {sums[i]:.6g} in row {rows[i]:,}{where}, and not to 1 "
            f"(within {ROUNDED:g}); correct them, or name a column for the other groups too"
        )
    return np.asarray(chances / sums[:, None])


def _cells(rows: Rows, reading: Reading) -> Floats:
    """Return the part of each row in TP, FN, FP, TN, shape (n, 4)."""
    if rows.decision is not None:
        positive = rows.decision
    elif rows.score is not None and reading.threshold is not None:
        positive = (rows.score >= reading.threshold).astype(np.float64)
    else:
        raise UsageError(NO_DECISIONS)
    label = np.zeros(len(rows)) if rows.label is None else rows.label.astype(np.float64)
    out = np.empty((len(rows), 4))
    out[:, TP], out[:, FN] = label * positive, label * (1 - positive)
    out[:, FP], out[:, TN] = (1 - label) * positive, (1 - label) * (1 - positive)
    return out


# ---------------------------------------------------------------------- bins


def merged(chances: Floats, rows: Ints, least: int = LEAST, most: int = MOST) -> Ints:
    """Return the bin of each vector: cut at medians, until a bin is one vector or its halves have too few rows.

    Parameters
    ----------
    chances, rows
        Distinct vectors, shape (V, J), and rows of each, shape (V,).
    least, most
        Rows that a bin has at least, if there are as many in all; number of bins at most.

    Returns
    -------
    Shape (V,), from 0 on. With ``least`` rows or more in each of at most ``most`` vectors, every one is a bin.
    """
    if len(chances) > most:
        least = max(least, math.ceil(int(rows.sum()) / most))
    out = np.zeros(len(chances), dtype=np.int64)
    bins, todo = 0, [np.arange(len(chances))]
    while todo:
        here = todo.pop()
        halves = _halves(chances, rows, here, least)
        if halves is None:
            out[here] = bins
            bins += 1
        else:
            todo.extend(reversed(halves))
    return out


def _halves(chances: Floats, rows: Ints, here: Ints, least: int) -> tuple[Ints, Ints] | None:
    """Return both sides of the cut nearest to the median, of the group with the largest variance that has one."""
    count = rows[here]
    total = int(count.sum())
    if here.size < 2 or total < 2 * least:
        return None
    z = chances[here]
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
class Limits(Bounds):
    """Bounds of every rate with limits in closed form.

    Attributes
    ----------
    ends
        Rate -> the means of its highest value, and of the highest value of its complement.
    together
        Rate -> correlations of the groups' rates, shape (J, J); None where limits of a pair are to hold at once.
    """

    ends: Mapping[str, tuple[Means, Means]] = field(default_factory=dict)
    together: Mapping[str, Floats] | None = None

    def limits(self, metric: str, level: float) -> Pair:
        """Return the lower and the upper limit of each group, either missed with a chance of ``level``."""
        if (metric, level) not in self._found:
            high, low = self.ends[metric]
            self._found[metric, level] = 1.0 - low.upper(level), high.upper(level)
        return self._found[metric, level]

    @cached_property
    def _found(self) -> dict[tuple[str, float], Pair]:
        return {}

    def of_groups(self, metric: str) -> Iterator[Bound]:
        """Yield where each group's rate lies."""
        every = (*self.rates[metric], *self.limits(metric, self.alpha / 2))
        yield from (_bound(*(float(end) for end in ends)) for ends in zip(*every, strict=True))

    def of_comparison(self, kind: str, metrics: Sequence[str]) -> Bound:
        """Return where a comparison lies; of several rates the worst."""
        lows, highs = _ends(kind, [self.rates[name] for name in metrics])
        one, all_ = self.alpha / 2, self.alpha / 2 / lows.size
        near, far = (all_, one) if kind in ("difference", "max") else (one, all_)
        return _bound(
            float(_worst(kind, lows)),
            float(_worst(kind, highs)),
            float(_worst(kind, self._compared(kind, metrics, near)[0])),
            float(_worst(kind, self._compared(kind, metrics, far)[1])),
        )

    def _compared(self, kind: str, metrics: Sequence[str], level: float) -> Pair:
        """Return the limits of each pair of groups, or of each group."""
        if kind in ("min", "max"):
            return _ends(kind, [self.limits(name, level) for name in metrics])
        if self.together is None:
            return _ends(kind, [self.limits(name, level / 2) for name in metrics])
        each = [self._mover(kind, name, level) for name in metrics]
        return np.concatenate([low for low, _ in each]), np.concatenate([high for _, high in each])

    def _mover(self, kind: str, metric: str, level: float) -> Pair:
        """Return the limits of each pair of groups from those of both rates and their correlation."""
        assert self.together is not None
        value, (low, high) = self.rates[metric][0], self.limits(metric, level)
        a, b = np.nonzero(~np.eye(value.size, dtype=bool))
        r = self.together[metric][a, b]
        if kind == "ratio":
            with np.errstate(divide="ignore"):
                value, low, high = np.log(value), np.log(low), np.log(high)
        with np.errstate(invalid="ignore"):
            ends = []
            for sign, x, y in ((-1.0, low[a], high[b]), (1.0, high[a], low[b])):
                p, q = np.abs(x - value[a]), np.abs(y - value[b])
                put = value[a] - value[b] + sign * np.sqrt(np.maximum(p * p + q * q - 2.0 * r * p * q, 0.0))
                ends.append(np.where(np.isfinite(put) | np.isnan(value[a] + value[b]), put, x - y))
        if kind == "ratio":
            return np.minimum(np.exp(ends[0]), 1.0), np.minimum(np.exp(ends[1]), 1.0)
        return ends[0], ends[1]


# ---------------------------------------------------------------------- audit


class MembershipGroups(TrueGroups):
    """Bounds and estimates of true groups that are known by probabilities alone.

    Parameters
    ----------
    members
        The data.
    independent
        Whether N4 is stated: given the probabilities, the true group is independent of label and decision.
    alpha
        One minus the confidence of intervals.
    seed
        Of the part of the rows on which the worst case is looked for.
    least, most
        Of :func:`merged`.
    """

    def __init__(
        self,
        members: Members,
        *,
        independent: bool = False,
        alpha: float = 0.05,
        seed: int = 0,
        least: int = LEAST,
        most: int = MOST,
    ) -> None:
        self.members = members
        searched, held = members.parts(SEARCHED, seed)
        self.searched, self.held = searched.size, held.size
        self.all, self.judged = members.sample(np.arange(members.into.size)), members.sample(held)
        rows = members.rows(searched)
        into = merged(members.chances, rows, least, most)
        self.bin_rows = np.bincount(into, rows).astype(np.int64)
        self.guess = _shares(members.sample(searched).weight, into)
        masses = self.all.weight / self.all.weight.sum()
        cells = np.stack([np.bincount(into, part) for part in masses.T], -1).astype(np.float64)
        own = members.chances * masses.sum(1, keepdims=True)
        self.joint = np.stack([np.bincount(into, part) for part in own.T])
        self.data = Seen(ATTRIBUTE, (), cells, members.effective, known_rates(members.labelled))
        self.noise, self.table = Noise(radii={}), None  # nothing is recorded, so there is no noise of it
        self.alpha, self.seed, self.replicates = alpha, seed, 0
        self.true = tuple(members.groups)
        self.notes = []
        told = ", ".join(members.groups.values())
        self.stated = {"N1": f"the probabilities of membership in {told}"}
        if independent:
            self.stated["N4"] = (
                "given the probabilities of membership, the true group is independent of label and decision"
            )
        self.unavailable = {
            "N0": "there are no recorded groups to compare with",
            "N2": "the probabilities are not by label",
            "N3": "eps is about a noise table (--noise FILE)",
        }

    @cached_property
    def radii(self) -> None:
        """There are none."""
        return None

    @cached_property
    def bounds(self) -> dict[str, Bounds]:
        """Assumption -> bounds of every rate."""
        worst = {
            name: tuple(worst_means(self.judged, self.guess, one) for one in (ratio, flipped(ratio)))
            for name, ratio in self.data.metrics.items()
        }
        out: dict[str, Bounds] = {"N1": self._limits(worst)}
        if "N4" not in self.stated:
            self.unavailable["N4"] = "not stated (--noise-independent)"
            return out
        known = {
            name: tuple(weighted_means(self.all, one) for one in (ratio, flipped(ratio)))
            for name, ratio in self.data.metrics.items()
        }
        together = {name: correlations(self.all, ratio) for name, ratio in self.data.metrics.items()}
        return {**out, "N4": self._limits(known, together)}

    def _limits(
        self, ends: Mapping[str, tuple[Means, ...]], together: Mapping[str, Floats] | None = None
    ) -> Limits:
        """Return the limits of highest rates, and of highest complements."""
        rates = {name: (1.0 - low.rate, high.rate) for name, (high, low) in ends.items()}
        if together is not None:  # one number, and no two that differ by rounding
            rates = {name: (high, high) for name, (_, high) in rates.items()}
        pairs = {name: (high, low) for name, (high, low) in ends.items()}
        return Limits(rates, {}, self.alpha, pairs, together)

    @cached_property
    def weighted(self) -> dict[str, Floats]:
        """Metric -> rates with every row in each true group by its probability."""
        cells = self.members.chances.T @ self.all.weight
        return {name: ratio.of(cells) for name, ratio in self.data.metrics.items()}

    @cached_property
    def recorded(self) -> dict[str, Floats]:
        """Nothing is recorded: NaN."""
        return {name: np.full(len(self.true), math.nan) for name in self.data.metrics}

    def vacuous(self) -> Iterator[tuple[str, str]]:
        """Yield (metric, group) of which the probabilities can say nothing."""
        for name in ("true_positive_rate", "false_positive_rate"):
            if name in self.data.metrics:
                empty = vacuous(self.data.cells, self.joint, self.data.metrics[name])
                yield from ((name, self.true[j]) for j in np.flatnonzero(empty))

    def _standard_error(self, ratio: Ratio) -> None:
        return None

    def report(self, checks: Sequence[Check] = ()) -> tuple[NoiseReport, list[ComparisonReport]]:
        """Return what is told of true groups, and what checks can look at."""
        found, comparisons = super().report(checks)
        members = self.members
        told = MembershipReport(
            columns=members.groups,
            shares=dict(zip(self.true, self.joint.sum(1).tolist(), strict=True)),
            vectors=len(members.chances),
            bins=len(self.bin_rows),
            smallest_bin=int(self.bin_rows.min()),
            searched=self.searched,
            held=self.held,
        )
        notes = [
            "the probabilities of membership are taken as known, and as right for the people in these data",
            (
                f"the worst case was looked for on {told.searched:,} rows drawn by lot (seed {self.seed}), in "
                f"{told.bins:,} bins of like probabilities ({told.vectors:,} distinct vectors), and its limits are "
                f"those of the other {told.held:,} rows: few rows make them wide, not narrow"
            ),
        ]
        if "N4" in self.stated:
            notes.append(
                "N4 is about the people behind the probabilities, and the data cannot show it: what rests on it holds "
                "if it does"
            )
        return (
            replace(found, form="membership", noisy=(), membership=told, notes=(*notes, *found.notes)),
            comparisons,
        )


def _shares(weight: Floats, into: Ints) -> Floats:
    """Return the shares of the cells in each vector's bin, shape (V, 4); zeros in a bin without rows."""
    found = np.stack([np.bincount(into, part) for part in weight.T], -1)
    total = found.sum(1, keepdims=True)
    return np.asarray(np.divide(found, total, out=np.zeros_like(found), where=total > 0)[into])


def audit_membership(
    source: Source,
    reading: Reading,
    groups: Mapping[str, str],
    settings: Settings | None = None,
    *,
    independent: bool = False,
    seed: int = 0,
    more: More | None = None,
) -> AuditReport:
    """Audit data that hold a probability of membership per true group.

    Parameters
    ----------
    source, reading, settings, more
        As in :func:`fairfix.auditing.audit.audit`; ``reading`` may name protected columns, which are audited as usual.
    groups
        True group -> its column.
    independent
        Whether N4 is stated.
    seed
        Of the resampling.

    Raises
    ------
    DataError, UsageError
        Data, probabilities and question do not fit one another.
    """
    settings = settings or Settings()
    if reading.task == "regression":
        raise UsageError(NOT_OF_VALUES)
    if ATTRIBUTE in reading.columns.protected:
        raise UsageError(
            f"--protected {ATTRIBUTE}: so the groups of --noise-membership are called in the report; rename the column"
        )
    for name in groups.values():
        if name in reading.columns.roles:
            raise UsageError(
                f"--noise-membership names the column {name!r}, which plays another part already; it can play one part"
            )
    reading.check(protected=False)
    source.require(list(groups.values()))
    found = scan(source, reading, threads=settings.threads, exact=settings.exact)
    members = read_members(source, found.reading, groups)
    alpha = 1.0 - settings.confidence
    true = MembershipGroups(members, independent=independent, alpha=alpha, seed=seed)
    told, comparisons = true.report(settings.checks)
    every = {**(more or {}), ATTRIBUTE: comparisons}
    values = {ATTRIBUTE: true.values(told.figures)}
    columns = {ATTRIBUTE: tuple(groups.values())}
    return replace(judge(found, settings, source.name, source, every, values, columns), noise=told)
