r"""Ramps for protected numbers, such as age: decisions go with each by no more than the slack.

With ``x_j`` a column in standard deviations from its mean (:mod:`fairfix.data.scales`), the covariance of decision and
column per standard deviation is bounded,

.. math:: \left|\frac{\sum_i w_i x_{ij} q_i}{\sum_i w_i}\right| \le \epsilon ,

which is linear in ``q``, so that the optimum is ``clip((f - sum_j lambda_j x_j)/gamma, 0, 1)``: the threshold of a row
moves in proportion to its numbers (:mod:`fairfix.solvers.bands`). Neither the units of a column nor
its zero matter. Numbers beyond the ends of their scale count as the ends, in the fit and ever after, so that a few of
them neither make most of a standard deviation nor get thresholds that nobody was fitted to.

References
----------
Theorem 3 of the paper, for constraints with slopes of any sign, and its appendix E.1 for covariances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairfix.data.memberships import numbers_of
from fairfix.data.scales import Scale, scale_of, scaled
from fairfix.methods.problem import RepairProblem
from fairfix.methods.ramp.trace import alike_for_all, proven_trace
from fairfix.models.numeric_rules import NumberRamp
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import Note, Quantity
from fairfix.solvers.band_ramps import solve_ramps
from fairfix.solvers.bands import Bands

if TYPE_CHECKING:
    from fairfix.data.table import Table
    from fairfix.methods.ramp import Ramp

PRICE = "amount that one standard deviation of the column adds to a row's threshold, on the scale 2 p - 1"


def fit_numbers(method: Ramp, problem: RepairProblem) -> RepairedPredictor:
    """Return the ramp of protected numbers with its trace; a DataError where a column is missing or the same."""
    table = problem.table
    scales = tuple(scale_of(table, name) for name in method.parsed_constraint.numbers)
    kept = table.weight > 0  # a row without weight has no part in anything
    lift = method.lift(table.data_spec)
    bands = Bands.of_parts(scaled(table, scales)[kept], method.slack, table.weight[kept], centre=0.0)
    best = solve_ramps(table.ranking[kept] + lift, bands, method.gamma)
    low, high, mean, deviation = np.array(
        [(one.low, one.high, one.mean, one.deviation) for one in scales]
    ).T.copy()
    made = NumberRamp(
        method.parsed_constraint.numbers, low, high, mean, deviation, best.multipliers, -lift, method.gamma
    )
    notes = (*alike_for_all(made.predict(table)[kept]), *_notes(scales, table))
    held = "meet the slack in the covariance with " + " and with ".join(method.parsed_constraint.numbers)
    trace = proven_trace(
        method.gamma,
        best,
        f"{held}, per standard deviation",
        notes,
        (
            quantity
            for one, price in zip(scales, made.prices.tolist(), strict=True)
            for quantity in (
                Quantity("price", price, PRICE, one.column),
                Quantity("mean", one.mean, "mean of the column, clipped to its ends", one.column),
            )
        ),
    )
    return replace(made, trace=trace)


def _notes(scales: Sequence[Scale], table: Table) -> Iterator[Note]:
    """Yield how each column is counted."""
    of = "the weight of the rows" if table.weighted else "the rows"
    for one in scales:
        x = numbers_of(table, one.column)
        many = int(((x < one.low) | (x > one.high)).sum())
        yield Note(
            f"{one.column} is measured in standard deviations of {one.deviation:g}, from {one.low:g} to {one.high:g}; "
            f"numbers beyond these ends, less than one in a hundred of {of} used to fit at either end, count as "
            "the ends "
            f"({many:,} of {len(x):,} rows)",
            "numbers",
        )
