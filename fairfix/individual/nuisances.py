"""Means of scores and chances of groups given the other columns, learned out of fold: what residuals are taken from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.row_hash import occurrences
from fairfix.individual.contrasts import cells_of
from fairfix.models.learners import binnable, fit_mean, folds_of, unequal
from fairfix.models.members import LinearMember
from fairfix.models.threads import limited

BINS = 255
"""Values of a column that trees tell apart."""

ROUNDING = 1e-9
"""Part of the scale of a number below which it may be nothing but rounding."""

RIDGE = 1e-6
"""Penalty of linear models per unit of weight, of standardised columns: it settles which of equal columns counts."""

FARTHEST = 30.0
"""Log-odds are kept within this of 0: beyond, chances are 0 and 1 to rounding."""

LEAVES = 15
"""Leaves of a tree, half the usual: larger ones learn noise, which widens the residuals that all is divided by."""

ROUNDS = 100
"""Trees of a mean, or of the chance of a group."""

DEALT = 40
"""Rows equal in all columns that are dealt out over folds. Fewer stay in one: trees keep no leaf of less than 20."""

LEAST = 40
"""Least rows with which a tree can split, for the same reason: of fewer, all trees after the first say nothing more."""


def binned(X: Floats, w: Floats, bins: int = BINS) -> Floats:
    """Return columns with at most ``bins`` values, in the same order; NaN stays. Bins of one column weigh alike.

    Trees bin columns themselves, but where rows have weights that takes longer than growing the trees.
    """
    out = np.full(X.shape, np.nan)
    for j, column in enumerate(X.T):
        there = ~np.isnan(column)
        distinct, at = np.unique(column[there], return_inverse=True)
        if distinct.size > bins:
            mass = np.bincount(at, w[there])
            end = np.cumsum(mass)
            at = np.floor((end - mass / 2.0) / end[-1] * bins)[at]
        out[there, j] = at
    return out


def _bundled(X: Floats) -> tuple[Floats, Bools]:
    """Return columns in which indicators that exclude one another are one column of categories, and which these are.

    ``X`` is from :func:`binned`: a column of two values has 0 and 1. Nothing is lost, and trees look at one column
    instead of many.
    """
    switches = np.isin(X, (0.0, 1.0)).all(axis=0)
    bundles: list[Floats] = []
    for on in X.T[switches] == 1.0:
        for codes in bundles:
            if codes.max() < BINS - 1 and not codes[on].any():
                break
        else:
            codes = np.zeros(len(X))
            bundles.append(codes)
        codes[on] = codes.max() + 1.0
    plain = X[:, ~switches]
    return np.column_stack([plain, *bundles]), np.arange(plain.shape[1] + len(bundles)) >= plain.shape[1]


class Nuisances:
    """Means of scores and chances of groups at each row, by linear models and trees that were fitted without it.

    Of columns (n, d), NaN where a value is missing, codes of groups, weights and the fold of each row; the seed is the
    trees'.
    """

    def __init__(self, X: Floats, codes: Ints, w: Floats, drawn: Ints, seed: int) -> None:
        self.Z = standardised(X, w)
        self.X, self.named = _bundled(binned(X, w))
        self.codes, self.w, self.seed = codes, w, seed
        self.member = np.eye(codes.max() + 1)[codes]
        folds = np.unique(drawn)
        # with one fold only rows are foretold with the row itself
        self.parts = [
            (np.flatnonzero((drawn != fold) | (folds.size == 1)), np.flatnonzero(drawn == fold))
            for fold in folds
        ]

    def mean(self, y: Floats, score: Floats, rounds: int) -> Floats:
        """Return the mean of ``y`` at each row, shape (n,); ``score`` gives the index that it may depend on."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        def predicted(rows: Ints, new: Ints) -> tuple[Floats, Floats]:
            index = self._index(score, rows)[:, None]
            Z = np.column_stack([self.Z, index])
            line = fitted_line(Z, y, self.w, rows)
            model, X = self._trees(HistGradientBoostingRegressor, (y - line)[rows], rows, index, rounds)
            return line[new, None], (line[new] + model.predict(X[new]))[:, None]

        return self._out_of_fold(y[:, None], predicted)[:, 0]

    def shares(self) -> Floats:
        """Return the chances of the groups at each row, shape (n, K).

        No trees are stopped early: chances that stay short of the extremes leave behind what scores owe to other
        columns.
        """
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.linear_model import LogisticRegression

        def predicted(rows: Ints, new: Ints) -> tuple[Floats, Floats]:
            seen = np.unique(self.codes[rows])
            linear, trees = (np.tile(np.eye(self.member.shape[1])[seen[0]], (new.size, 1)) for _ in range(2))
            if seen.size > 1:
                # a penalty only against columns that tell the group for sure: slopes of 30 deviations are to be learned
                line = LogisticRegression(C=100.0, max_iter=300, tol=1e-6)
                line.fit(self.Z[rows], self.codes[rows], sample_weight=self.w[rows])
                chance = line.predict_proba(self.Z)
                with np.errstate(divide="ignore"):
                    logs = np.clip(np.log(chance), -FARTHEST, 0.0)
                more = logs[:, 1:] - logs[:, :1]
                model, X = self._trees(HistGradientBoostingClassifier, self.codes[rows], rows, more, ROUNDS)
                linear[:, seen], trees[:, seen] = chance[new], model.predict_proba(X[new])
            return linear, trees

        return self._out_of_fold(self.member, predicted)

    def _out_of_fold(self, truth: Floats, predicted: Callable[[Ints, Ints], tuple[Floats, Floats]]) -> Floats:
        """Return the mixture of two predictions (n, m) that is nearest to the truth in mean square.

        ``predicted`` takes the rows to fit to and new ones, and returns both predictions of the new ones.
        """
        first, second = np.empty(truth.shape), np.empty(truth.shape)
        with limited():
            for rows, new in self.parts:
                first[new], second[new] = predicted(rows, new)
        step = second - first
        square = float(self.w @ (step**2).sum(axis=1))
        part = float(self.w @ (step * (truth - first)).sum(axis=1)) / square if square else 0.0
        return first + min(max(part, 0.0), 1.0) * step

    def _index(self, score: Floats, rows: Ints) -> Floats:
        """Return the mean that a linear index of the columns gives the score, the groups set aside, shape (n,).

        Logistic for scores in [0, 1] (fractional logit), linear for others. Fitted with the groups, so that what is
        theirs is not put on the columns that come with them.
        """
        Z = np.column_stack([self.Z, self.member[:, 1:]])
        y, w, d = score[rows], self.w[rows], self.Z.shape[1]
        loss = "square" if y.min() < 0 or y.max() > 1 or not 0 < y.mean() < 1 else "logistic"
        l2 = RIDGE if loss == "square" else RIDGE / 2
        member = fit_mean(Z[rows], y, w, learner="linear", loss=loss, l2=l2, seed=0)
        assert isinstance(member, LinearMember)
        coef, line = member.coef[:, 0], member.intercept + self.Z @ member.coef[:d, 0]
        if loss == "square":
            return line
        centre = float(w @ self.member[rows, 1:] @ coef[d:] / w.sum())
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(line + centre, -FARTHEST, FARTHEST))))

    def _trees(self, kind: Any, target: Any, rows: Ints, more: Floats, rounds: int) -> tuple[Any, Floats]:
        """Return trees that foretell a target from all columns and more of them, fitted to rows, with the columns."""
        X = np.column_stack([self.X, more if unequal(self.w) is None else binned(more, self.w)])
        model = kind(
            max_iter=rounds if rows.size >= LEAST else 1,
            max_leaf_nodes=LEAVES,
            categorical_features=np.append(self.named, np.zeros(more.shape[1], dtype=bool)),
            early_stopping=False,
            random_state=self.seed,
        )
        return model.fit(binnable(X[rows]), target, sample_weight=unequal(self.w[rows])), X


def standardised(X: Floats, w: Floats) -> Floats:
    """Return columns of mean 0 and deviation 1, missing values at the mean and with a column of their own."""
    gone = np.isnan(X)
    mass = w @ ~gone
    mean = np.divide(w @ np.where(gone, 0.0, X), mass, out=np.zeros(X.shape[1]), where=mass > 0)
    both = np.column_stack([np.where(gone, mean, X), gone[:, gone.any(axis=0)]])
    scale = np.abs(both).max(axis=0)
    both -= w @ both / w.sum()
    spread = np.sqrt(w @ both**2 / w.sum())
    varies = spread > ROUNDING * scale
    return np.asarray(both[:, varies] / spread[varies])


def fitted_line(Z: Floats, y: Floats, w: Floats, rows: Ints) -> Floats:
    """Return a weighted linear fit to the given rows at each row, shape (n,)."""
    from sklearn.linear_model import Ridge

    if not Z.shape[1]:
        return np.full(len(Z), np.average(y[rows], weights=w[rows]))
    return np.asarray(Ridge(alpha=RIDGE * w[rows].sum()).fit(Z[rows], y[rows], w[rows]).predict(Z))


def folds_of_equals(X: Floats, folds: int, w: Floats) -> Ints:
    """Return a fold for each row, shape (n,): equal rows stay together, but where they are many they are dealt out.

    Trees can learn what is peculiar to ``DEALT`` equal rows; were all of them in one fold, none would be left to learn
    it from. Rows come in the order of their values, so that the folds do not depend on the order of rows.
    """
    drawn = folds_of(X, folds, w)
    cells = cells_of(X)
    place = occurrences(cells.astype(np.uint64)).astype(np.int64)
    return np.asarray(np.where(np.bincount(cells)[cells] >= DEALT, (drawn + place) % folds, drawn))
