"""Calibration curves of groups, and their errors, from counts by score bin."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fairfix.auditing.sufficient_statistics import proportions
from fairfix.data.choices import ScoreScale
from fairfix.data.counts import Counts, moved_bins
from fairfix.data.data_spec import SCORE_RANGE, to_probability
from fairfix.schema.common import CalibrationBin, number
from fairfix.stats.estimates import CalibrationErrors

BINS = 16
"""Equal-width bins of a calibration curve; a power of two, so that they are whole bins of the counts."""


class Calibration:
    """Positives, negatives and mean score of every group (G) in every calibration bin.

    ``scale`` says what probability a score stands for; it is one whose range is :data:`SCORE_RANGE`.
    """

    def __init__(self, counts: Counts, scale: ScoreScale = "probability") -> None:
        grid = counts.bins
        middle = (grid.edges[:-1] + grid.edges[1:]) / 2
        chance = to_probability(middle, scale)
        into = np.clip((chance * BINS).astype(np.int64), 0, BINS - 1)
        parts = [moved_bins(t, into, BINS) for t in (counts.weights, counts.square_weights)]
        self.negative, self.positive = np.moveaxis(np.stack(parts, axis=-1), 1, 0)
        self.rows = moved_bins(counts.rows.sum(axis=1), into, BINS)
        self.weight = (self.negative + self.positive)[..., 0]
        scores = moved_bins(counts.weights.sum(axis=1) * np.clip(chance, 0.0, 1.0), into, BINS)
        with np.errstate(invalid="ignore", divide="ignore"):
            self.score = np.asarray(np.where(self.weight > 0, scores / self.weight, np.nan))
        low, high = SCORE_RANGE[scale]
        self.error = grid.width / 2 / (high - low)
        """Largest error of a mean score: half a bin of the counts, as a probability."""
        self.weighted = counts.weighted

    @cached_property
    def errors(self) -> CalibrationErrors:
        """The calibration errors of the groups."""
        both = np.concatenate([self.positive, self.negative], axis=-1).reshape(-1, 4)
        rates = proportions(both, self.weighted)
        return CalibrationErrors(rates, self.score, self.weight, self.error)

    def points(self) -> list[tuple[CalibrationBin, ...]]:
        """Return the points of every group's curve: bin, rows, weight, mean score and rate of positives."""
        rate = self.errors.rates.value.reshape(self.weight.shape)
        return [
            tuple(
                CalibrationBin(
                    start=b / BINS,
                    end=(b + 1) / BINS,
                    rows=int(self.rows[g, b]),
                    weight=float(self.weight[g, b]),
                    mean_score=number(self.score[g, b]),
                    rate=number(rate[g, b]),
                )
                for b in np.flatnonzero(self.weight[g] > 0).tolist()
            )
            for g in range(len(self.weight))
        ]
