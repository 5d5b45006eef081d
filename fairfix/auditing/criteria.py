"""Criteria of equal rates: which rates each holds alike, and over which rows those are means.

All follows from the catalogue of :mod:`fairfix.auditing.metrics`: a criterion is another name of the metric it holds
alike, equalized odds are two rates, and the rows of a rate are those of its entries in the confusion table.
"""

from __future__ import annotations

from fairfix.auditing.metrics import ALIASES, EQUALIZED_ODDS, RATES

CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds")
"""Criteria that repairs hold."""


def metric_of(criterion: str) -> str:
    """Return the metric whose gaps a criterion bounds; a metric stays."""
    return ALIASES.get(criterion, criterion)


def rates_of(criterion: str) -> tuple[str, ...]:
    """Return the rates that a criterion or a metric is made of."""
    metric = metric_of(criterion)
    return EQUALIZED_ODDS if metric == "equalized_odds" else (metric,)


def between_groups(criterion: str) -> str:
    """Return the identifier of the comparison that holds groups alike by a criterion."""
    return f"{metric_of(criterion)}.difference.between_groups"


def label_of(rate: str) -> int | None:
    """Return the label of the rows over which a rate is a mean; None for rows of both labels."""
    labels = {label for label, _ in (*RATES[rate].success, *RATES[rate].failure)}
    return labels.pop() if len(labels) == 1 else None


def events_of(criterion: str) -> tuple[int | None, ...]:
    """Return the labels of the rows over which the rates of a criterion are means, as :func:`label_of`."""
    return tuple(label_of(rate) for rate in rates_of(criterion))
