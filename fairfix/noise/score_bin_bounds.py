r"""Rates of true groups for decisions by bin of a score, under each assumption of a repair.

The data are masses ``n_k(b, y)`` by noisy group, bin of the score and label. A row of noisy group ``k`` in bin ``b`` is
accepted with probability ``F_k(b)``.

* under :class:`ClassConditional` (N4) ``M_j(b, y) = sum_k A_jk n_k(b, y)`` with ``A`` the left inverse of ``T'``, and
  ``TPR_j = sum_k T_jk sum_b F_k(b) M_j(b, 1) / P_j``, give or take z standard errors
* under :class:`KnownMembership` (N4 of probabilities of membership) each row counts in each group by its probability
* under :class:`BoundedDependence` (N3) they are programs over :mod:`fairfix.noise.uncertainty_set` with cells
  (bin, label)
* under :class:`KnownTableByLabel` (N2), :class:`KnownTable` (N1) and :class:`TotalVariation` (N0) those of
:mod:`fairfix.noise.randomized_rule_bounds`

The standard error under N4 (table taken as known) is a norm of a linear function of ``F``, with ``f_j(b) = sum_k T_jk
F_k(b)``:

.. math:: \mathrm{se}_j^2 = \frac{1}{N P_j^2} \sum_{k,b} A_{jk}^2 n_k(b, 1) \{f_j(b) - \mathrm{TPR}_j\}^2 .
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairfix.noise.bounds import Pair
from fairfix.noise.confusion_matrix_inversion import left_inverse
from fairfix.noise.label_shift import MATCH
from fairfix.noise.randomized_rule_bounds import ball_bounds, level_bounds
from fairfix.noise.rates import DEMANDS, LABELS, Floats, Parity
from fairfix.noise.uncertainty_set import (
    Range,
    Refuted,
    UncertaintySet,
    is_empty,
    joint_masses,
    ratio_ends,
    smallest_eps,
)

PRECISION = 1e-3
"""Precision of the bisection for a breakdown point."""

NO_RATE = "a true group has no rows with the labels of the rate, so it has no rate"

MISSED = 1e-6
"""Tolerance of the slack at a breakdown point, for rounding."""


@dataclass(frozen=True)
class ClassConditional:
    """Noise depends on nothing but the true group: ``z`` standard errors of margin, of ``rows`` rows."""

    z: float = 0.0
    rows: float = np.inf


@dataclass(frozen=True)
class KnownTableByLabel:
    """Any noise that fits the table by label."""


@dataclass(frozen=True)
class BoundedDependence:
    """Noise depends on bin and label by at most eps; on the bin, if the table is by label."""

    eps: float


@dataclass(frozen=True)
class KnownTable:
    """Any noise that fits the table without labels."""


@dataclass(frozen=True)
class TotalVariation:
    """True groups are within total variation of recorded ones; the radii, shape (J,), take a table's place."""

    home: tuple[int, ...] | None = None
    """Number of the recorded group that each true group is near; None: that of like number."""

    def homes(self, noisy: int) -> npt.NDArray[np.int64]:
        """Return these numbers for a number of recorded groups, shape (J,)."""
        return np.arange(noisy) if self.home is None else np.array(self.home, dtype=np.int64)


@dataclass(frozen=True)
class KnownMembership:
    """Given its probabilities of membership, a row's true group is independent of label and decision.

    ``z`` standard errors of margin. In a table's place are sums of ``w_i z_ij`` and of their squares over rows by noisy
    group, bin and label, shape (2, J, K, B, 2).
    """

    z: float = 0.0


Assumption = (
    ClassConditional | KnownTableByLabel | BoundedDependence | KnownTable | TotalVariation | KnownMembership
)


@dataclass(frozen=True)
class Breakdown:
    """Largest dependence of noise on outcomes before a limit can be broken."""

    eps: float
    """The largest at which the limits hold for certain; NaN if they do not even at the least that the data allow."""
    smallest_eps: float
    """The least that the data allow."""


def rate_bounds(n: Floats, table: Floats | Range, F: Floats, rate: str, assumption: Assumption) -> Pair:
    """Return the range of each true group's rate that the assumption allows, shape (J,) each.

    Masses ``n`` are by noisy group, bin and label, shape (K, B, 2), of total 1, and the table has their columns, shape
    (J, K) or by label (2, J, K); under :class:`ClassConditional` only ``P(noisy | true)`` is looked at, so its columns
    may have any masses, and the range is z standard errors either way. Decisions ``F``, shape (K, B), need not be
    nondecreasing.

    Raises
    ------
    Refuted
        If no noise satisfies the assumption.
    """
    require_fit(n, table, assumption)
    if isinstance(assumption, ClassConditional | KnownMembership):
        assert isinstance(table, np.ndarray)
        inverse = Inverse.of(n, table, rate, assumption)
        mean = inverse.mean(F)
        margin = assumption.z * inverse.errors(F) if assumption.z else np.zeros(mean.size)
        return mean - margin, mean + margin
    if isinstance(assumption, TotalVariation):
        assert isinstance(table, np.ndarray)
        return ball_bounds(n, table, F, rate, home=assumption.homes(len(n)))
    eps = eps_of(assumption)
    if eps >= 1 and isinstance(table, np.ndarray):
        return level_bounds(n, table, F, rate)
    ends, lost = _ratio_bounds(n, table, F, rate, eps)
    if lost.any():  # near the least eps allowed; what holds for any noise holds
        any_noise = [[0.0], [1.0]] if isinstance(table, Range) else level_bounds(n, table, F, rate)
        ends = np.where(lost, np.array(any_noise), ends)
    return ends[0], ends[1]


def _ratio_bounds(
    n: Floats, table: Floats | Range, F: Floats, rate: str, eps: float
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return both ends of each group's rate by linear programs, shape (2, J), and where the solver gave up."""
    parts = parts_of(n, table, rate, eps)
    ends = np.full((2, table.shape[-2]), np.nan)
    for j in range(table.shape[-2]):
        space, top, bottom = _fraction(parts, eps, j, F)
        ends[:, j] = ratio_ends(space, [(top, bottom, 1.0), (top, bottom, -1.0)])
        if np.isnan(ends[:, j]).any() and is_empty(space):  # no rate is not the same as no noise that fits
            raise Refuted(eps, smallest_eps([(p.mass, p.table) for p in parts]))
    return ends, np.isinf(ends)


def breakdown_of(
    n: Floats, table: Floats | Range, F: Floats, parity: Parity, slack: float, precision: float = PRECISION
) -> Breakdown:
    """Return how much noise may depend on outcomes before decisions ``F`` can break a constraint.

    A group is looked at only if some noise breaks its limit, and searched only if its limit breaks below the eps
    reached so far; arguments as in :func:`rate_bounds`.
    """
    start = smallest_eps(looked_at(n, table, parity))
    start += precision / 10 if start > 0 else 0.0  # some room for the solver
    suspects = []
    for rate, sign in DEMANDS[parity]:
        own = n[:, :, list(LABELS[rate])].sum(2)
        limit = float((own * F).sum() / own.sum()) - sign * slack
        worst = rate_bounds(n, table, F, rate, BoundedDependence(1.0))[0 if sign > 0 else 1]
        over = np.nan_to_num(sign * (limit - worst), nan=-np.inf)
        suspects += [(float(over[j]), rate, sign, limit, int(j)) for j in np.flatnonzero(over > MISSED)]

    def holds(eps: float, rate: str, sign: float, limit: float, group: int) -> bool:
        eps = min(eps, 1.0 - MISSED)
        space, top, bottom = _fraction(parts_of(n, table, rate, eps), eps, group, F)
        (end,) = ratio_ends(space, [(top, bottom, sign)])
        if np.isnan(end):  # no rate, or by rounding nothing at all
            return not is_empty(space)
        return bool(np.isfinite(end) and sign * (limit - end) <= MISSED)

    best = 1.0
    for _, rate, sign, limit, group in sorted(suspects, reverse=True):
        if best < 1 and holds(best, rate, sign, limit, group):
            continue
        if not holds(start, rate, sign, limit, group):
            return Breakdown(np.nan, start)
        low, high = start, best
        while high - low > precision:
            middle = (low + high) / 2
            low, high = (middle, high) if holds(middle, rate, sign, limit, group) else (low, middle)
        best = low
    return Breakdown(best, start)


def require_fit(n: Floats, table: Floats | Range, assumption: Assumption) -> None:
    """Refuse tables that do not go with masses or assumption (ValueError)."""
    if isinstance(assumption, TotalVariation):
        assert isinstance(table, np.ndarray)
        if table.shape != assumption.homes(len(n)).shape or not ((table >= 0) & (table <= 1)).all():
            raise ValueError(f"there must be a radius in [0, 1] for each true group, got {table}")
        return
    if isinstance(assumption, KnownMembership):
        if table.ndim != 5 or table.shape[0] != 2 or table.shape[2:] != n.shape:
            raise ValueError(f"sums by membership must have shape (2, J, *{n.shape}), got {table.shape}")
        return
    labelled = table.ndim == 3
    if isinstance(assumption, ClassConditional) and not isinstance(table, np.ndarray):
        raise ValueError("true groups are not identified by a range of tables")  # noqa: TRY004  the pair is wrong, not a type
    if table.ndim not in (2, 3) or table.shape[-1] != len(n) or (labelled and table.shape[0] != 2):
        raise ValueError(f"the table must have shape (J, K) or (2, J, K), got {table.shape} for K = {len(n)}")
    if isinstance(assumption, KnownTableByLabel) and not labelled:
        raise ValueError("assumption certified needs the table by label")
    if isinstance(assumption, KnownTable) and labelled:
        raise ValueError("there is a table by label: use assumption certified")
    if isinstance(table, Range):
        return
    own = n.sum(1).T if labelled else n.sum((1, 2))
    if not isinstance(assumption, ClassConditional) and np.abs(table.sum(-2) - own).max() > MATCH:
        raise ValueError("columns of the table must have the masses of the noisy groups: transport it first")


def eps_of(assumption: Assumption) -> float:
    """Return how much noise may depend on outcomes; 1 says nothing."""
    return assumption.eps if isinstance(assumption, BoundedDependence) else 1.0


# ---------------------------------------------------------------------- worst cases


@dataclass(frozen=True, eq=False)
class CellBlock:
    """Cells with a table of their own: masses (K, c), table (J, K), bins (c,), whether they count (c,)."""

    mass: Floats
    table: Floats | Range
    bins: npt.NDArray[np.int64]
    relevant: npt.NDArray[np.bool_]
    refused: npt.NDArray[np.bool_]
    """Whether a row is in the numerator by being refused, (c,): label 0 where the rate is the accuracy."""

    def worth(self, accept: Floats) -> Floats:
        """Return the probability of each cell's rows to be in the numerator, (K, c), for decisions (K, B)."""
        own = accept[:, self.bins]
        return np.asarray(np.where(self.refused, 1.0 - own, own) * self.relevant)


def parts_of(n: Floats, table: Floats | Range, rate: str, eps: float) -> list[CellBlock]:
    """Return the cells that matter for a rate."""
    labels, bins = LABELS[rate], np.arange(n.shape[1])
    every, none = np.ones(bins.size, dtype=bool), np.zeros(bins.size, dtype=bool)
    accuracy = rate == "accuracy"
    if table.ndim == 3:
        return [
            CellBlock(n[:, :, y], table[y], bins, every, every if accuracy and not y else none)
            for y in labels
        ]
    if len(labels) == 2 and eps >= 1 and not accuracy:
        return [CellBlock(n.sum(2), table, bins, every, none)]
    asked, other = n[:, :, labels[0]], n[:, :, 1 - labels[0]]
    if accuracy:
        of_both = np.concatenate([asked, other], axis=1)  # label 0 first
        return [
            CellBlock(
                of_both, table, np.tile(bins, 2), np.tile(every, 2), np.repeat([True, False], bins.size)
            )
        ]
    if eps >= 1:  # cells that do not count are alike
        mass = np.concatenate([asked, other.sum(1, keepdims=True)], axis=1)
        return [CellBlock(mass, table, np.append(bins, 0), np.append(every, False), np.append(none, False))]
    counts = np.repeat([True, len(labels) == 2], bins.size)
    return [
        CellBlock(np.concatenate([asked, other], axis=1), table, np.tile(bins, 2), counts, np.tile(none, 2))
    ]


def looked_at(n: Floats, table: Floats | Range, parity: Parity) -> list[tuple[Floats, Floats | Range]]:
    """Return masses and tables of the labels that a constraint looks at: by label they are problems of their own."""
    labels = sorted({label for rate, _ in DEMANDS[parity] for label in LABELS[rate]})
    rate = "selection_rate" if len(labels) == 2 else ("false_positive_rate", "true_positive_rate")[labels[0]]
    return [(p.mass, p.table) for p in parts_of(n, table, rate, 0.0)]


def space_of(parts: Sequence[CellBlock], eps: float, group: int) -> tuple[UncertaintySet, int]:
    """Return the uncertainty set of a group's worst case and the group's number in it.

    Where eps says nothing, what a group leaves can be shared among the others: they are one.
    """
    every = [(p.mass, p.table) for p in parts]
    return (joint_masses(every, eps), group) if eps < 1 else (joint_masses(every, eps, group), 0)


def _fraction(
    parts: Sequence[CellBlock], eps: float, group: int, accept: Floats
) -> tuple[UncertaintySet, Floats, Floats]:
    """Return the uncertainty set of a group's rate, its numerator and its denominator."""
    space, own = space_of(parts, eps, group)
    top = space.placed(own, [p.worth(accept) for p in parts])
    return space, top, space.placed(own, [p.relevant for p in parts])


# ---------------------------------------------------------------------- inverted noise


@dataclass(frozen=True, eq=False)
class Inverse:
    """Rates of true groups, linear in F but for a constant, and their standard errors."""

    coefficients: Floats
    """Shape (J, K, B)."""
    constant: Floats
    """Shape (J,); not 0 where refused rows count."""
    noise: Floats
    """``T`` of each label, or of each noisy group 1 for itself, shape (parts, J, K)."""
    variance: Floats
    """Weight of the square of ``f_j(b) - rate_j``, shape (parts, J, B)."""
    refused: npt.NDArray[np.bool_]
    """Whether rows of a part count by being refused, so that ``1 - f_j(b)`` takes the place of ``f_j(b)``, (parts,)."""

    @classmethod
    def of(
        cls, n: Floats, table: Floats, rate: str, assumption: ClassConditional | KnownMembership
    ) -> Inverse:
        """Invert the noise of each label, or take the means by probabilities of membership as they are."""
        labels = LABELS[rate]
        counts_refused = np.array([rate == "accuracy" and not y for y in labels])
        sign = np.where(counts_refused, -1.0, 1.0)
        if isinstance(assumption, KnownMembership):
            masses, squares = (np.moveaxis(part[..., list(labels)], -1, 0) for part in table)  # y, J, K, B
            if not counts_refused.any():
                masses, squares, sign = masses.sum(0)[None], squares.sum(0)[None], sign[:1]
                counts_refused = counts_refused[:1]
            total = masses.sum((0, 2, 3))
            if not total.min() > 0:
                raise ValueError(NO_RATE)
            noisy, parts = masses.shape[2], len(masses)
            own = np.broadcast_to(np.eye(noisy)[:, None], (noisy, len(total), noisy))
            return cls(
                np.einsum("y,yjkb->jkb", sign, masses) / total[:, None, None],
                masses[counts_refused].sum((0, 2, 3)) / total,
                np.tile(own, (parts, 1, 1)),  # each noisy group is a term of its own, with its own decisions
                np.concatenate(np.swapaxes(squares, 1, 2)) / (total**2)[:, None],
                np.repeat(counts_refused, noisy),
            )
        pairs = [left_inverse(table[y] if table.ndim == 3 else table) for y in labels]
        noise, weights = np.stack([p[0] for p in pairs]), np.stack([p[1] for p in pairs])
        own = np.moveaxis(n[:, :, list(labels)], 2, 0)  # label, k, b
        masses = weights @ own
        total = masses.sum((0, 2))
        if not total.min() > 0:
            raise ValueError(NO_RATE)
        rates = np.einsum("y,yjk,yjb->jkb", sign, noise, masses) / total[:, None, None]
        variance = (weights**2 @ own) / (total**2)[:, None] / assumption.rows
        return cls(rates, masses[counts_refused].sum((0, 2)) / total, noise, variance, counts_refused)

    def mean(self, accept: Floats) -> Floats:
        """Return the rates, shape (J,)."""
        return np.asarray(self.constant + np.einsum("jkb,kb->j", self.coefficients, accept))

    def terms(self, accept: Floats) -> Floats:
        """Return the terms whose squares sum to those of the standard errors, shape (parts, J, B)."""
        own = self.noise @ accept
        own = np.where(self.refused[:, None, None], 1.0 - own, own)
        return np.asarray(np.sqrt(self.variance) * (own - self.mean(accept)[:, None]))

    def errors(self, accept: Floats) -> Floats:
        """Return standard errors, shape (J,)."""
        return np.asarray(np.sqrt((self.terms(accept) ** 2).sum((0, 2))))
