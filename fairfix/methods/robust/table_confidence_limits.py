"""Uncertainty of a noise table from a survey: Clopper-Pearson limits of its fractions, all at once."""

from __future__ import annotations

import numpy as np

from fairfix.data.choices import Keep
from fairfix.data.counts import Floats
from fairfix.noise.uncertainty_set import Range
from fairfix.stats.quantiles import beta_quantile


def range_of(counts: Floats, keep: Keep, confidence: float) -> Range:
    """Return the tables that counts leave open, shape (J, K) or by label (2, J, K).

    With at least the confidence, over the draw of the rows that were counted, every ``P(true | noisy)`` or every
    ``P(noisy | true)`` lies in its limits: each misses with a chance of at most (1 - confidence) / entries, by
    Bonferroni. A share of no rows may be anything.
    """
    totals = counts.sum(-2 if keep == "true-given-noisy" else -1, keepdims=True)
    others, tail = totals - counts, (1.0 - confidence) / counts.size / 2.0
    low, below = (
        np.where(own > 0, beta_quantile(tail, np.where(own > 0, own, 1.0), rest + 1.0), 0.0)
        for own, rest in ((counts, others), (others, counts))
    )
    return Range(low, 1.0 - below, keep)
