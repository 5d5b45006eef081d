"""Sums of rates and means: from counts to the sums of weights that a metric of the catalogue is made of."""

from __future__ import annotations

import numpy as np

from fairfix.auditing.metrics import Mean, Rate
from fairfix.data.counts import Counts, Floats
from fairfix.data.reading import Reading
from fairfix.stats.estimates import Means, Proportions
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


def means(mean: Mean, reading: Reading, sums: Floats) -> Means:
    """Return means from the sums of :func:`mean_sums`; undefined where one is too large for a float."""
    probable = reading.task != "regression" and reading.score_scale != "raw"
    bounds = (0.0, 1.0) if mean.name == "mean_score" and probable else mean.bounds
    finite = np.isfinite(sums).all(axis=0)
    return Means.from_sums(np.where(finite, sums, np.nan), bounds)


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


def label_table(counts: Counts) -> Floats:
    """Return a confusion table for what needs no decision: everything counts as a negative one."""
    both = np.stack([counts.weights.sum(axis=-1), counts.square_weights.sum(axis=-1)], axis=-1)
    return np.stack([both, np.zeros_like(both)], axis=2)


def rate_sums(rate: Rate, table: Floats) -> tuple[Floats, Floats]:
    """Return (success, failure), each of shape (G, 2) with the sums of w and w^2.

    A rate that needs no label is summed over the label axis, so it is there with one label row too.
    """
    if "label" not in rate.needs:
        either = table.sum(axis=1)
        decision = rate.success[0][1]
        return either[:, decision], either[:, 1 - decision]
    success = sum(table[:, label, decision] for label, decision in rate.success)
    failure = sum(table[:, label, decision] for label, decision in rate.failure)
    return np.asarray(success), np.asarray(failure)


def share(success: Floats, failure: Floats) -> Floats:
    """Return success / (success + failure) of the weight sums, NaN where both are zero."""
    total = success[..., 0] + failure[..., 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(total > 0, success[..., 0] / total, np.nan))


def proportions(
    success: Floats, failure: Floats, weighted: bool, private: float | None = None
) -> Proportions:
    """Return proportions from sums (w, w^2) of success and failure, shape (k, 2) each.

    ``private``: the budget of the noise in the sums, which then have numbers of noisy counts in place of squares.
    """
    if private is not None:
        return NoisyProportions.of(success, failure, private)
    if weighted:
        return Proportions.weighted(success[:, 0], failure[:, 0], success[:, 1], failure[:, 1])
    return Proportions(success[:, 0], success[:, 0] + failure[:, 0])
