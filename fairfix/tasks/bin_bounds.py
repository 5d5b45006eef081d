"""Certain bounds of a repair from counts: rates, distances and losses wherever in their bins the scores lie."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from fairfix.auditing.row_differences import loss_of_rows
from fairfix.data.counts import Counts, Floats, groups_of_cells
from fairfix.data.data_spec import DataSpec
from fairfix.data.names import attribute_name, each_and_crossed, group_name
from fairfix.data.table import Table
from fairfix.models.predictors import BinnedRule
from fairfix.models.score_models import BinnedTube
from fairfix.schema.repair import Ends, GroupEnds, RateEnds
from fairfix.solvers.parity import ks_to_overall
from fairfix.tasks.repaired_rows import RepairedRows

ROUNDING = 1e-9
"""By how much a certified rate is wider than the sums that it is made of: they are added in another order."""

RATES: Mapping[str, int | None] = {"selection_rate": None, "true_positive_rate": 1, "false_positive_rate": 0}
"""Rates that are certified, with the label of the rows over which each is a mean."""

UNKNOWN_WEIGHTS = "the weights of the rows that are left out are unknown"


def certified(
    counts: Counts, rule: BinnedRule | BinnedTube, data_spec: DataSpec, left_out: int
) -> Iterator[GroupEnds]:
    """Yield the least and the largest rates of every group that scores anywhere in their bins can have.

    ``left_out`` rows may be of any group and decided in any way; where rows have weights nobody knows theirs, and
    there is a reason instead.
    """
    decides = isinstance(rule, BinnedRule) or bool(data_spec.thresholds)
    ends_of_cells = _ends(counts, rule, data_spec) if decides else ()
    weights = counts.weights
    for columns in each_and_crossed(data_spec.columns.protected):
        levels, group = groups_of_cells(counts.keys, counts.cells, columns)
        for k, level in enumerate(levels):
            mass = weights[group == k]
            rates: dict[str, RateEnds] = {}
            for name, label in RATES.items() if decides else ():
                if label is not None and not counts.has_labels:
                    continue
                own = mass.sum(axis=1) if label is None else mass[:, label]
                total = float(own.sum())
                if not total > 0:
                    lacks = (
                        "its rows have no weight" if label is None else f"it has no rows with label {label}"
                    )
                    rates[name] = RateEnds(reason=lacks)
                elif left_out and counts.weighted:
                    rates[name] = RateEnds(reason=UNKNOWN_WEIGHTS)
                else:
                    ends = [float((own * one[group == k]).sum()) for one in ends_of_cells]
                    least, most = ends[0] / (total + left_out), (ends[1] + left_out) / (total + left_out)
                    rates[name] = RateEnds(low=max(least - ROUNDING, 0.0), high=min(most + ROUNDING, 1.0))
            rows = int(counts.rows[group == k].sum())
            yield GroupEnds(
                attribute=attribute_name(columns), group=group_name(level), rows=rows, rates=rates
            )


def _ends(counts: Counts, rule: BinnedRule | BinnedTube, data_spec: DataSpec) -> tuple[Floats, Floats]:
    """Return the least and the largest chance that a score of each bin has in each cell, shape (C, B) each."""
    edges = counts.bins.edges
    first = rule.bins(edges[:-1])
    last = np.maximum(rule.bins(np.nextafter(edges[1:], -np.inf)), first)  # a bin may be empty
    own = groups_of_cells(counts.keys, counts.cells, rule.columns, rule.levels)[1]
    chance = rule.probabilities if isinstance(rule, BinnedRule) else rule.share_from(data_spec.cut)
    each = [chance[:, i : j + 1] for i, j in zip(first, last, strict=True)]
    low = np.stack([one.min(axis=1) for one in each], axis=1)
    high = np.stack([one.max(axis=1) for one in each], axis=1)
    return low[own], high[own]


def certified_values(
    table: Table, counts: Counts, rule: BinnedTube, left_out: int
) -> tuple[dict[tuple[str, str], RateEnds], dict[str, Ends]]:
    """Return the distance of each group's values to those of all rows, by attribute and group, and the overall losses.

    Each is its least and its largest value wherever scores lie in their bins, expected over the draws, or a reason.
    ``left_out`` rows may be of any group and have any value.
    """
    valued = RepairedRows(table, rule).shipped.repaired
    value, weight = valued.scores, valued.weight
    total = float(weight.sum())
    distances: dict[tuple[str, str], RateEnds] = {}
    for columns in each_and_crossed(table.data_spec.columns.protected):
        groups = valued.groups(columns)
        far = ks_to_overall(value, groups.codes, weight, len(groups.levels))
        mass = np.bincount(groups.codes, weight, len(groups.levels))
        for name, distance, own in zip(groups.names, far.tolist(), mass.tolist(), strict=True):
            if left_out and counts.weighted:
                ends = RateEnds(reason=UNKNOWN_WEIGHTS)
            else:  # a share of the rows moves a distribution function by no more than itself
                reach = left_out / (own + left_out) + left_out / (total + left_out) + ROUNDING
                ends = RateEnds(low=max(distance - reach, 0.0), high=min(distance + reach, 1.0))
            distances[attribute_name(columns), name] = ends
    names = [name for name in ("log_loss", "square_loss") if name in counts.sums]
    losses: dict[str, Ends] = {}
    for name in names:
        if left_out:
            losses[name] = Ends(reason="the rows that are left out can have any loss")
        elif valued.rows.label is None:
            losses[name] = _around(*_loss_of_real_labels(valued, counts))
        else:
            loss = float(weight @ loss_of_rows(name, valued)) / total
            infinite = Ends(reason="infinite: some rows have a label whose probability is 0")
            losses[name] = _around(loss, loss) if math.isfinite(loss) else infinite
    return distances, losses


def _around(low: float, high: float) -> Ends:
    """Return the ends of a loss, with room for rounding."""
    return Ends(low=max(low - ROUNDING * abs(high), 0.0), high=high + ROUNDING * abs(high))


def _loss_of_real_labels(valued: Table, counts: Counts) -> tuple[float, float]:
    """Return the ends of the square loss of entries with values on real labels, whose sums by cell counts have.

    With the error ``r`` of the score and the move ``d`` from score to value the loss is ``E (r + d)^2``. By cell the
    means of both are known, so is ``E r^2``, and ``E d^2`` up to the bins; of their covariance there is the inequality
    of Cauchy and Schwarz.
    """
    own, value, weight = valued.entries, valued.scores, valued.weight

    def by_cell(each: Floats) -> Floats:
        return np.asarray(np.bincount(valued.rows.cell, each, len(valued.rows.cells)), dtype=np.float64)

    mass = by_cell(weight)
    score, label, square = (counts.sums[name][:, 0, 0] for name in ("score", "label", "square_loss"))
    first, last = own.grid.edges[own.place], own.grid.edges[own.place + 1]
    near = (value - np.clip(value, first, last)) ** 2
    far = np.maximum((value - first) ** 2, (value - last) ** 2)
    error, move = (label - score) / mass, (score - by_cell(weight * value)) / mass
    spread = np.maximum(square / mass - error**2, 0.0)
    least, most = (np.maximum(by_cell(weight * one) / mass - move**2, 0.0) for one in (near, far))
    fixed = spread + (error + move) ** 2
    best = np.clip(spread, least, most)
    low, high = (
        float(mass @ (fixed + one + side * 2 * np.sqrt(spread * one))) / float(mass.sum())
        for one, side in ((best, -1.0), (most, 1.0))
    )
    return low, high
