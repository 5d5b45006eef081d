r"""Groups known by chances alone: an audit with a probability of membership per row and group (BISG and the like).

Row ``i`` carries a vector ``z_i`` with ``z_ij = P(true = j | z_i)``. What is known of the population is the mass
``m_z(c)`` of each cell (TP, FN, FP, TN) among the rows of a vector, and the mass ``C_jz = z_j m_z`` of true group ``j``
there. Two things follow.

**The worst case (N1).** Nothing ties the true group to the cell inside a vector, so the mass ``q_jz(c)`` of group ``j``
in cell ``c`` is any with ``q >= 0``, ``sum_j q_jz(c) = m_z(c)`` and ``sum_c q_jz(c) = C_jz``. These are the constraints
of a noise table whose noisy groups are the distinct vectors: the closed form of
:func:`fairfix.optim.noisy_groups.soft_bounds` holds, and is sharp.

*Merging vectors only widens bounds.* Let ``q`` satisfy the constraints for the vectors of a bin ``B``. Then
``q_jB(c) = sum_{z in B} q_jz(c)`` satisfies those of the bin, with ``m_B = sum m_z`` and ``C_jB = sum C_jz``: the sums
change places. A rate only looks at ``sum_z q_jz(c) = sum_B q_jB(c)``, so every rate that was possible still is.

*Few rows per vector make bounds too narrow, not too wide.* ``min(a, C)`` is concave and ``(C - t + a)_+`` convex in the
masses, so with estimated masses highest rates come out too low and lowest too high; with one row per vector a row has
a single cell, nothing is free, and the bounds would shrink to the weighted rate, as if N4 held. So vectors are merged
until each bin has ``LEAST`` rows, and at most ``MOST`` bins are kept. Bins depend on the vectors alone, never on
outcomes. What is left of that bias is estimated by the resampling, and outer ends are moved outwards by it.

**Independence (N4).** If the true group is independent of label and decision given ``z``, then
``q_jz(c) = z_j m_z(c)``, and each row counts in group ``j`` by its probability: the weighted rate is the rate. That is
computed from the vectors as they are, not from bins. It is a statement on people that the data cannot show, and another
one than the N4 of a noise table, so it has to be made. In both cases the probabilities have to be right for the people
in the data: among rows with the same vector, a share ``z_j`` is of group ``j``.

**Sampling error.** Rows are drawn anew by bin and cell. Probabilities are taken as known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fairfix.auditor import More, judge, with_default_threshold
from fairfix.checks import Check
from fairfix.counts import Floats
from fairfix.engine import scan, stream_batches
from fairfix.errors import ColumnError, DataError, UsageError
from fairfix.findings import AuditReport, ComparisonReport, MembershipReport, NoiseReport, Settings
from fairfix.io import Source
from fairfix.noise import ROUNDED, Noise
from fairfix.optim.noisy_groups import FN, FP, TN, TP, Ratio, soft_bounds, vacuous
from fairfix.table import Encoder, Reading, Rows
from fairfix.true_groups import (
    NO_DECISIONS,
    NOT_OF_VALUES,
    REPLICATES,
    Bounds,
    Pair,
    Seen,
    TrueGroups,
    known_rates,
)

ATTRIBUTE = "membership"
"""Name of the attribute in reports and checks."""

LEAST = 100
"""Rows that a bin has at least."""

MOST = 1000
"""Bins at most."""

CHUNK = 100
"""Draws that are in memory at once as tables."""

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
    masses
        Weight of TP, FN, FP, TN, shape (V, 4), of total 1; without labels positive decisions are in FP.
    rows
        Rows of each vector, shape (V,).
    effective
        Effective number of rows in all.
    labelled
        Whether there are labels.
    """

    groups: Mapping[str, str]
    chances: Floats
    masses: Floats
    rows: Ints
    effective: float
    labelled: bool


def read_members(source: Source, reading: Reading, groups: Mapping[str, str]) -> Members:
    """Return the masses of cells by vector of probabilities.

    Raises
    ------
    DataError, UsageError
        Names column, row and remedy.
    """
    columns = list(groups.values())
    source.require(columns)
    reading = reading.in_type_of(source.schema)
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
    z, cell, weight = np.concatenate(chances), np.concatenate(cells), np.concatenate(weights)
    distinct, into = np.unique(z, axis=0, return_inverse=True)
    into = into.ravel()
    masses = np.stack([np.bincount(into, cell[:, c] * weight, len(distinct)) for c in range(4)], -1)
    total = float(weight.sum())
    effective = total * total / float((weight * weight).sum())
    labelled = reading.columns.label is not None
    rows_of = np.bincount(into, minlength=len(distinct)).astype(np.int64)
    return Members(groups, distinct, masses / total, rows_of, effective, labelled)


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


# ---------------------------------------------------------------------- audit


class MembershipGroups(TrueGroups):
    """Bounds and estimates of true groups that are known by probabilities alone.

    Parameters
    ----------
    members
        The data.
    independent
        Whether N4 is stated: given the probabilities, the true group is independent of label and decision.
    alpha, seed, replicates
        As in :class:`TrueGroups`.
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
        replicates: int = REPLICATES,
        least: int = LEAST,
        most: int = MOST,
    ) -> None:
        self.members = members
        into = merged(members.chances, members.rows, least, most)
        bins = int(into.max()) + 1
        cells = np.zeros((bins, 4))
        np.add.at(cells, into, members.masses)
        soft = np.zeros((bins, members.chances.shape[1], 4))
        np.add.at(soft, into, members.chances[:, :, None] * members.masses[:, None, :])
        self.soft = np.moveaxis(soft, 0, 1)  # true group, bin, cell: each row by its probabilities
        self.bin_rows = np.bincount(into, members.rows, bins).astype(np.int64)
        names = tuple(f"bin {k + 1}" for k in range(bins))
        self.data = Seen(ATTRIBUTE, names, cells, members.effective, known_rates(members.labelled))
        self.noise, self.table = Noise(radii={}), None  # nothing is recorded, so there is no noise of it
        self.alpha, self.seed, self.replicates = alpha, seed, replicates
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
        rows, rng = max(round(members.effective), 1), np.random.default_rng(seed)
        self.drawn = rng.multinomial(rows, cells.ravel(), replicates).reshape(replicates, bins, 4) / rows
        share = np.where(cells > 0, self.soft / np.where(cells > 0, cells, 1.0), 0.0)
        self.share = np.asarray(share)

    @cached_property
    def radii(self) -> None:
        """There are none."""
        return None

    @cached_property
    def bounds(self) -> dict[str, Bounds]:
        """Assumption -> bounds of every rate."""
        joint = self.soft.sum(-1)
        rates = {
            name: soft_bounds(self.data.cells, joint, ratio) for name, ratio in self.data.metrics.items()
        }
        draws: dict[str, Pair] = {}
        if self.replicates:
            drawn = self._over_draws(self._soft_drawn)
            draws = {name: _outwards(rates[name], pair) for name, pair in drawn.items()}
        out = {"N1": Bounds(rates, draws, self.alpha)}
        if "N4" not in self.stated:
            self.unavailable["N4"] = "not stated (--noise-independent)"
            return out
        rates = {name: (rate, rate) for name, rate in self.weighted.items()}
        draws = self._over_draws(self._weighted_drawn) if self.replicates else {}
        return {**out, "N4": Bounds(rates, draws, self.alpha)}

    def _over_draws(self, bounds: Callable[[Floats, Ratio], Pair]) -> dict[str, Pair]:
        """Return bounds in every draw, with few of their tables in memory at once."""
        chunks = [self.drawn[at : at + CHUNK] for at in range(0, self.replicates, CHUNK)]
        out = {}
        for name, ratio in self.data.metrics.items():
            found = [bounds(chunk, ratio) for chunk in chunks]
            out[name] = (np.concatenate([lo for lo, _ in found]), np.concatenate([hi for _, hi in found]))
        return out

    def _soft_drawn(self, cells: Floats, ratio: Ratio) -> Pair:
        return soft_bounds(cells, np.einsum("rkc,jkc->rjk", cells, self.share), ratio)

    def _weighted_drawn(self, cells: Floats, ratio: Ratio) -> Pair:
        rate = ratio.of(np.einsum("rkc,jkc->rjc", cells, self.share))
        return rate, rate

    @cached_property
    def weighted(self) -> dict[str, Floats]:
        """Metric -> rates with every row in each true group by its probability."""
        cells = self.soft.sum(1)
        return {name: ratio.of(cells) for name, ratio in self.data.metrics.items()}

    @cached_property
    def recorded(self) -> dict[str, Floats]:
        """Nothing is recorded: NaN."""
        return {name: np.full(len(self.true), math.nan) for name in self.data.metrics}

    def vacuous(self) -> Iterator[tuple[str, str]]:
        """Yield (metric, group) of which the probabilities can say nothing."""
        for name in ("true_positive_rate", "false_positive_rate"):
            if name in self.data.metrics:
                empty = vacuous(self.data.cells, self.soft.sum(-1), self.data.metrics[name])
                yield from ((name, self.true[j]) for j in np.flatnonzero(empty))

    def _standard_error(self, ratio: Ratio) -> None:
        return None

    def report(self, checks: Sequence[Check] = ()) -> tuple[NoiseReport, list[ComparisonReport]]:
        """Return what is told of true groups, and what checks can look at."""
        found, comparisons = super().report(checks)
        members = self.members
        told = MembershipReport(
            columns=members.groups,
            shares=dict(zip(self.true, self.soft.sum((1, 2)).tolist(), strict=True)),
            vectors=len(members.chances),
            bins=len(self.bin_rows),
            smallest_bin=int(self.bin_rows.min()),
        )
        notes = [
            "the probabilities of membership are taken as known, and as right for the people in these data"
        ]
        if told.bins < told.vectors:
            notes.append(
                f"{told.vectors:,} distinct vectors of probabilities were merged into {told.bins:,} bins, the smallest "
                f"of {told.smallest_bin:,} rows; merging can only widen the worst case"
            )
        if told.smallest_bin < LEAST:
            notes.append(
                f"there are fewer than {LEAST} rows with the same or nearly the same probabilities, so the worst case "
                "of these rows tends to be too narrow; look at it with sampling error"
            )
        if "N4" in self.stated:
            notes.append("N4 is about the people behind the probabilities, and the data cannot show it")
        return (
            replace(found, form="membership", noisy=(), membership=told, notes=(*notes, *found.notes)),
            comparisons,
        )


def _outwards(plug_in: Pair, drawn: Pair) -> Pair:
    """Return drawn bounds moved outwards by how much drawing moves them inwards on average."""
    ends = []
    for sign, point, draws in zip((1.0, -1.0), plug_in, drawn, strict=True):
        known = ~np.isnan(draws)
        mean = np.where(known, draws, 0.0).sum(0) / np.maximum(known.sum(0), 1)
        inwards = np.maximum(sign * (mean - point), 0.0)
        ends.append(np.clip(draws - sign * np.where(np.isnan(inwards), 0.0, inwards), 0.0, 1.0))
    return ends[0], ends[1]


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
        As in :func:`fairfix.auditor.audit`; ``reading`` may name protected columns, which are audited as usual.
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
    reading = with_default_threshold(reading)
    reading.check(protected=False)
    source.require(list(groups.values()))
    found = scan(source, reading, threads=settings.threads, exact=settings.exact)
    members = read_members(source, reading, groups)
    alpha = 1.0 - settings.confidence
    true = MembershipGroups(members, independent=independent, alpha=alpha, seed=seed)
    told, comparisons = true.report(settings.checks)
    every = {**(more or {}), ATTRIBUTE: comparisons}
    values = {ATTRIBUTE: true.values(told.figures)}
    columns = {ATTRIBUTE: tuple(groups.values())}
    return replace(judge(found, reading, settings, source.name, source, every, values, columns), noise=told)
