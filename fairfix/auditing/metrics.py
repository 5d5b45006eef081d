r"""Metrics: each rate is one line over the confusion table, undefined is NaN.

With decision :math:`\hat y`, label :math:`y`, weights :math:`w` and group :math:`g`, the confusion table
of a group holds :math:`\sum w 1[y = l, \hat y = d]`; for a randomised decision with probability ``q`` the
indicator of a positive decision is replaced by ``q``, so every rate is an expectation over the
randomisation. A :class:`Rate` is the share of *success* entries among *success and failure* entries; a
:class:`Mean` is a sum over rows divided by their weight. The tables :data:`RATES` and :data:`MEANS` say
each definition once; reports, checks, documentation and intervals all read it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fairfix.data.counts import Counts, Floats

TP, FN, FP, TN = (1, 1), (1, 0), (0, 1), (0, 0)
"""Entries of the confusion table as (label, decision)."""


@dataclass(frozen=True)
class Metric:
    """What every metric says of itself.

    Attributes
    ----------
    name
        Identifier in reports and checks.
    formula
        Definition in the terms of the docs.
    needs
        Of ``label``, ``decision``, ``score``, ``probability``, ``real label``: what the data must have.
    undefined
        Why the value of a group can be undefined.
    """

    name: str
    formula: str
    needs: frozenset[str]
    undefined: str


@dataclass(frozen=True)
class Rate(Metric):
    """A share: ``success / (success + failure)`` over entries of the confusion table."""

    success: tuple[tuple[int, int], ...]
    failure: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Mean(Metric):
    """A mean over rows; ``sums`` gives per group the sums of ``w v`` and ``w v^2``, shape (G, 2)."""

    sums: Callable[[Counts], Floats]
    support: tuple[float, float]


def _rate(
    name: str,
    formula: str,
    success: tuple[tuple[int, int], ...],
    failure: tuple[tuple[int, int], ...],
    undefined: str = "no rows",
    needs: tuple[str, ...] = ("label", "decision"),
) -> Rate:
    return Rate(name, formula, frozenset(needs), undefined, success, failure)


RATES: Mapping[str, Rate] = {
    rate.name: rate
    for rate in (
        _rate("base_rate", "P(y = 1)", (TP, FN), (FP, TN), needs=("label",)),
        _rate("selection_rate", "P(decision = 1)", (TP, FP), (FN, TN), needs=("decision",)),
        _rate("true_positive_rate", "P(decision = 1 | y = 1)", (TP,), (FN,), "no positives (y = 1)"),
        _rate("false_positive_rate", "P(decision = 1 | y = 0)", (FP,), (TN,), "no negatives (y = 0)"),
        _rate("true_negative_rate", "P(decision = 0 | y = 0)", (TN,), (FP,), "no negatives (y = 0)"),
        _rate("false_negative_rate", "P(decision = 0 | y = 1)", (FN,), (TP,), "no positives (y = 1)"),
        _rate("positive_predictive_value", "P(y = 1 | decision = 1)", (TP,), (FP,), "no positive decisions"),
        _rate("negative_predictive_value", "P(y = 0 | decision = 0)", (TN,), (FN,), "no negative decisions"),
        _rate("accuracy", "P(decision = y)", (TP, TN), (FP, FN)),
    )
}
"""Rates of decisions, by name."""


def _over_labels(counts: Counts, name: str) -> Floats:
    """Return the sums of a quantity over the label axis, shape (G, 2)."""
    return np.asarray(counts.sums[name].sum(axis=1))


def _calibration_in_the_large(counts: Counts) -> Floats:
    """Return sums of (p - y) and of its square, which is the square loss."""
    positives = counts.weights[:, 1].sum(axis=-1)
    difference = counts.sums["score"][:, :, 0].sum(axis=1) - positives
    return np.stack([difference, counts.sums["square_loss"][:, :, 0].sum(axis=1)], axis=-1)


def _mean_error(counts: Counts) -> Floats:
    """Return sums of (prediction - y) and of its square."""
    difference = counts.sums["score"][:, :, 0] - counts.sums["label"][:, :, 0]
    return np.stack([difference.sum(axis=1), counts.sums["square_loss"][:, :, 0].sum(axis=1)], axis=-1)


def _mean(
    name: str,
    formula: str,
    needs: tuple[str, ...],
    sums: Callable[[Counts], Floats] | None = None,
    support: tuple[float, float] = (-np.inf, np.inf),
    source: str = "",
    undefined: str = "its sums are too large for a floating-point number",
) -> Mean:
    chosen = sums or (lambda counts: _over_labels(counts, source or name))
    return Mean(name, formula, frozenset(needs), undefined, chosen, support)


MEANS: Mapping[str, Mean] = {
    mean.name: mean
    for mean in (
        _mean("mean_score", "E[score]", ("score",), source="score"),
        _mean("mean_label", "E[y]", ("real label",), source="label"),
        _mean(
            "calibration_gap", "E[p - y]", ("label", "probability"), _calibration_in_the_large, (-1.0, 1.0)
        ),
        _mean("mean_error", "E[prediction - y]", ("real label", "score"), _mean_error),
        _mean(
            "square_loss_real",
            "E[(prediction - y)^2]",
            ("real label", "score"),
            None,
            (0.0, np.inf),
            "square_loss",
        ),
        _mean("absolute_loss", "E|prediction - y|", ("real label", "score"), None, (0.0, np.inf)),
        _mean("square_loss", "E[(p - y)^2]", ("label", "probability"), None, (0.0, 1.0)),
        _mean(
            "log_loss",
            "E[-log P(y)]",
            ("label", "probability"),
            None,
            (0.0, np.inf),
            undefined="infinite: an observed label was given probability 0",
        ),
    )
}
"""Means over rows, by name."""


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
    both = np.stack([counts.weights, counts.square_weights], axis=-1)
    return np.stack([both[:, :, :cut].sum(axis=2), both[:, :, cut:].sum(axis=2)], axis=2)


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
        decided = {d for _, d in rate.success}
        return _picked(either, decided), _picked(either, {0, 1} - decided)
    success = sum(table[:, label, decision] for label, decision in rate.success)
    failure = sum(table[:, label, decision] for label, decision in rate.failure)
    return np.asarray(success), np.asarray(failure)


def _picked(table: Floats, decisions: set[int]) -> Floats:
    return np.asarray(table[:, sorted(decisions)].sum(axis=1))


def share(success: Floats, failure: Floats) -> Floats:
    """Return success / (success + failure) of the weight sums, NaN where both are zero."""
    total = success[..., 0] + failure[..., 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(total > 0, success[..., 0] / total, np.nan))


ALIASES: Mapping[str, str] = {
    "dp": "selection_rate",
    "demographic_parity": "selection_rate",
    "statistical_parity": "selection_rate",
    "equal_opportunity": "true_positive_rate",
    "eop": "true_positive_rate",
    "eo": "equalized_odds",
    "tpr": "true_positive_rate",
    "fpr": "false_positive_rate",
    "tnr": "true_negative_rate",
    "fnr": "false_negative_rate",
    "ppv": "positive_predictive_value",
    "precision": "positive_predictive_value",
    "npv": "negative_predictive_value",
    "recall": "true_positive_rate",
    "brier": "square_loss",
}
"""Other names under which checks may ask for a metric."""

EQUALIZED_ODDS = ("true_positive_rate", "false_positive_rate")
"""The two rates whose gaps make up ``equalized_odds``: the larger difference, the smaller ratio."""
