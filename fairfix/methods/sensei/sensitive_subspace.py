"""Directions that do not count: between the people of comparable pairs, given by the user, and what tells the group.

The fair metric of the papers is free along them. Features are standardised before; directions depend on that.

References
----------
D. Mukherjee, M. Yurochkin, M. Banerjee and Y. Sun, *Two simple ways to learn individual fairness metrics from data*
(ICML 2020): the factor model of comparable pairs (FACE), here its leading directions.
M. Yurochkin, A. Bower and Y. Sun, *Training individually fair ML models with sensitive subspace robustness* (ICLR
2020): directions of logistic regressions for the protected columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairfix.data.arrow_normalize import entries_of
from fairfix.data.counts import Floats, Ints
from fairfix.errors import DataError
from fairfix.methods.problem import RepairProblem
from fairfix.models.features import Features
from fairfix.models.learners import fit_classes
from fairfix.models.members import LinearMember

if TYPE_CHECKING:
    from fairfix.methods.sensei import Sensei

SMALL = 1e-9
"""Differences of pairs have no direction whose singular value is below this share of the greatest."""


def span_of(problem: RepairProblem, features: Features, X: Floats, y: Floats, method: Sensei) -> Floats:
    """Return the directions that do not count, shape (r, d): of comparable pairs, given, and learned ones.

    ``X``: the rows as the features make them, shape (n, d); ``y``: their labels, shape (n,).
    """
    many = max((one.directions for one in method.people.files), default=0)
    out: list[Floats] = [*_between(problem, X, many)] if problem.pairs else []
    if problem.subspace is not None:
        out += [*features.directions(problem.subspace)]
    how, weight = method.people.learned_by, problem.weight
    own = np.array([one.kind == "group" for one in features.columns for _ in one.titles])
    for name in problem.groups.columns if how else ():
        groups = problem.table.groups([name])
        codes, levels = groups.codes, len(groups.levels)
        if levels < 2:
            continue
        if how == "logistic":
            other = np.where(own, 0.0, X)
            member = fit_classes(other, codes, levels, weight, learner="linear", l2=method.l2, seed=0)
            assert isinstance(member, LinearMember)
            out += list(np.where(own, 0.0, member.coef.T))
        elif how == "means":
            for label in np.unique(y) if problem.has_classes else (0.0, 1.0):
                out += list(distances_of_means(X, codes, levels, np.where(y == label, weight, 0.0), y))
        else:
            out += list(distances_of_means(X, codes, levels, weight, y))
    return np.array(out).reshape(-1, X.shape[1])


def distances_of_means(X: Floats, codes: Ints, many: int, weight: Floats, y: Floats) -> Floats:
    """Return how the means of groups lie apart within labels, shape (K, d).

    The coefficients of the groups in a regression of the features on group and label, those of least norm: they sum to
    0, and every difference of two groups is in their span. With the rows of one label, the differences of means.
    """
    inside = weight > 0
    X, y, root = X[inside], y[inside], np.sqrt(weight[inside])[:, None]
    member = (codes[inside, None] == np.arange(many)).astype(np.float64)
    both = np.concatenate([member, X], axis=1)
    for label in np.unique(y):
        rows = y == label
        both[rows] -= np.average(both[rows], axis=0, weights=root[rows, 0] ** 2)
    both *= root
    return np.asarray(np.linalg.lstsq(both[:, :many], both[:, many:], rcond=1e-10)[0])


def _between(problem: RepairProblem, X: Floats, many: int) -> Floats:
    """Return the directions between the people of pairs, shape (k, d), k at least 1; units are those of ``X``.

    The mean of the differences of the second from the first, since differences that go either way are no direction. Or
    the ``many`` directions along which they are longest, whichever way they go, as in FACE: the leading right singular
    vectors of all differences.
    """
    pairs = rows_of_pairs(problem)
    if not pairs:
        raise DataError(
            f"none of the {len(problem.pairs):,} comparable pairs has both people among the {len(X):,} training rows; "
            "pairs are two columns of row IDs"
        )
    first, second = np.array(pairs).T
    differences = X[second] - X[first]
    if not many:
        return np.asarray(differences.mean(axis=0))[None]
    _, size, directions = np.linalg.svd(differences, full_matrices=False)
    there = int(np.count_nonzero(size > SMALL * size[0])) if size[0] > 0 else 0
    if many > there:
        raise DataError(
            f"`similar`: directions={many} of pairs, but the differences of {len(pairs):,} comparable pairs span "
            f"{there}; ask for no more, or give more pairs"
        )
    return np.asarray(directions[:many])


def rows_of_pairs(problem: RepairProblem) -> list[tuple[int, int]]:
    """Return the rows of the pairs whose people are both there."""
    name = problem.table.data_spec.columns.id
    if name is None or name not in problem.table.features.column_names:
        raise DataError("comparable pairs name people by ID; name the ID column with `id`")
    place = {str(one): i for i, one in enumerate(entries_of(problem.table.features.column(name)))}
    return [(place[a], place[b]) for a, b in problem.pairs if a in place and b in place]
