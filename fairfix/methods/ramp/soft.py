r"""Ramps for soft groups: no group is recorded, and each row has probabilities of membership.

With ``z_k`` the probability of a row to be of group ``k`` (of sum 1 over the groups) the rates that are made alike are
weighted by it,

.. math:: m_k(q) = \frac{\sum_i w_i z_{ik} e_i q_i}{\sum_i w_i z_{ik} e_i}, \qquad |m_k(q) - \rho| \le \epsilon / 2 ,

which is linear in ``q``, so that the optimum is ``clip((f - e sum_k u_k z_k)/gamma, 0, 1)``: a row pays the mean of its
groups' multipliers (:mod:`fairfix.solvers.bands`). Selection rates have ``e = 1``, true positive rates ``e =
eta``, the probability of label 1, and false positive rates ``1 - eta``; equalized odds have both of the last.

Weighted rates are those of the true groups where the probabilities are right and, among rows of equal probabilities,
label and decision are independent of the true group; decisions are a function of score, probabilities and chance, so
they do that the score does not.

**Rates by label.** The scores are recalibrated as for recorded groups, softly: that of group ``k`` is the isotonic
regression of the labels of all rows, weighted by ``w z_k``, and ``eta = sum_k z_k eta_k(f)``. Where memberships are 0
or 1 that is the regression in each group, and rates counted with ``eta`` are those counted with the labels. In between
rules are not constant on blocks, and the two differ. One rate is counted with the labels: the rows of that label, each
with the weight ``w / e``, stand for all rows, since given score and memberships the mean of 1[label] / e is 1; then
``sum_i (w_i / e_i) z_ik e_i q_i`` is the sum over the rows of the label, and the slack holds for these exactly. For
both rates of equalized odds no weights do that, and they are counted with ``eta``.

References
----------
Theorem 3 of the paper for constraints that are linear in ``q``; J. Chen, N. Kallus, X. Mao, G. Svacha and M. Udell,
*Fairness under unawareness: assessing disparity when protected class is unobserved* (2019), for weighted rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairfix.auditing.criteria import rates_of
from fairfix.data.counts import Bools, Floats
from fairfix.data.memberships import memberships
from fairfix.errors import DataError
from fairfix.methods.cells import cells_of
from fairfix.methods.problem import RepairProblem
from fairfix.methods.ramp.trace import NOT_OF_LABELS, alike_for_all, proven_trace, uncalibrated
from fairfix.models.numeric_rules import SoftRamp, SoftRates
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import FitTrace, Note, Quantity
from fairfix.solvers.band_ramps import Ramps, solve_ramps
from fairfix.solvers.bands import Bands
from fairfix.solvers.monotone import isotonic
from fairfix.solvers.piecewise import Piecewise

if TYPE_CHECKING:
    from fairfix.methods.ramp import Ramp

NEEDED = 1e-6
"""Part of the rows' weight that a group has at least: less is not told from the rounding of probabilities."""


def fit_soft(method: Ramp, problem: RepairProblem) -> RepairedPredictor:
    """Return the ramp of soft groups with its trace; a DataError where a group has next to no probability."""
    groups, table = method.membership, problem.table
    z, weight = memberships(table, tuple(groups.values())), table.weight
    kept = weight > 0  # a row without weight has no part in anything
    z, weight, score = z[kept], weight[kept], table.ranking[kept]
    _require_share(groups, weight @ z / weight.sum(), "")
    if method.about_labels:
        return _fit_rates(method, problem, z)
    lift = method.lift(table.data_spec)
    best = solve_ramps(score + lift, Bands.of_parts(z, method.slack, weight), method.gamma)
    # every row has groups of sum 1, so what is taken from all multipliers lowers the score of every row
    offsets = best.multipliers - lift
    made = SoftRamp(tuple(groups), tuple(groups.values()), offsets, method.gamma)
    chance = made.predict(table)[kept]
    notes = (*alike_for_all(chance), ASSUMED)
    return replace(made, trace=_trace(method, best, notes, dict(zip(groups, offsets.tolist(), strict=True))))


def _require_share(groups: Mapping[str, str], share: Floats, of: str) -> None:
    """Raise a DataError where a group has next to no part of the rows, or of those ``of`` a label."""
    for (group, column), part in zip(groups.items(), share.tolist(), strict=True):
        if part < NEEDED:
            raise DataError(
                f"group {group!r} has only {part:.2g} of the rows{of} to fit on, by the probabilities in "
                f"{column!r}; leave "
                "it out and add its probability to another group's"
            )


def _mean_curve(curves: Sequence[Piecewise], z: Floats, score: Floats) -> Floats:
    """Return the mean of curves at scores, (n,), weighted by probabilities of sum 1, (n, K), within [0, 1]."""
    mean: Floats = np.zeros(score.size)
    for curve, part in zip(curves, z.T, strict=True):  # in this order, as exports add up
        mean += part * curve(score)
    return np.clip(mean, 0.0, 1.0)  # shares that sum to 1 may do so but for rounding


def _fit_rates(method: Ramp, problem: RepairProblem, z: Floats) -> RepairedPredictor:
    """Return the ramp of rates among the rows of a label, or of both; ``z``: of the rows with a weight."""
    table, groups = problem.table, method.membership
    kept = table.weight > 0
    score, weight = table.ranking[kept], table.weight[kept]
    curves = tuple(Piecewise.line(0.5, 0.5) for _ in groups)
    if by_labels := method.calibration == "isotonic":
        label = table.labels[kept] == 1
        curves = tuple(_recalibrated(score, label, weight * part) for part in z.T)
    eta = _mean_curve(curves, z, score)
    lift = method.lift(table.data_spec)
    counted = np.stack([eta if event else 1.0 - eta for event in method.events], -1)
    base = weight @ counted / weight.sum()
    for event, mass in zip(method.events, counted.T, strict=True):
        seen = weight * (mass if not by_labels else label == event)
        _require_share(groups, seen @ z / weight.sum(), f" of label {event}")
    parts, own = z[:, :, None] * (counted / base)[:, None], np.ones(score.size, dtype=bool)
    if by_labels and len(method.events) == 1:
        own = label == method.events[0]
        weight = weight[own] / counted[own, 0]
    bands = Bands.of_parts(parts[own], method.slack, weight)
    best = solve_ramps((2.0 * eta - 1.0 + lift)[own], bands, method.gamma)
    multipliers = best.multipliers.reshape(len(method.events), len(groups)).T
    # a multiplier times eta, or 1 - eta, is a line in 2 eta - 1
    halves = multipliers / (2.0 * base)
    signs = np.array([1.0 if event else -1.0 for event in method.events])
    lines = halves.sum(axis=1) - lift, halves @ signs
    made = SoftRates(tuple(groups), tuple(groups.values()), curves, *lines, method.gamma)
    notes = (*alike_for_all(made.predict(table)[kept]), ASSUMED, *_warnings(method, problem))
    numbers = {
        f"{group}, label {event}": u
        for event, prices in zip(method.events, multipliers.T.tolist(), strict=True)
        for group, u in zip(groups, prices, strict=True)
    }
    return replace(made, trace=_trace(method, best, notes, numbers))


def _recalibrated(score: Floats, label: Bools, weight: Floats) -> Piecewise:
    """Return the isotonic regression of labels on scores, as far as rows have a weight."""
    there = weight > 0
    blocks = isotonic(score[there], label[there], weight[there])
    return Piecewise.steps(blocks.edges, blocks.shares)


def _warnings(method: Ramp, problem: RepairProblem) -> Iterator[Note]:
    """Yield a caution where rates are counted with scores that labels show to be off."""
    if method.calibration != "none":
        return
    yield from uncalibrated(cells_of(problem), NOT_OF_LABELS, "", "`calibrate=isotonic`")


ASSUMED = Note(
    "rates of groups are weighted by the membership probabilities. They equal those of the true groups under two "
    "assumptions, which the data cannot show: the probabilities are right for the people in these data; and among "
    "people of equal probabilities, the score (for rates by label, the label too) is independent of the true group",
    "assumption",
)
"""Assumptions of weighted rates."""


def _trace(method: Ramp, best: Ramps, notes: tuple[Note, ...], numbers: Mapping[str, float]) -> FitTrace:
    """Return how the fit went, and what it proves; ``numbers`` are what groups add to a row's threshold."""
    rates = " and ".join(f"{name.replace('_', ' ')}s" for name in rates_of(method.goal))
    over, counted = "", ""
    if method.about_labels and method.calibration == "isotonic" and len(method.events) == 1:
        over = f", over the rows with label {method.events[0]}, weighted by the inverse of its probability"
    elif method.about_labels:
        counted = ", with labels counted by their probabilities"
    times = ", and the probability of the label divided by its rate" if method.about_labels else ""
    meaning = (
        f"amount that the group adds to a row's threshold, times the row's probability to be in it{times}, "
    )
    meaning += "on the scale 2 p - 1"
    centres = zip(rates_of(method.goal), best.centres.tolist(), strict=True)
    held = (
        f"meet the slack in the difference of the {rates} weighted by the membership probabilities{counted}"
    )
    return proven_trace(
        method.gamma,
        best,
        held,
        notes,
        (
            *(Quantity("rho", centre, f"target {name.replace('_', ' ')}") for name, centre in centres),
            *(Quantity("offset", t, meaning, k) for k, t in numbers.items()),
        ),
        over=over,
    )
