"""Sums of rates and means: from counts, or rows, to the sums that a metric of the catalogue is made of."""

from __future__ import annotations

import numpy as np

from fairfix.auditing.metrics import ENTRIES, EntryMean, Mean
from fairfix.data.counts import Counts, Floats
from fairfix.data.data_spec import DataSpec
from fairfix.data.quantities import quantities
from fairfix.data.table import Table
from fairfix.errors import DataError
from fairfix.stats.estimates import Estimates, Means, Proportions, Scaled
from fairfix.stats.geometric_noise import NoisyProportions


def mean_sums(mean: Mean, counts: Counts) -> Floats:
    """Return per group the sums of a mean's quantity ``v`` that :meth:`Means.from_sums` wants.

    They are of ``w, w v, w v^2``, and with weights of ``w^2, w^2 v, w^2 v^2`` too: shape (3, G) or (6, G).
    """
    powers = [counts.weights, counts.square_weights] if counts.weighted else [counts.weights]
    sums, labels = counts.sums[mean.quantity].sum(axis=1), counts.sums.get("label")
    out = []
    for p, weights in enumerate(powers):
        total, squares = sums[:, 2 * p : 2 * p + 2].T
        if mean.error:
            total = total - (
                weights[:, 1].sum(axis=-1) if labels is None else labels[:, :, 2 * p].sum(axis=1)
            )
            squares = counts.sums["square_loss"][:, :, 2 * p].sum(axis=1)
        out += [weights.sum(axis=(1, 2)), total, squares]
    return np.stack(out)


def means(mean: Mean, data_spec: DataSpec, sums: Floats) -> Means:
    """Return means from the sums of :func:`mean_sums`; undefined where one is too large for a float."""
    finite = np.isfinite(sums).all(axis=0)
    return Means.from_sums(np.where(finite, sums, np.nan), bounds_of(mean, data_spec))


def bounds_of(mean: Mean, data_spec: DataSpec) -> tuple[float, float]:
    """Return the smallest and largest possible value of a row."""
    probable = data_spec.task != "regression" and data_spec.score_scale != "raw"
    return (0.0, 1.0) if mean.name == "mean_score" and probable else mean.bounds


def confusion(counts: Counts, threshold: float | None) -> Floats | None:
    """Return the confusion table, shape (G, L, 2, 2): label, decision, (sum of w, sum of w^2).

    ``threshold`` is a score of the counts' grid at and above which the decision is positive; None takes
    the decisions that were counted. Without either there is no decision: None.
    """
    if counts.decisions is not None:
        yes, no, yes2, no2 = np.moveaxis(counts.decisions, -1, 0)
        return np.stack([np.stack([no, no2], -1), np.stack([yes, yes2], -1)], axis=2)
    if threshold is None or counts.grid is None:
        return None
    cut = counts.grid.start(threshold)
    tables = counts.weights, counts.square_weights
    sides = [[table[:, :, side].sum(axis=2) for table in tables] for side in (slice(cut), slice(cut, None))]
    return np.stack([np.stack(side, axis=-1) for side in sides], axis=2)


def table_of(counts: Counts, threshold: float | None) -> Floats:
    """Return the confusion table, with every decision negative where there is none."""
    table = confusion(counts, threshold)
    if table is not None:
        return table
    both = np.stack([counts.weights.sum(axis=-1), counts.square_weights.sum(axis=-1)], axis=-1)
    return np.stack([both, np.zeros_like(both)], axis=2)


def proportions(sums: Floats, weighted: bool, private: float | None = None) -> Proportions:
    """Return proportions from sums of w and w^2 of successes, then of failures, shape (k, 4).

    ``private``: the budget of the noise in the sums, which then have numbers of noisy counts in place of squares.
    """
    yes, yes2, no, no2 = sums.T
    if private is not None:
        return NoisyProportions.of(sums[:, :2], sums[:, 2:], private)
    return Proportions.weighted(yes, no, yes2, no2) if weighted else Proportions(yes, yes + no)


def entry_sums(metric: EntryMean, table: Floats) -> Floats:
    r"""Return per group additive sums of a metric, from the confusion table (G, L, 2, 2).

    Of a metric with two values, shape (G, 4): :math:`\sum wb` and :math:`\sum w^2b^2` of the rows with the larger one,
    then of those with the smaller. Of any other with values :math:`v`, shape (G, 6): :math:`\sum wb, \sum wbv, \sum
    wbv^2` and :math:`\sum w^2b^2, \sum w^2b^2v, \sum w^2b^2v^2`.
    """
    out = np.zeros((len(table), 4 if metric.has_two_values else 6))
    for (label, decision), below, level in zip(ENTRIES, metric.below, metric.levels, strict=True):
        if "label" in metric.needs:
            mass = table[:, label, decision]
        elif label == 0:  # rows of both labels count alike, and there may be one label only
            mass = table[:, :, decision].sum(axis=1)
        else:
            continue
        times = below / max(metric.below)
        for power in (1, 2) if times else ():
            part = mass[:, power - 1] * times**power
            if metric.has_two_values:
                out[:, power - 1 if level == metric.bounds[1] else power + 1] += part
            else:
                out[:, 3 * power - 3 : 3 * power] += part[:, None] * level ** np.arange(3)
    return out


def entry_estimates(
    metric: EntryMean, sums: Floats, weighted: bool, private: float | None = None
) -> Estimates:
    """Return the estimates of the sums of :func:`entry_sums`: Clopper-Pearson for two values, Student t for more.

    Where each value belongs to rows that count equally often, its rate is taken over these rows once each.
    """
    if not metric.has_two_values:
        return Means.from_sums(sums.T, metric.bounds)
    odds = 1.0
    entries = list(zip(metric.levels, metric.below, strict=True))
    often = [{below / max(metric.below) for level, below in entries if level == end} for end in metric.bounds]
    if all(len(times) == 1 for times in often):
        b, a = (times.pop() for times in often)
        sums, odds = sums / [a, a**2, b, b**2], a / b
    else:
        weighted = True
    rates = proportions(sums, weighted, private)
    return rates if (metric.bounds, odds) == ((0.0, 1.0), 1.0) else Scaled(rates, *metric.bounds, odds)


def entry_size(metric: EntryMean, sums: Floats) -> Floats:
    """Return the denominators of the sums of :func:`entry_sums`, shape (G,)."""
    return np.asarray(sums[:, 0] + sums[:, 2] if metric.has_two_values else sums[:, 0])


def entries_of_rows(metric: EntryMean, table: Table, weight: Floats, square: Floats) -> Floats:
    """Return a confusion table per row, shape (n, L, 2, 2), as of groups; a DataError where something is missing."""
    label = table.rows.label if table.data_spec.binary else None
    chance = table.decisions if "decision" in metric.needs else np.zeros(len(table))
    if "label" in metric.needs and label is None:
        raise DataError(f"there are no labels, which {metric.name} needs")
    labels = np.ones((len(table), 1)) if label is None else np.asarray(label)[:, None] == np.arange(2)
    decisions = np.stack([1 - chance, chance], axis=-1)
    masses = np.stack([weight, square], axis=-1)
    return np.asarray((labels[:, :, None] * decisions[:, None])[..., None] * masses[:, None, None])


def numbers_of_rows(metric: Mean, table: Table) -> Floats:
    """Return the numbers that a mean is of, shape (n,); a DataError where the table does not have them."""
    value = dict(quantities(table.rows, table.data_spec, losses=True)).get(metric.quantity)
    if value is None:
        raise DataError(f"there is no {metric.quantity}, which {metric.name} needs")
    return np.asarray(value, dtype=np.float64) - (table.labels if metric.error else np.zeros(len(table)))
