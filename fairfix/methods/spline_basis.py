"""Bases of a linear score: the features as they are, splines of their numbers, or in addition a sum of trees.

A sum of trees is too sure of the rows that it was fitted to. So coefficients are learned from sums that have not seen
their row, in folds, while the finished rule has the sum that was fitted to all rows: what is to hold for *its* rates on
the training rows has to be settled by what it sees of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fairfix.data.counts import Floats, Ints
from fairfix.data.once import once_per_object
from fairfix.errors import UsageError
from fairfix.methods.learned import REPEATED, Design, design_of, label_of
from fairfix.methods.problem import RepairProblem
from fairfix.models.learners import fit_mean, hashed, out_of_fold
from fairfix.models.members import LinearMember, Member, TreesMember
from fairfix.models.spline_basis import BoostedMember, Splines, SplinesMember

BASES = {
    "plain": "linear scores",
    "splines": "sums of splines",
    "trees": "linear scores of features and trees",
}
"""Basis -> what scores are, in words."""


@dataclass(frozen=True, eq=False)
class Expanded(Design):
    """A matrix that coefficients are learned from, and the rows as the finished rule sees them; (n, m) each."""

    shipped: Floats
    made: Callable[[LinearMember], Member]
    """Makes of a linear member over the matrix one over the features."""

    @property
    def differs(self) -> bool:
        """Whether the rule sees something else than what coefficients are learned from."""
        return self.shipped is not self.matrix

    def member(self, linear: Member) -> Member:
        """Return the member over the features of one over the matrix; a constant is of no matrix."""
        return self.made(linear) if isinstance(linear, LinearMember) else linear


@once_per_object
def expanded(problem: RepairProblem, basis: str) -> Expanded:
    """Return the matrix of a basis; a UsageError where there are no feature columns to make one of."""
    plain = design_of(problem, "linear")
    X = plain.matrix
    if basis == "plain":
        return Expanded(plain.features, X, plain.folds, X, lambda linear: linear)
    if problem.features is None:
        raise UsageError(
            f"`learner=linear(basis={basis})` is built from feature columns, and there is only a score, which has its "
            "own knots; name columns with `features`, or leave out the basis"
        )
    if basis == "splines":
        splines = Splines.learn(X, _numbers(plain), problem.weight)
        out = splines.expand(X)
        return Expanded(
            plain.features, out, plain.folds, out, lambda linear: SplinesMember(X.shape[1], linear, splines)
        )
    trees, sums = _sums_of_trees(problem, plain)
    seen, shipped = (np.column_stack([X, own]) for own in (sums, trees.predict(X)))
    return Expanded(plain.features, seen, plain.folds, shipped, lambda linear: BoostedMember(linear, trees))


def _numbers(plain: Design) -> dict[int, int | None]:
    """Return which columns of the matrix are numbers, each with that of its indicator of missing ones, or None."""
    out, at = dict[int, int | None](), 0
    for one in plain.features.columns:
        if one.kind == "number":
            out[at] = at + 1 if one.missing else None
        at += len(one.titles)
    return out


def _sums_of_trees(problem: RepairProblem, plain: Design) -> tuple[TreesMember, Floats]:
    """Return boosted trees of the label, and their sums that have not seen their row, of mean 0 and variance 1, (n,).

    Where there are only a few different rows, many times each, all have the sums of the trees that are fitted to all,
    as scores do in :mod:`fairfix.methods.learned`.
    """
    X, y, weight = plain.matrix, label_of(problem), problem.weight

    def fit(rows: Ints) -> TreesMember:
        made = fit_mean(X[rows], y[rows], weight[rows], learner="trees", loss="logistic", l2=0.0, seed=0)
        assert isinstance(made, TreesMember)
        return replace(made, link="identity")

    def usable(rows: Ints) -> bool:
        heavy = problem.weight[rows] > 0
        return np.unique(y[rows][heavy]).size == 2

    trees = fit(np.arange(len(X)))
    if np.unique(hashed(X)).size * REPEATED <= len(X):
        sums = trees.predict(X)
    else:
        sums = out_of_fold(fit, X, plain.folds, trees, usable)
    mean = float(np.average(sums, weights=problem.weight))
    deviation = float(np.sqrt(np.average((sums - mean) ** 2, weights=problem.weight))) or 1.0
    standard = trees.rescaled(-mean / deviation, 1.0 / deviation)
    assert isinstance(standard, TreesMember)
    return standard, (sums - mean) / deviation
