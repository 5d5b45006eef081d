"""Predictors of the chance of a positive decision that look at scorers: truncated logits, and curves of a score.

A probability of a truncated logit can be read in two ways: as the chance of a draw, or rounded at a threshold. What
holds for one reading need not hold for the other, so a report shows error and gap of each reading together and never
mixes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from fairfix.data.counts import Floats
from fairfix.data.table import Table
from fairfix.errors import ArtifactError
from fairfix.models.predictors import CURVE_PARTS, FitTrace, arrays_of_curves, codes_of, curves_of_arrays
from fairfix.models.values import Arrays, GroupedScore, Scorer, names_and_levels
from fairfix.optim.piecewise import Piecewise
from fairfix.optim.robust_log_loss import marginal, truncated


@dataclass(frozen=True, eq=False)
class TruncatedLogit(GroupedScore):
    r"""A logistic score that is capped or lifted group by group; see :mod:`fairfix.optim.robust_log_loss`.

    Attributes
    ----------
    columns, levels, scorer
        Of the groups, and of the logistic score ``s``; see :class:`fairfix.models.values.GroupedScore`.
    prices
        ``c`` of each group if the label were 0 and if it were 1, shape (2, K); equal where the label has no part.
    rounded
        Whether decisions are rounded at the threshold instead of drawn.
    """

    kind: ClassVar[str] = "truncated_logit"
    is_probability: ClassVar[bool] = True

    prices: Floats
    rounded: bool
    trace: FitTrace = field(default=FitTrace(True, 0, float("nan")))

    @property
    def gives(self) -> Literal["decision", "value"]:  # type: ignore[override]  # an attribute of the base
        """What a prediction is: a probability to draw with, or one to round."""
        return "value" if self.rounded else "decision"

    @property
    def randomized(self) -> bool:  # type: ignore[override]  # an attribute of the base, derived here
        """Whether decisions are drawn."""
        return not self.rounded

    def predict(self, table: Table) -> Floats:
        """Return the probability of each row; NaN for groups not seen in the fit."""
        return self.of_scores(table, self.scorer(table))

    def of_scores(self, table: Table, score: Floats) -> Floats:
        """Return the probability of each row from its logistic score, shape (n,)."""
        code = codes_of(table, self.columns, self.levels)
        zero, one = np.concatenate([self.prices, np.full((2, 1), np.nan)], axis=1)[:, code]
        if np.array_equal(self.prices[0], self.prices[1]):
            out = truncated(score, one)
        else:
            out, _ = marginal(score, zero, one)
        return np.where(code < 0, np.nan, out)

    def unrepaired(self, table: Table) -> Floats:
        """Return the plain score, decided at the threshold where decisions are drawn."""
        if self.rounded:
            return super().unrepaired(table)
        if table.rows.score is not None:
            return np.asarray((table.rows.score >= table.reading.thresholds[0]).astype(np.float64))
        return np.asarray((self.scorer(table) >= table.reading.thresholds[0]).astype(np.float64))

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return levels and scorer as settings, prices as an array."""
        settings, arrays = self.scorer.state("scorer")
        told = {
            "columns": list(self.columns),
            "levels": [list(level) for level in self.levels],
            "rounded": self.rounded,
            "scorer": settings,
        }
        return told, {**arrays, "prices": self.prices}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the predictor of a saved state, checked."""
        own = {name for name in arrays if not name.startswith("scorer.")}
        if set(settings) != {"columns", "levels", "rounded", "scorer"} or own != {"prices"}:
            raise ArtifactError(f"a {cls.kind} has other settings or arrays than this artifact holds")
        columns, levels = names_and_levels(cls.kind, settings)
        prices, rounded = arrays["prices"], settings["rounded"]
        sound = (
            prices.dtype == np.float64
            and prices.shape == (2, len(levels))
            and bool(np.isfinite(prices).all())
            and isinstance(rounded, bool)
        )
        if not sound:
            raise ArtifactError(f"the parts of this {cls.kind} do not fit together")
        return cls(columns, levels, Scorer.from_state("scorer", settings["scorer"], arrays), prices, rounded)


@dataclass(frozen=True, eq=False)
class ScoreCurves(GroupedScore):
    r"""A piecewise linear rule on ``f = 2 s - 1`` for a score ``s``: one per group, or one for everybody.

    .. math:: P(\text{decision} = 1 \mid f, k) = g_k(f)

    Attributes
    ----------
    columns, levels, scorer
        Of the groups, and of the score; see :class:`fairfix.models.values.GroupedScore`. For one rule there are no
        columns and one empty tuple of levels.
    curves
        ``g_k``, one per group.
    """

    kind: ClassVar[str] = "score_curves"
    gives: ClassVar[Literal["decision", "value"]] = "decision"

    curves: tuple[Piecewise, ...]
    trace: FitTrace = field(default=FitTrace(True, 0, float("nan")))

    @property
    def randomized(self) -> bool:  # type: ignore[override]  # an attribute of the base, derived here
        """Whether some curve takes a value strictly between 0 and 1."""
        return not all(curve.sharp for curve in self.curves)

    def predict(self, table: Table) -> Floats:
        """Return the curve of each row's group at its score; NaN for groups not seen in the fit."""
        code = codes_of(table, self.columns, self.levels)
        score = 2.0 * self.scorer(table) - 1.0
        out = np.full(score.shape, np.nan)
        for k, curve in enumerate(self.curves):
            inside = code == k
            out[inside] = curve(score[inside])
        return out

    def of_each_group(self, table: Table) -> tuple[tuple[tuple[str, ...], ...], Floats] | None:
        """Return each curve at the scores, unless there is one rule or the score looks at the group too."""
        if not self.columns or self.scorer.groups:
            return None
        score = 2.0 * self.scorer(table) - 1.0
        return self.levels, np.stack([curve(score) for curve in self.curves], axis=-1)

    def unrepaired(self, table: Table) -> Floats:
        """Return the plain score, decided at the threshold."""
        score = table.rows.score if table.rows.score is not None else self.scorer(table)
        return np.asarray((score >= table.reading.thresholds[0]).astype(np.float64))

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return levels, scorer and numbers of knots as settings, the curves end to end as arrays."""
        settings, arrays = self.scorer.state("scorer")
        told = {
            "columns": list(self.columns),
            "levels": [list(level) for level in self.levels],
            "knots": [int(curve.knots.size) for curve in self.curves],
            "scorer": settings,
        }
        return told, {**arrays, **arrays_of_curves(self.curves)}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the predictor of a saved state, checked."""
        own = {name for name in arrays if not name.startswith("scorer.")}
        if set(settings) != {"columns", "levels", "knots", "scorer"} or own != set(CURVE_PARTS):
            raise ArtifactError(f"a {cls.kind} has other settings or arrays than this artifact holds")
        columns, levels = names_and_levels(cls.kind, settings)
        curves = curves_of_arrays(settings["knots"], arrays, len(levels))
        if curves is None:
            raise ArtifactError(f"the parts of this {cls.kind} do not fit together")
        return cls(columns, levels, Scorer.from_state("scorer", settings["scorer"], arrays), curves)
