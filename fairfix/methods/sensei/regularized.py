"""SenSeI's regularized models: linear in closed form, and a network of one hidden layer.

``rho auto`` sets a fifth of the rows aside and takes the smallest weight of a grid (by factors of 3) for which these
rows show that at most a share ``slack`` of decisions, at the decision threshold, changes under flips: by the upper 95%
limit of Clopper and Pearson, which holds for all of the grid together. The model that they judged ships as it is. If
none is shown to hold the slack, an exact solution ships where there is one, fitted to all rows.

A network is trained until a fifth of the rows that it may learn from, which it does not, say that it gets no better;
at a radius the regularizer on these rows is between the value of a plan and a bound for all plans.

The score is constant along directions that do not count (:mod:`fairfix.methods.sensei.sensitive_subspace`): a linear
model has no part along them, and a network sees rows without their part along them, which its first layer takes off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.row_hash import occurrences
from fairfix.data.table import Table
from fairfix.errors import DataError, UsageError
from fairfix.individual.counterfactuals import Counterfactuals, left_out
from fairfix.individual.flips import flipped, protected_flips
from fairfix.methods.base import Solver, anything, but, only
from fairfix.methods.learned import FOLDS, label_of, named
from fairfix.methods.problem import RepairProblem
from fairfix.methods.sensei.counterfactual_rows import FlippedRows
from fairfix.methods.sensei.exact import beside_plain, proposed
from fairfix.methods.sensei.radius_certificate import SURE, Moves, network_of
from fairfix.methods.sensei.sensitive_subspace import rows_of_pairs, span_of
from fairfix.models.features import Features
from fairfix.models.learners import dealt, hashed, placed
from fairfix.models.members import LinearMember, Member, NetworkMember
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import Scorer
from fairfix.models.trace import Caution, Certificate, FitTrace, Note, Quantity
from fairfix.solvers.invariant_linear import fit_linear
from fairfix.solvers.network import basis_of
from fairfix.solvers.network_fit import fit_network
from fairfix.solvers.relu_change_bounds import network_regularizer
from fairfix.stats.estimates import Proportions

if TYPE_CHECKING:
    from fairfix.methods.sensei import Sensei

GRID = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Weights of the regularizer that are tried, from the smallest on."""

MEASURED = 500
"""Rows that judge a network on which its regularizer is bounded, at most: a second, by 100 ReLUs."""

REACHED = 0.5
"""Share of the best plan's value that the steps of a network's training have to reach: with less than half it has not
trained against what it says it does."""


class Regularized(Solver):
    """A model that is fitted with the regularizer, whose weight is given or chosen."""

    method: Sensei
    tasks = ("classification", "multiclass")
    uses_labels = True

    def member(
        self, data: Training, rho: float, seed: int, near: Member | None = None
    ) -> tuple[Member, FitTrace]:
        """Return the model for one weight of the regularizer; ``near``: that of another weight, to begin with."""
        raise NotImplementedError

    def weights_of(self, data: Training) -> Floats:
        """Return what the rows weigh in the fit, shape (n,)."""
        if self.method.balance == "none":
            return data.weight
        many = data.classes or 2
        masses = [data.weight[data.y == label].sum() for label in range(many)]
        each = np.divide(sum(masses) / many, masses, out=np.zeros(many), where=np.array(masses) > 0)
        return np.asarray(data.weight * each[data.codes])

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Fit with the weight that is asked for, or choose one."""
        method, table, seed = self.method, problem.table, int(rng.integers(2**31))
        groups = problem.groups.columns if problem.protected_as_feature else ()
        features = Features.learn(table, problem.features, groups)
        X, weight, same, many = features.matrix(table), problem.weight, method.comparable_values, 0
        if problem.has_classes:
            many, y = len(problem.classes[0]), problem.classes[1].astype(np.float64)
            if method.radius:
                raise UsageError(
                    "sensei: near(radius=...) in `similar` needs two classes: with more, the worst free step has no "
                    "closed form; leave it out"
                )
        else:
            y = label_of(problem)
        flips = protected_flips(table, groups, same) if groups or same else []
        changed = FlippedRows.of(X, (features.matrix(flipped(table, flip, same)) for flip in flips))
        if problem.copies is not None:
            changed = changed.with_copies(*_copied(problem.copies, table, features))
        span = span_of(problem, features, X, y, method)
        cost = method.people.cost
        if cost and not len(span):
            raise UsageError(
                "sensei: the cost in near(...) is that of directions, and there are none; name some with `similar`: "
                "learned, or a file of pairs or directions"
            )
        data = Training(X, y, weight, changed, span, features.reach, many, cost)
        notes: list[Note] = []
        if problem.copies is not None:
            notes += _said_of_copies(problem.copies, changed, method.rho)
        if not changed.many:
            nothing = "the model uses nothing that must not count: it is constant under flips anyway"
            notes.append(Note(nothing, "no_flips"))
        if problem.pairs:
            pairs = f"{len(rows_of_pairs(problem)):,} of {len(problem.pairs):,} comparable pairs"
            notes.append(Note(f"{pairs} have both people among the training rows", "pairs"))
        if problem.subspace is not None:
            given_ones = len(problem.subspace)
            along = "the given direction"
            along = along if given_ones == 1 else f"{given_ones:,} given directions"
            given = f"the score does not change along {along}, for rows without missing values in the moving columns"
            if cost:
                given = f"a step of length 1 along {along} is at a squared distance of {cost:g}"
            notes.append(Note(given, "subspace"))
        if method.balance == "labels":
            balanced = (
                "the score is the probability of label 1 in a population where half have it: both labels "
                "have equal weight"
            )
            if many:
                balanced = (
                    f"probabilities are those in a population where one in {many} has each class: all "
                    "have equal weight"
                )
            notes.append(Note(balanced, "uncalibrated"))
        notes += proposed(problem, method)
        asked = method.rho if changed.many or method.radius else 0.0
        if isinstance(asked, str):
            rho, member, trace, note = self._chosen(data, table.data_spec.cut, seed)
            notes.append(note)
        else:
            rho = float(asked)
            member, trace = self.member(data, rho, seed)
        if len(data.span):
            notes.append(self._cost(data, rho, table.data_spec.cut, seed))
        if rho == math.inf:
            assert isinstance(member, LinearMember)
            member = _constant(member, features, dict(same))
        trace = replace(trace, notes=(*notes, *trace.notes))
        if method.radius:
            assert isinstance(member, LinearMember | NetworkMember)
            moves = Moves(member, method.radius, data.metric_inverse, table.data_spec.cut)
            trace = replace(trace, of_held_out=partial(moves.said_of, changed, features))
        return beside_plain(method, problem, Scorer(features, member), seed, trace)

    def _chosen(self, data: Training, cut: float, seed: int) -> tuple[float, Member, FitTrace, Note]:
        """Return the smallest weight of the regularizer that is shown to hold the slack, with its model and a note.

        The limits of all weights, of flips and of copies, hold together (Bonferroni), so the one that is chosen by them
        is as good as any. A model that is constant under flips by its form needs no measuring and is fitted to all
        rows; nothing is so under copies, which are different for every person.
        """
        slack, copied = self.method.slack, data.changed.copied > 0
        if not data.changed.many:
            note = "no decision changes with flips: rho is the smallest of the grid; set another with `rho`"
            return GRID[0], *self.member(data, GRID[0], seed), Note(note, "chosen")
        fit, away = data.parted(seed)
        if copied and not data.changed.has_copies[away].any():
            raise DataError(
                f"none of the {away.size:,} rows held out to choose `rho` has a copy; give copies of more "
                "people, or a number for `rho`"
            )
        usable = away.size > 0 and len(np.unique(fit.y[fit.weight > 0])) == (data.classes or 2)
        grid, judged, member = data.grid, None, None
        for rho in grid if usable else ():
            member, trace = self.member(fit, rho, seed, member)
            changing = list(_changing(member, data, away, cut))
            flips = (part for one in changing for part in one.quantities)
            judged = rho, member, replace(trace, quantities=(*trace.quantities, *flips))
            shown = "; ".join(one.shown for one in changing)
            if all(one.most <= slack for one in changing):
                why = f"rho {rho:g} is the smallest of the grid that is shown to meet the slack: {shown}"
                return *judged, Note(why, "chosen")
        if isinstance(self, Linear) and not self.method.radius and not copied:
            why = (
                f"rho inf: no smaller one is shown to meet the slack of {slack:g} by the {away.size:,} rows held "
                "out to choose it; no decision changes with flips, by the form of the model"
            )
            return math.inf, *self.member(data, math.inf, seed), Note(why, "chosen")
        if judged is None:
            why = "too few rows to choose rho; the largest of the grid is used, and the slack is not shown to be met"
            return grid[-1], *self.member(data, grid[-1], seed), Caution(why, "slack")
        remedy = (
            "use more people with copies, or more slack"
            if copied
            else "use `solver=merge` or average, which are exact, more rows or more slack"
        )
        why = f"no rho of the grid is shown to meet the slack of {slack:g}: with {judged[0]:g}, {shown}; {remedy}"
        return *judged, Caution(why, "slack")

    def _cost(self, data: Training, rho: float, cut: float, seed: int) -> Note:
        """Return what directions that do not count cost, on a fold that is not fitted to."""
        fit, away = data.parted(seed)
        accuracy = []
        for directions in (np.zeros((0, data.X.shape[1])), data.span):
            member, _ = self.member(replace(fit, span=directions), rho, seed)
            right = decided(member, data.X[away], cut) == data.codes[away]
            accuracy.append(float(np.average(right, weights=data.weight[away])))
        free, held_to = accuracy
        what = "count little" if data.cost else "must not count"
        costs = (
            f"directions that {what} cost {'' if held_to < free else 'no '}accuracy: {held_to:.4f} instead of "
            f"{free:.4f} on rows not used to fit"
        )
        return Note(costs, "cost")


class Linear(Regularized):
    """A linear model, by the regularizer's closed form."""

    option = "`solver=regularizer`"
    reads: ClassVar = {
        **dict.fromkeys(("similar", "rho", "balance", "group"), anything),
        "learner": named("linear"),
    }

    def member(
        self, data: Training, rho: float, seed: int, near: Member | None = None
    ) -> tuple[Member, FitTrace]:
        """Return the optimum, with its certificate, wherever the search begins."""
        one = fit_linear(
            data.X,
            data.y,
            self.weights_of(data),
            data.changed,
            data.constant_along,
            logits=data.logits,
            rho=rho,
            eps=self.method.radius,
            l2=self.method.l2,
            metric_inverse=data.metric_inverse,
        )
        alike = "all classes" if data.classes else "both labels"
        balanced = "" if self.method.balance == "none" else f", with equal weight for {alike},"
        proven = Certificate(
            f"mean log loss{balanced} plus rho times the regularizer plus the penalty",
            one.objective,
            one.objective - one.gap,
            "linear models without a part along directions that do not count"
            if not self.method.people.cost
            else "linear models",
        )
        trace = FitTrace(
            one.converged,
            one.steps,
            one.objective,
            one.gap,
            certificates=(proven,),
            quantities=(Quantity("rho", rho, "weight of the regularizer"),),
        )
        return LinearMember(one.coef, one.intercept, "softmax" if data.classes else "sigmoid"), trace


class NetworkLearner(Regularized):
    """A hidden layer of ReLU, with flips by enumeration; not exactly constant for any weight."""

    option = "`learner=network`"
    remedy = "`solver=regularizer`"
    reads: ClassVar = {
        **dict.fromkeys(("similar", "balance", "group"), anything),
        "rho": but(math.inf),
        "learner": named("network"),
        "solver": only("regularizer"),
    }

    def member(
        self, data: Training, rho: float, seed: int, near: Member | None = None
    ) -> tuple[Member, FitTrace]:
        """Return the network, stopped by rows that it is not trained on."""
        method = self.method
        radius, judged = method.radius, np.flatnonzero(set_aside(data, seed + 1))
        free: dict[str, Any] = {
            "eps": radius,
            "bounds": np.stack([data.X.min(axis=0), data.X.max(axis=0)]),
            "metric_inverse": data.metric_inverse,
        }
        hidden = method.setting("hidden")
        fit = fit_network(
            data.X,
            data.y,
            self.weights_of(data),
            data.changed,
            judged,
            logits=data.logits,
            rho=rho,
            l2=method.l2,
            seed=seed,
            hidden=None if hidden == "auto" else int(hidden),
            batch=int(method.setting("batch")),
            span=basis_of(data.constant_along),
            start=network_of(near) if radius and isinstance(near, NetworkMember) else None,
            **free,
        )
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
                f"the regularizer at radius {radius:g} is measured on {len(sample.y):,} rows that the weights were not "
                f"fitted to: it is at least {least:.4g} by a transport plan that was found; it is at most "
                f"{bound.upper:.4g} by a bound for all plans; the steps of the training reach {bound.trained:.4g}"
            )
            notes.append(Note(limits, "regularizer"))
            where = f"the regularizer at radius {radius:g} on rows that the weights were not fitted to"
            quantities += [
                Quantity("regularizer at least", least, f"{where}, by a transport plan that was found"),
                Quantity("regularizer at most", bound.upper, f"{where}, by a bound for all plans"),
                Quantity("regularizer in training", bound.trained, f"{where}, by the steps of the training"),
            ]
        member = NetworkMember(net.W1, net.b1, net.W2, net.b2, "softmax" if data.classes else "sigmoid")
        return member, FitTrace(
            converged, fit.steps, fit.objective, notes=tuple(notes), quantities=tuple(quantities)
        )


# ---------------------------------------------------------------------- rows


@dataclass(frozen=True, eq=False)
class Training:
    """Rows that a regularized model is fitted to.

    Features, labels and weights, the rows under flips, directions that do not count or count little, how far columns
    move at the cost of 1, the number of classes, whose numbers are the labels then (0 for labels of 0 and 1), and the
    cost of a step along the directions.
    """

    X: Floats
    y: Floats
    weight: Floats
    changed: FlippedRows
    span: Floats
    reach: Floats
    classes: int = 0
    cost: float = 0.0

    @property
    def logits(self) -> int:
        """The number of logits: one of label 1, or one for each class."""
        return self.classes or 1

    @property
    def codes(self) -> Ints:
        """The label of each row as a whole number, shape (n,)."""
        return self.y.astype(np.int64)

    @property
    def constant_along(self) -> Floats:
        """The directions along which a model has to be constant, shape (r, d): those along which steps cost nothing."""
        return self.span[:0] if self.cost else self.span

    @cached_property
    def metric_inverse(self) -> Floats:
        """The inverse of the metric of costed steps, shape (d, d): 0 for columns that change by flips alone.

        A row may take a step along the columns and another one along the directions, of any split of the way between
        the two at the least cost: the inverses of their metrics add up.
        """
        own = np.diag(self.reach)
        if not self.cost or not len(self.span):
            return own
        basis = basis_of(np.where(self.reach > 0, self.span, 0.0))
        return np.asarray(own + basis @ basis.T / self.cost)

    @property
    def grid(self) -> tuple[float, ...]:
        """Weights of the regularizer to try: it is a mean over all rows, and only some may have copies."""
        if not self.changed.copied or self.changed.copied < self.changed.many:
            return GRID
        share = float(self.weight[self.changed.has_copies].sum() / self.weight.sum())
        return tuple(float(f"{rho / share:.3g}") for rho in GRID) if share else GRID

    def take(self, rows: Ints) -> Training:
        """Return the rows at the given positions."""
        parts = self.X[rows], self.y[rows], self.weight[rows], self.changed.take(rows)
        return Training(*parts, self.span, self.reach, self.classes, self.cost)

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
            intercept += coef[own].mean(axis=0)
            coef[own] = 0.0
        elif one.name in same:
            alike = own[[level in same[one.name] for level in one.levels]]
            coef[alike] = coef[alike].mean(axis=0) if alike.size == len(same[one.name]) else 0.0
    return replace(member, coef=coef, intercept=intercept)


def set_aside(data: Training, seed: int) -> Bools:
    """Return which rows are set aside, one in ``FOLDS``, shape (n,).

    Drawn for each row by itself and not for each set of values, as folds elsewhere: what is measured on these rows is
    said of all, so that of many equal rows some have to be among them. Which of equal rows does not matter, so the
    draw depends on their values and their number among them: on the order of rows it does not hang.
    """
    keys = hashed(placed(np.column_stack([data.X, data.y, data.weight]), data.weight))
    parts = [keys >> np.uint64(32), keys & np.uint64(2**32 - 1), occurrences(keys)]
    drawn_by = np.column_stack([*parts, np.full(keys.size, seed)]).astype(np.float64)
    return np.asarray(dealt(hashed(drawn_by), FOLDS) == 0)


@dataclass(frozen=True)
class Changing:
    """The upper limit of the share of decisions that change, with what is said of it."""

    most: float
    shown: str
    quantities: tuple[Quantity, ...]


def _changing(member: Member, data: Training, away: Ints, cut: float) -> Iterator[Changing]:
    """Yield the shares of decisions that change under flips, and with copies, on rows that were set aside."""
    many, first = data.changed.many, data.changed.many - data.changed.copied
    decisions, decision = f"decisions at {cut:g}", f"decision for one of them, at {cut:g}"
    if data.classes:
        decisions, decision = "predicted classes", "predicted class for one of them"
    ways: list[tuple[Ints, range, str, str, str]] = []
    if first:
        ways.append((away, range(first), f"of {decisions} change with flips", "flips", "rows"))
    if first < many:
        with_copies = away[data.changed.has_copies[away]]
        that = f"of people with copies get another {decision}"
        ways.append((with_copies, range(first, many), that, "changes with copies", ""))
    sure, alpha = f"with {1 - SURE:.0%} confidence", SURE / len(GRID) / len(ways)
    for judges, variants, that, name, unit in ways:
        share, most = share_that_changes(member, data, judges, variants, cut, alpha)
        number, on = f"{judges.size:,} {unit}".rstrip(), "on" if unit else "of"
        yield Changing(
            most,
            f"at most {most:.4f} {that}, {sure} ({share:.4f} of the {number} used to choose rho, which the model was "
            "not fitted to)",
            (
                Quantity(f"{name} at most", most, f"fraction {that}, {sure}"),
                Quantity(f"{name} measured", share, f"fraction {that}, {on} {number} not used to fit"),
            ),
        )


def share_that_changes(
    member: Member, data: Training, rows: Ints, variants: range, cut: float, alpha: float
) -> tuple[float, float]:
    """Return the share of rows whose decision is not that of all their variants, by weight, and its upper limit."""
    parts = (data.X[rows], *(data.changed.variant(k, rows) for k in variants))
    each, w = np.stack([decided(member, X, cut) for X in parts]), data.weight[rows]
    differs = (each != each[0]).any(axis=0)
    sums = ([(w**power)[where].sum()] for power in (1, 2) for where in (differs, ~differs))
    share = Proportions.weighted(*sums)
    return float(share.value[0]), float(share.limits(2.0 * alpha)[1][0])


def decided(member: Member, X: Floats, cut: float) -> Ints:
    """Return the decision of each row, shape (n,): 0 or 1 at the threshold, or the most probable class."""
    predicted = member.predict(X)
    return (predicted >= cut).astype(np.int64) if predicted.ndim == 1 else predicted.argmax(axis=1)


def _copied(copies: Counterfactuals, table: Table, features: Features) -> tuple[Ints, Floats]:
    """Return the rows of copies of people in a table, shape (c,), and the copies as a matrix, shape (c, d)."""
    rows, changed = copies.of(table)
    if copies.columns.isdisjoint(one.name for one in features.columns):
        raise UsageError(
            f"copies in {copies.source} differ in {', '.join(sorted(copies.columns))}, which the model does not "
            "use; leave the file out of `similar`, or set `group=used`"
        )
    if not rows.size:
        raise DataError(
            f"none of the people with copies in {copies.source} is among the {len(table):,} training rows; add "
            "copies of more people"
        )
    return rows, features.matrix(changed)


def _said_of_copies(copies: Counterfactuals, changed: FlippedRows, rho: float | str) -> Iterator[Note]:
    """Yield what is fitted to, and what is left out."""
    many = sum(int((kind >= 0).sum()) for _, _, kind in changed.flips[-changed.copied :])
    people = int(changed.has_copies.sum())
    fitted = f"the fit uses {many:,} copies, of {people:,} people, from {len(copies.people):,} copies in all"
    if rho == math.inf:
        fitted += "; the score is constant under these, and may change with the copies of others"
    yield Note(fitted, "copies")
    yield from left_out(copies)
