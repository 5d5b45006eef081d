"""Means of scores and chances of groups given the other columns, learned out of fold: what residuals are taken from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.individual.contrasts import cells_of
from fairfix.models.learners import binnable, folds_of

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


def binned(X: Floats, w: Floats, bins: int = BINS) -> Floats:
    """Return columns with at most ``bins`` values, in the same order; NaN stays. Bins of one column weigh alike.

    Trees bin columns themselves, but where rows have weights that takes longer than growing the trees.
    """
    out = np.full(X.shape, np.nan)
    for j, column in enumerate(X.T):
        there = ~np.isnan(column)
        values, at = np.unique(column[there], return_inverse=True)
        if values.size > bins:
            mass = np.bincount(at, w[there])
            end = np.cumsum(mass)
            at = np.floor((end - mass / 2.0) / end[-1] * bins)[at]
        out[there, j] = at
    return out


def _bundled(X: Floats) -> tuple[Floats, Bools]:
    """Return columns in which indicators that exclude one another are one column of categories, and which these are.

    Nothing is lost, and trees look at one column instead of many.

    Parameters
    ----------
    X
        From :func:`binned`, shape (n, d): a column of two values has 0 and 1.
    """
    plain: list[Floats] = []
    taken: list[Bools] = []
    names: list[tuple[Floats, int]] = []
    for column in X.T:
        on = column == 1.0
        if not (on | (column == 0.0)).all():
            plain.append(column)
            continue
        for i, used in enumerate(taken):
            if names[i][1] < BINS - 1 and not (used & on).any():
                break
        else:
            i = len(taken)
            taken.append(np.zeros(len(X), dtype=bool))
            names.append((np.zeros(len(X)), 0))
        codes, many = names[i]
        codes[on] = many + 1.0
        names[i] = (codes, many + 1)
        taken[i] |= on
    columns = [*plain, *(codes for codes, _ in names)]
    named = np.arange(len(columns)) >= len(plain)
    return (np.stack(columns, axis=1) if columns else X), named


class Nuisances:
    """Means of scores and chances of groups at each row, by linear models and trees that were fitted without it.

    Parameters
    ----------
    X
        Columns, shape (n, d); NaN is a missing value.
    codes
        Groups from 0 on, shape (n,).
    w
        Weights, shape (n,).
    drawn
        Fold of each row, shape (n,).
    seed
        Of the trees.
    """

    def __init__(self, X: Floats, codes: Ints, w: Floats, drawn: Ints, seed: int) -> None:
        self.Z = standardised(X, w)
        self.X, self.named = _bundled(binned(X, w))
        self.codes, self.w, self.seed = codes, w, seed
        self.member = (codes[:, None] == np.arange(codes.max() + 1)).astype(np.float64)
        self.parts = [
            (np.flatnonzero(drawn != part), np.flatnonzero(drawn == part)) for part in np.unique(drawn)
        ]
        if len(self.parts) == 1:  # one fold only: foretold with the row itself
            self.parts = [(self.parts[0][1], self.parts[0][1])]

    def mean(self, y: Floats, score: Floats, rounds: int = ROUNDS) -> Floats:
        """Return the mean of ``y`` at each row, shape (n,); ``score`` is what tells the index that it may hang on."""
        linear, trees = np.empty(y.size), np.empty(y.size)
        for fitted, new in self.parts:
            index = self._index(score, fitted)
            Z = np.column_stack([self.Z, index])
            straight = least_squares(Z[fitted], y[fitted], self.w[fitted])
            by_line = straight[0] + Z @ straight[1:]
            linear[new] = by_line[new]
            bend = self._grow_mean((y - by_line)[fitted], fitted, index, rounds)
            trees[new] = by_line[new] + bend(new)
        return _stacked(linear[:, None], trees[:, None], y[:, None], self.w)[:, 0]

    def _index(self, score: Floats, rows: Ints) -> Floats:
        """Return the mean that a linear index of the columns gives the score, the groups set aside, shape (n, 1).

        Logistic for scores in [0, 1] (fractional logit), linear for others. Fitted with the groups, so that what is
        theirs is not put on the columns that come with them.
        """
        Z = np.column_stack([self.Z, self.member[:, 1:]])
        y, w, d = score[rows], self.w[rows], self.Z.shape[1]
        if y.min() < 0 or y.max() > 1 or not 0 < y.mean() < 1:
            found = least_squares(Z[rows], y, w)
            return np.asarray(found[0] + self.Z @ found[1 : d + 1])[:, None]
        found = _fractional_logit(Z[rows], y, w)
        centre = float(w @ self.member[rows, 1:] @ found[d + 1 :] / w.sum())
        line = np.clip(found[0] + centre + self.Z @ found[1 : d + 1], -FARTHEST, FARTHEST)
        return np.asarray(1.0 / (1.0 + np.exp(-line)))[:, None]

    def _grow_mean(self, y: Floats, rows: Ints, more: Floats, rounds: int) -> Callable[[Ints], Floats]:
        from sklearn.ensemble import HistGradientBoostingRegressor

        X, model = self._grown(HistGradientBoostingRegressor, y, rows, more, rounds)
        return lambda new: np.asarray(model.predict(X[new]), dtype=np.float64)

    def _grown(self, kind: Any, target: Any, rows: Ints, more: Floats, rounds: int) -> tuple[Floats, Any]:
        """Return all columns with more of them, and trees that foretell a target from these, fitted to rows."""
        X = np.column_stack([self.X, more])
        added = np.zeros(X.shape[1] - self.X.shape[1], dtype=bool)
        model = kind(
            max_iter=rounds,
            max_leaf_nodes=LEAVES,
            categorical_features=np.append(self.named, added),
            early_stopping=False,
            random_state=self.seed,
        )
        return X, model.fit(binnable(X[rows]), target, sample_weight=self.w[rows])

    def chances(self) -> Floats:
        """Return the chances of the groups at each row, shape (n, K).

        No trees are stopped early: chances that stay short of the extremes leave behind what scores owe to other
        columns.
        """
        linear, trees = np.zeros(self.member.shape), np.zeros(self.member.shape)
        for fitted, new in self.parts:
            seen = np.unique(self.codes[fitted])
            if seen.size == 1:
                linear[np.ix_(new, seen)] = trees[np.ix_(new, seen)] = 1.0
                continue
            by_line = self._logistic(fitted)
            linear[np.ix_(new, seen)] = by_line[new]
            with np.errstate(divide="ignore"):
                logs = np.clip(np.log(by_line), -FARTHEST, 0.0)
            trees[np.ix_(new, seen)] = self._grow_chances(fitted, logs[:, 1:] - logs[:, :1])(new)
        return _stacked(linear, trees, self.member, self.w)

    def _logistic(self, rows: Ints) -> Floats:
        from sklearn.linear_model import LogisticRegression

        # a penalty only against columns that tell the group for sure: slopes of 30 deviations are to be learned
        model = LogisticRegression(C=100.0, max_iter=300, tol=1e-6)
        model.fit(self.Z[rows], self.codes[rows], sample_weight=self.w[rows])
        return np.asarray(model.predict_proba(self.Z), dtype=np.float64)

    def _grow_chances(self, rows: Ints, more: Floats) -> Callable[[Ints], Floats]:
        from sklearn.ensemble import HistGradientBoostingClassifier

        X, model = self._grown(HistGradientBoostingClassifier, self.codes[rows], rows, more, ROUNDS)
        return lambda new: np.asarray(model.predict_proba(X[new]), dtype=np.float64)


def _stacked(first: Floats, second: Floats, truth: Floats, w: Floats) -> Floats:
    """Return the mixture of two out-of-fold predictions (n, m) that is nearest to the truth in mean square."""
    step = second - first
    square = float(w @ (step**2).sum(axis=1))
    part = float(w @ (step * (truth - first)).sum(axis=1)) / square if square else 0.0
    return first + min(max(part, 0.0), 1.0) * step


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


def least_squares(Z: Floats, y: Floats, w: Floats) -> Floats:
    """Return intercept and slopes of a weighted linear fit; columns that others give already get the least slopes."""
    root = np.sqrt(w)
    Z = np.column_stack([np.ones(y.size), Z])
    gram = (Z * w[:, None]).T @ Z
    gram[np.diag_indices_from(gram)] += _penalty(Z, w)
    return np.asarray(np.linalg.solve(gram, (Z * root[:, None]).T @ (root * y)))


def _penalty(Z: Floats, w: Floats) -> Floats:
    """Return the penalty of each coefficient: none of the first, the intercept."""
    return np.append(0.0, np.full(Z.shape[1] - 1, RIDGE * float(w.sum())))


def _fractional_logit(Z: Floats, y: Floats, w: Floats) -> Floats:
    """Return intercept and slopes of the logistic mean of a score in [0, 1], by Newton's method with halved steps."""
    Z = np.column_stack([np.ones(y.size), Z])
    mean, penalty = float(w @ y / w.sum()), _penalty(Z, w)
    found = np.zeros(Z.shape[1])
    found[0] = math.log(mean / (1.0 - mean))

    def loss(at: Floats) -> float:
        line = Z @ at
        return float(w @ (np.logaddexp(0.0, line) - y * line)) + 0.5 * float(penalty @ at**2)

    known = loss(found)
    for _ in range(30):
        chance = 1.0 / (1.0 + np.exp(-np.clip(Z @ found, -FARTHEST, FARTHEST)))
        slope = Z.T @ (w * (chance - y)) + penalty * found
        bend = (Z * (w * chance * (1.0 - chance))[:, None]).T @ Z
        bend[np.diag_indices_from(bend)] += penalty
        step = np.linalg.solve(bend, slope)
        size = 1.0
        while (new := loss(found - size * step)) > known and size > 1e-6:
            size /= 2.0
        if not new < known:
            break
        found, gained, known = found - size * step, known - new, new
        if gained < 1e-10 * abs(known):
            break
    return found


def folds_of_equals(X: Floats, folds: int) -> Ints:
    """Return a fold for each row, shape (n,): equal rows stay together, but where they are many they are dealt out.

    Trees can learn what is peculiar to ``DEALT`` equal rows; were all of them in one fold, none would be left to learn
    it from. Rows come in the order of their values, so that what is dealt out does not hang on the order of rows.
    """
    drawn = folds_of(X, folds)
    cells = cells_of(X)
    order = np.argsort(cells, kind="stable")
    sizes = np.bincount(cells)
    place = np.empty_like(cells)
    place[order] = np.arange(cells.size) - (np.cumsum(sizes) - sizes)[cells[order]]
    return np.asarray(np.where(sizes[cells] >= DEALT, (drawn + place) % folds, drawn))
