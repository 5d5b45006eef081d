"""SenSeI's regularized models: linear in closed form, and a network of one hidden layer.

``rho auto`` sets a fifth of the rows aside and takes the smallest weight of a grid (by factors of 3) for which these
rows show that at most a share ``slack`` of decisions, at the threshold in force, changes under flips: by the upper 95 %
limit of Clopper and Pearson, which holds for all of the grid together. The model that they judged ships as it is. If
none is shown to hold the slack, an exact solution ships where there is one, fitted to all rows.

A network is trained until a fifth of the rows that it may learn from, which it does not, say that it gets no better;
at a radius the regularizer on these rows is between the value of a plan and a bound for all plans.

Comparable pairs of people make their mean difference, oriented from the first to the second, a direction along which
the score is constant. Learned directions (``directions``) are the paper's other fair metric: differences along
directions that tell the group do not count. Features are standardised before; directions depend on that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.draws import occurrences
from fairfix.data.plain import entries_of
from fairfix.errors import DataError
from fairfix.individual.flips import flipped, protected_flips
from fairfix.methods.base import RepairProblem, Solver, anything, but, only
from fairfix.methods.learned import FOLDS, label_of
from fairfix.methods.sensei.merge import beside_plain, proposed
from fairfix.models.features import Features
from fairfix.models.learners import fit_classes, folds_of, hashed
from fairfix.models.members import LinearMember, Member, NetworkMember
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.scorers import Scorer
from fairfix.models.trace import Caution, Certificate, FitTrace, Note, Quantity
from fairfix.optim.arrays import distinct_rows
from fairfix.optim.invariant_linear import fit_linear
from fairfix.optim.network_fit import fit_network
from fairfix.optim.network_plan import network_regularizer
from fairfix.stats.estimates import Proportions

if TYPE_CHECKING:
    from fairfix.methods.sensei import Sensei

GRID = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Weights of the regularizer that are tried, from the smallest on."""

SURE = 0.05
"""Chance at which what is said of a chosen weight may be false."""

MEASURED = 500
"""Rows that judge a network on which its regularizer is bounded, at most: a second, by 100 ReLUs."""

REACHED = 0.5
"""Share of the best plan's value that the steps of a network's training have to reach: with less than half it has not
trained against what it says it does."""


class Regularized(Solver):
    """A model that is fitted with the regularizer, whose weight is given or chosen."""

    method: Sensei
    tasks = ("classification",)
    uses_labels = True

    def member(self, data: Training, rho: float, seed: int) -> tuple[Member, FitTrace]:
        """Return the model for one weight of the regularizer."""
        raise NotImplementedError

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Fit with the weight that is asked for, or choose one."""
        method, table, seed = self.method, problem.table, int(rng.integers(2**31))
        groups = problem.cells.columns if problem.protected_as_feature else ()
        features = Features.learn(table, problem.features, groups)
        X, y, weight, same = features.matrix(table), label_of(problem), problem.weight, method.comparables
        flips = protected_flips(table, groups, same) if groups or same else []
        changed = FlippedRows.of(X, (features.matrix(flipped(table, flip, same)) for flip in flips))
        data = Training(X, y, weight, changed, self._span(problem, features, X, y), features.reach)
        notes: list[Note] = []
        if not flips:
            nothing = "nothing that does not count is looked at: the model is constant under flips anyway"
            notes.append(Note(nothing, "no_flips"))
        if problem.pairs:
            pairs = f"{len(_rows_of_pairs(problem)):,} of {len(problem.pairs):,} comparable pairs"
            notes.append(Note(f"{pairs} have both people among the rows of the fit", "pairs"))
        notes += proposed(problem, method)
        asked = method.rho if flips or method.radius else 0.0
        if isinstance(asked, str):
            rho, member, trace, note = self._chosen(data, table.reading.cut, seed)
            notes.append(note)
        else:
            rho = float(asked)
            member, trace = self.member(data, rho, seed)
        if len(data.span):
            notes.append(self._cost(data, rho, table.reading.cut, seed))
        if rho == math.inf:
            assert isinstance(member, LinearMember)
            member = _constant(member, features, dict(same))
        trace = replace(trace, notes=(*notes, *trace.notes))
        return beside_plain(method, problem, Scorer(features, member), seed, trace)

    def _chosen(self, data: Training, cut: float, seed: int) -> tuple[float, Member, FitTrace, Note]:
        """Return the smallest weight of the regularizer that is shown to hold the slack, with its model and a note.

        The limits of all weights hold together (Bonferroni), so the one that is chosen by them is as good as any. A
        model that is constant by its form needs no measuring and is fitted to all rows.
        """
        slack = self.method.slack
        if not data.changed.many:
            note = "no decision changes with flips: rho is the least of the grid; choose another with `rho`"
            return GRID[0], *self.member(data, GRID[0], seed), Note(note, "chosen")
        fit, away = data.parted(seed)
        usable = away.size > 0 and len(np.unique(fit.y[fit.weight > 0])) == 2
        judged = None
        for rho in GRID if usable else ():
            member, trace = self.member(fit, rho, seed)
            share, most = share_of_flips(member, data, away, cut, SURE / len(GRID))
            rows = f"of decisions at {cut:g} change with flips"
            flips = (
                Quantity("flips at most", most, f"share {rows}, with {1 - SURE:.0%} confidence"),
                Quantity("flips measured", share, f"share {rows}, on {away.size:,} rows not fitted to"),
            )
            judged = rho, member, replace(trace, quantities=(*trace.quantities, *flips))
            shown = (
                f"at most {most:.4f} {rows}, with {1 - SURE:.0%} confidence "
                f"({share:.4f} of the {away.size:,} rows that rho was chosen by, which the model was not fitted to)"
            )
            if most <= slack:
                why = f"rho {rho:g} is the smallest of the grid that is shown to hold the slack: {shown}"
                return *judged, Note(why, "chosen")
        if isinstance(self, Linear) and not self.method.radius:
            why = (
                f"rho inf: no smaller one is shown to hold the slack of {slack:g} by the {away.size:,} rows set "
                "aside to choose it; no decision changes with flips, by the form of the model"
            )
            return math.inf, *self.member(data, math.inf, seed), Note(why, "chosen")
        if judged is None:
            why = "too few rows to choose rho by; the largest of the grid is taken, and the slack is not shown to hold"
            return GRID[-1], *self.member(data, GRID[-1], seed), Caution(why, "slack")
        why = (
            f"no rho of the grid is shown to hold the slack of {slack:g}: with {judged[0]:g}, {shown}; take "
            "`solver=merge` or average, which are exact, more rows or more slack"
        )
        return *judged, Caution(why, "slack")

    def _span(self, problem: RepairProblem, features: Features, X: Floats, y: Floats) -> Floats:
        """Return the directions that do not count, shape (r, d): of comparable pairs, and learned ones."""
        out: list[Floats] = [_between(problem, X)] if problem.pairs else []
        how, weight = self.method.directions, problem.weight
        own = np.array([one.kind == "group" for one in features.columns for _ in one.titles])
        for name in problem.cells.columns if how != "none" else ():
            groups = problem.table.groups([name])
            codes, many = groups.codes, len(groups.levels)
            if many < 2:
                continue
            if how == "logistic":
                other, l2 = np.where(own, 0.0, X), self.method.l2
                member = fit_classes(other, codes, many, weight, learner="linear", l2=l2, seed=0)
                assert isinstance(member, LinearMember)
                out += list(np.where(own, 0.0, member.coef.T))
            elif how == "means":
                for label in (0.0, 1.0):
                    out += list(distances_of_means(X, codes, many, np.where(y == label, weight, 0.0), y))
            else:
                out += list(distances_of_means(X, codes, many, weight, y))
        return np.array(out).reshape(-1, X.shape[1])

    def _cost(self, data: Training, rho: float, cut: float, seed: int) -> Note:
        """Return what learned directions cost, on a fold that is not fitted to."""
        fit, away = data.parted(seed)
        accuracy = []
        for directions in (np.zeros((0, data.X.shape[1])), data.span):
            member, _ = self.member(replace(fit, span=directions), rho, seed)
            right = (member.predict(data.X[away]) >= cut) == (data.y[away] == 1)
            accuracy.append(float(np.average(right, weights=data.weight[away])))
        free, held_to = accuracy
        costs = f"learned directions cost accuracy: {held_to:.4f} instead of {free:.4f} on rows not fitted to"
        return Note(costs, "cost")


class Linear(Regularized):
    """A linear model, by the regularizer's closed form."""

    option = "`solver=linear`"
    reads: ClassVar = {
        **dict.fromkeys(("comparable", "rho", "radius", "directions", "l2"), anything),
        "learner": only("linear"),
    }
    knows_pairs = True

    def member(self, data: Training, rho: float, seed: int) -> tuple[Member, FitTrace]:
        """Return the optimum, with its certificate."""
        one = fit_linear(
            data.X,
            data.y,
            data.weight,
            data.changed,
            data.span,
            rho=rho,
            eps=self.method.radius,
            l2=self.method.l2,
            metric_inverse=np.diag(data.reach),
        )
        proven = Certificate(
            "mean log loss plus rho times the regularizer plus the penalty",
            one.objective,
            one.objective - one.gap,
            "linear models without a part along directions that do not count",
        )
        trace = FitTrace(
            one.converged,
            one.steps,
            one.objective,
            one.gap,
            certificates=(proven,),
            quantities=(Quantity("rho", rho, "weight of the regularizer"),),
        )
        return LinearMember(one.coef[:, None], np.array([one.intercept]), "sigmoid"), trace


class Network(Regularized):
    """A hidden layer of ReLU, with flips by enumeration; not exactly constant for any weight."""

    option = "`solver=network`"
    reads: ClassVar = {"comparable": anything, "rho": but(math.inf), "radius": anything, "l2": anything}

    def member(self, data: Training, rho: float, seed: int) -> tuple[Member, FitTrace]:
        """Return the network, stopped by rows that it is not trained on."""
        radius, judged = self.method.radius, np.flatnonzero(set_aside(data, seed + 1))
        bounds = np.stack([data.X.min(axis=0), data.X.max(axis=0)])
        free: dict[str, Any] = {"eps": radius, "bounds": bounds, "metric_inverse": np.diag(data.reach)}
        weights: dict[str, Any] = {"rho": rho, "l2": self.method.l2, "seed": seed}
        fit = fit_network(data.X, data.y, data.weight, data.changed, judged, **weights, **free)
        net, converged, notes = fit.network, fit.converged, list[Note]()
        quantities = [Quantity("rho", rho, "weight of the regularizer")]
        if radius > 0:
            sample = data.take(
                judged[:: -(-judged.size // MEASURED)] if judged.size else np.arange(len(data.y))
            )
            bound = network_regularizer(net, sample.X, sample.changed, weight=sample.weight, **free)
            least = bound.plan.value
            converged = converged and bound.trained >= REACHED * least
            limits = (
                f"the regularizer at radius {radius:g}, on {len(sample.y):,} rows that the weights were not fitted "
                f"to: at least {least:.4g}, by a plan that was found, and at most {bound.upper:.4g}, by a "
                f"bound for all plans; the steps of the training reach {bound.trained:.4g}"
            )
            notes.append(Note(limits, "regularizer"))
            where = f"the regularizer at radius {radius:g} on rows that the weights were not fitted to"
            quantities += [
                Quantity("regularizer at least", least, f"{where}, by a plan that was found"),
                Quantity("regularizer at most", bound.upper, f"{where}, by a bound for all plans"),
                Quantity("regularizer in training", bound.trained, f"{where}, by the steps of the training"),
            ]
        member = NetworkMember(net.W1, net.b1, net.w2, np.array([net.b2], dtype=np.float64))
        return member, FitTrace(
            converged, fit.steps, fit.objective, notes=tuple(notes), quantities=tuple(quantities)
        )


# ---------------------------------------------------------------------- rows


@dataclass(frozen=True, eq=False)
class Training:
    """Rows that a regularized model is fitted to.

    Features, labels and weights, the rows under flips, free directions, and how far columns move at the cost of 1.
    """

    X: Floats
    y: Floats
    weight: Floats
    changed: FlippedRows
    span: Floats
    reach: Floats

    def take(self, rows: Ints) -> Training:
        """Return the rows at the given positions."""
        parts = self.X[rows], self.y[rows], self.weight[rows], self.changed.take(rows)
        return Training(*parts, self.span, self.reach)

    def parted(self, seed: int) -> tuple[Training, Ints]:
        """Return the rows to fit to, and the numbers of those that are set aside."""
        held = set_aside(self, seed)
        return self.take(np.flatnonzero(~held)), np.flatnonzero(held)


def _constant(member: LinearMember, features: Features, same: Mapping[str, tuple[str, ...]]) -> LinearMember:
    """Return a member that is constant under flips up to rounding as one that is to the bit.

    Coefficients of all levels of a group are equal, so that the intercept can take them; those of comparable values
    are equal, or 0 where one of the values has no column.
    """
    coef, intercept, at = member.coef.copy(), member.intercept.copy(), 0
    for one in features.columns:
        own = np.arange(at, at + len(one.titles))
        at += len(one.titles)
        if one.kind == "group":
            intercept += coef[own].mean()
            coef[own] = 0.0
        elif one.name in same:
            alike = own[[level in same[one.name] for level in one.levels]]
            coef[alike] = coef[alike].mean() if alike.size == len(same[one.name]) else 0.0
    return replace(member, coef=coef, intercept=intercept)


def set_aside(data: Training, seed: int) -> Bools:
    """Return which rows are set aside, one in ``FOLDS``, shape (n,).

    Drawn for each row by itself and not for each set of values, as folds elsewhere: what is measured on these rows is
    said of all, so that of many equal rows some have to be among them. Which of equal rows does not matter, so the
    draw hangs on their values and their number among them: on the order of rows it does not hang.
    """
    keys = hashed(np.column_stack([data.X, data.y, data.weight]))
    parts = [keys >> np.uint64(32), keys & np.uint64(2**32 - 1), occurrences(keys)]
    drawn_by = np.column_stack([*parts, np.full(keys.size, seed)]).astype(np.float64)
    return np.asarray(folds_of(drawn_by, FOLDS) == 0)


def share_of_flips(
    member: Member, data: Training, rows: Ints, cut: float, alpha: float
) -> tuple[float, float]:
    """Return the share of rows whose decision is not the same under all flips, and its upper limit."""
    decided = np.stack(
        [member.predict(data.changed.variant(k, rows)) >= cut for k in range(data.changed.many)]
    )
    differs, w = decided.any(axis=0) & ~decided.all(axis=0), data.weight[rows]
    sums = ([(w**power)[where].sum()] for power in (1, 2) for where in (differs, ~differs))
    share = Proportions.weighted(*sums)
    return float(share.value[0]), float(share.limits(2.0 * alpha)[1][0])


@dataclass(frozen=True, eq=False)
class FlippedRows:
    """Rows under flips, as :mod:`fairfix.optim` asks for them: the few columns and values that a flip leaves.

    ``flips`` has for each flip the columns that it changes, shape (C,), their values afterwards, each once, shape
    (G, C), and which of these each row gets, shape (n,).
    """

    X: Floats
    flips: tuple[tuple[Ints, Floats, Ints], ...]

    @classmethod
    def of(cls, X: Floats, matrices: Iterable[Floats]) -> FlippedRows:
        """Return it for the matrices of all rows under each flip."""
        flips = []
        for whole in matrices:
            own = np.flatnonzero((whole != X).any(axis=0))
            first, kind = distinct_rows(whole[:, own])
            flips.append((own, whole[np.ix_(first, own)], kind))
        return cls(X, tuple(flips))

    @property
    def many(self) -> int:
        """Number of flips."""
        return len(self.flips)

    def variant(self, k: int, rows: Ints) -> Floats:
        """Return rows after a flip."""
        columns, after, kind = self.flips[k]
        out = self.X[rows]
        out[:, columns] = after[kind[rows]]
        return np.asarray(out)

    def take(self, rows: Ints) -> FlippedRows:
        """Return the rows at the given positions."""
        return FlippedRows(
            self.X[rows], tuple((columns, after, kind[rows]) for columns, after, kind in self.flips)
        )


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


def _between(problem: RepairProblem, X: Floats) -> Floats:
    """Return the mean difference of the second of each pair from the first, shape (d,); units are those of ``X``.

    The mean and not the principal directions: differences within pairs that go either way are no direction.
    """
    pairs = _rows_of_pairs(problem)
    if not pairs:
        raise DataError(
            f"none of the {len(problem.pairs):,} comparable pairs has both people among the {len(X):,} rows of the fit"
        )
    first, second = np.array(pairs).T
    return np.asarray((X[second] - X[first]).mean(axis=0))


def _rows_of_pairs(problem: RepairProblem) -> list[tuple[int, int]]:
    """Return the rows of the pairs whose people are both there."""
    name = problem.table.reading.columns.id
    if name is None or name not in problem.table.features.column_names:
        raise DataError("comparable pairs name people; say with `id` which column has their names")
    place = {str(one): i for i, one in enumerate(entries_of(problem.table.features.column(name)))}
    return [(place[a], place[b]) for a, b in problem.pairs if a in place and b in place]
