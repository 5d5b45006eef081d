r"""Fair robust log loss: probabilities of least log loss against the worst labels the data allow, with equal rates.

.. math::
    \min_{P \in \Gamma}\; \max_{Q \in \Xi}\; E_X \Big[-\sum_y Q(y \mid X) \log P(y \mid X)\Big]
    \;=\; \min_\theta \max_{\sum_k \lambda_k = 0}\; \frac1n \sum_i [\phi(z_i, c_i) - z_i y_i]
    + \tfrac C2 |\theta|^2 - \tfrac\epsilon2 \sum_k |\lambda_k| ,

with ``z = x' theta`` and ``c = lambda_k / p_k`` in cell ``k``. ``Gamma`` holds the rules whose expected rates differ
by at most ``epsilon`` within an event of the constraint (all rows, or the rows of a label), ``Xi`` the label
distributions that match the data's moments ``E[x y]``. The rule is a logistic score ``s = sigmoid(z)``, capped in
groups that are ahead and lifted in those behind:

.. math::
    P = \begin{cases} \min(s,\, 1/c) & c > 1 \\ \max(s,\, 1 + 1/c) & c < -1 \\ s & \text{else.} \end{cases}

What a row does not tell is estimated: a multinomial logistic regression on the same features gives chances ``q_k(x)``
of the cells, and the rule goes by ``c(x) = sum_k lambda_k q_k(x) / p_k``. That is the label, where the constraint is
about labels, and the group as well with ``group=unused``. Prices are those at which the *recorded* rates of this very
rule meet the slack on the training rows. With ``holds=given-label`` constraints about labels are those of the paper
(eqs. 14 to 16): ``P`` depends on the label, which a new row does not have, and is averaged over the adversary's own
chance of it: *the constraint holds given the label; after averaging it need not*, and both gaps are in the notes.

``P`` is the chance of a drawn decision, for which the constraint holds in expectation; rounded at the threshold it is
another rule, with another error and another gap.

The solver and its certificate are in :mod:`fairfix.solvers.robust_log_loss`; docs/logloss.md has the paper's symbols.

References
----------
A. Rezaei, R. Fathony, O. Memarrast and B. Ziebart, *Fairness for robust log loss classification*, AAAI 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.criteria import CRITERIA, between_groups, events_of
from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.domain import domain, parameter
from fairfix.data.names import attribute_name
from fairfix.data.once import once_per_object
from fairfix.data.spec import Form
from fairfix.data.table import Groups, Table
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Use, group_param
from fairfix.methods.cells import within_strata
from fairfix.methods.constraint import Grammar
from fairfix.methods.learned import FOLDS, L2, MOST_L2, Learning, label_of, learner_param
from fairfix.methods.problem import RepairProblem
from fairfix.methods.spline_basis import BASES, Expanded, expanded
from fairfix.models.estimators import Learner
from fairfix.models.learners import fit_classes
from fairfix.models.members import LinearMember, Member
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import EstimatedLogit, Scorer, TruncatedLogit, Unrepaired
from fairfix.models.trace import Caution, Certificate, FitTrace, Note, Quantity
from fairfix.solvers.robust_log_loss import (
    ConstraintGroups,
    SaddlePoint,
    marginal,
    solve,
    solve_prices,
    truncated,
)

GRID = tuple(10.0**power for power in np.arange(-1.0, -6.5, -0.5))
"""Penalties that cross validation tries, from the largest on."""

EVENTS = {name: events_of(name)[::-1] for name in CRITERIA}
"""Labels of the events of a constraint, in the order of the multipliers; None: all rows."""

LINEAR: Mapping[str, Form] = {
    "linear": Form(
        "logistic regression",
        {
            "l2": domain(
                L2,
                "half of it is the weight of the squared coefficients, relative to the mean loss; cv: the value with "
                "the least log loss in cross validation",
                words=("cv",),
                above=0.0,
                at_most=MOST_L2,
            ),
            "basis": domain(
                "plain",
                "inputs in which the score is linear: the features (plain), also cubic splines of numeric ones, or "
                "also the log-odds of boosted trees",
                choices=tuple(BASES),
            ),
            "intercept": domain(
                "free",
                "whether the penalty includes the intercept, as in the authors' code",
                choices=("free", "penalised"),
            ),
        },
    )
}
"""The learner with its keys."""


@dataclass(frozen=True)
class LogLoss(Learning):
    """Fair probabilities of least robust log loss; see the module's docstring."""

    name: ClassVar[str] = "logloss"
    summary: ClassVar[str] = (
        "fair probabilities: a logistic model that minimizes a robust log loss with equal selection rates, true "
        "or false positive rates, or odds"
    )
    criterion: ClassVar[str] = "selection_rate.difference.between_groups"
    uses: ClassVar[tuple[Use, ...]] = ("features", "strata")
    _rivals: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "": {},
        "rounded": {"decisions": "deterministic"},
        "without the group": {"group": "unused"},
        "equal opportunity": {"constraint": "equal_opportunity"},
        "equalized odds": {"constraint": "equalized_odds"},
    }
    grammar: ClassVar = Grammar({between_groups(name): name for name in CRITERIA})

    constraint: str = parameter(
        CRITERIA[0], f"constraint to meet: {', '.join(CRITERIA)}, or tpr.difference<=0.02"
    )
    group: str = group_param("used", "unused")
    holds: str = parameter(
        "as-used",
        "rule for which a constraint about labels holds. as-used: the rule in use, which does not know the label; "
        "given-label: as in the paper, a rule that is given the label and then averaged over it",
        choices=("as-used", "given-label"),
    )
    learner: Learner = learner_param(LINEAR)
    decisions: str = parameter(
        "randomized",
        "randomized: a decision is positive with the fair probability, and the slack holds; deterministic: it is "
        "positive if the probability reaches the threshold, and the slack may not hold",
        choices=("randomized", "deterministic"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.holds == "given-label" and not self.about_labels:
            raise UsageError(
                f"{self.name}: `holds=given-label` applies to constraints about labels, and {self.goal} is "
                "not one; leave it out, or choose another `constraint`"
            )
        if self.holds == "given-label" and self.group == "unused":
            raise UsageError(
                f"{self.name}: `holds=given-label` needs `group=used`; a rule without the group always meets its "
                "constraint as used"
            )

    @property
    def penalty(self) -> float | str:
        """The weight of squared coefficients, or cv."""
        return self.setting("l2")  # type: ignore[no-any-return]  # by its rule

    @property
    def basis(self) -> str:
        """The inputs in which the score is linear."""
        return str(self.setting("basis"))

    @property
    def about_labels(self) -> bool:
        """Whether the constraint is about rows of a label."""
        return EVENTS[self.goal] != (None,)

    @property
    def estimates(self) -> bool:
        """Whether the rule goes by chances of what a row does not tell."""
        return self.group == "unused" or (self.about_labels and self.holds == "as-used")

    @property
    def uses_labels(self) -> bool:
        """Whether the fit uses labels: always."""
        return True

    @property
    def needs_rows(self) -> str:
        """Why counts do not do for rows: cross validation divides them, and a model of the group learns from each."""
        if self.basis != "plain":
            return f"its basis {self.basis} is built from feature columns, and counts have none; leave out `learner`"
        if self.group == "unused":
            return "without the group it must learn the group from individual rows; use `group=used`"
        return "" if self.penalty != "cv" else "`learner=linear(l2=cv)` splits rows into folds; give a number"

    def validation_score(self, table: Table, predicted: Floats) -> float:
        """Return what selection makes large: minus the log loss."""
        return -_log_loss(predicted, table.rows.label, table.weight)

    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Find the saddle point."""
        game = (ProxyLogLossFit if self.estimates else LogLossFit)(self, problem, label_of(problem))
        game.check_events()
        l2, tried = game.penalty()
        base = _unconstrained(problem, self.goal, self.basis, self.setting("intercept"), l2)
        best = game.solve(l2, self.slack, start=base if self.estimates else None)
        if game.design.differs and self.slack < 1.0:
            best = game.settled(best)
        rounded = self.decisions == "deterministic"
        rule = game.rule(best, rounded)
        trace = FitTrace(
            best.converged,
            best.steps,
            best.objective,
            best.gap,
            (*tried, *game.notes(rule, best, base)),
            base=Unrepaired(game.scorer(base)),
            certificates=tuple(self._certificates(game, best)),
            quantities=tuple(self._quantities(best, l2, game.groups)),
        )
        if self.group == "unused" and not problem.many_fits:
            learner = f"linear(l2={l2!r},basis={self.basis},intercept={self.setting('intercept')})"
            seeing = replace(self, group="used", learner=learner)
            aware = seeing._fit(replace(problem, protected_as_feature=True), rng)
            trace = replace(trace, aware=aware)
        if rounded:
            trace = replace(trace, randomized=replace(rule, rounded=False, trace=trace))
        return replace(rule, trace=trace)

    def _certificates(self, game: LogLossFit, best: SaddlePoint) -> Iterator[Certificate]:
        """Yield what is proven of a solution; nothing where records and chances did not come together.

        Where the rule sees other sums of trees than its coefficients were learned from, that is about its prices.
        """
        if (best.converged or not self.estimates) and not (game.design.differs and self.slack >= 1.0):
            given, scores = game.design.differs, BASES[self.basis]
            yield Certificate(
                f"log loss against the fair adversary{'' if given else ' plus the penalty'}"
                f"{' (of the probabilities before they are rounded)' * (self.decisions == 'deterministic')}",
                best.objective,
                best.objective - best.gap,
                f"{'probabilities with these scores that' if given else f'{scores} whose probabilities'} meet the "
                f"slack in the {game.gap}{game.conditioning}",
            )

    def _quantities(self, best: SaddlePoint, l2: float, groups: Groups) -> Iterator[Quantity]:
        """Yield the penalty and the multipliers."""
        yield Quantity("l2", l2, "half of it is the weight of the squared coefficients in the penalty")
        own = best.prices.reshape(-1, len(groups.levels))
        for label, prices in zip(EVENTS[self.goal], own, strict=True):
            where = "" if label is None else f" among rows with label {label:g}"
            for name, price in zip(groups.names, prices, strict=True):
                yield Quantity("multiplier", price, f"dual value of the group's rate{where}", name)


@dataclass(frozen=True, eq=False)
class LogLossFit:
    """The rows of a problem as the cells of a constraint, and what is solved of them."""

    method: LogLoss
    problem: RepairProblem
    y: Floats

    @cached_property
    def design(self) -> Expanded:
        """Features, as the score is linear in them."""
        return expanded(self.problem, self.method.basis)

    @cached_property
    def inside(self) -> list[Bools]:
        """Rows of each event of the constraint."""
        events = EVENTS[self.method.goal]
        return [np.full(self.y.size, True) if label is None else self.y == label for label in events]

    @property
    def groups(self) -> Groups:
        """The groups inside each stratum; those of the problem where there are no strata."""
        return within_strata(self.problem)[0]

    @cached_property
    def events(self) -> Ints:
        """The event of each group in each event of the constraint, strata apart, one after the other, shape (E K,)."""
        stratum = within_strata(self.problem)[1]
        many = int(stratum.max()) + 1
        return np.concatenate([stratum + many * number for number in range(len(self.inside))])

    @property
    def gap(self) -> str:
        """Words for the gap that the slack bounds."""
        of = Comparison.parse(between_groups(self.method.goal))
        return (of if self.problem.strata is None else of.to("within_strata")).title

    def gap_of(self, rates: Floats) -> float:
        """Return the largest difference of rates, (E K,), inside an event."""
        return max(float(np.ptp(rates[self.events == event])) for event in range(self.events.max() + 1))

    @property
    def conditioning(self) -> str:
        """Words for how it is known of a row which rates it is part of."""
        return ", given the true labels" if self.method.about_labels else ""

    @cached_property
    def cells(self) -> ConstraintGroups:
        """The group in the event of each row, events one after the other."""
        codes, many = self.groups.codes, len(self.groups.levels)
        cell = np.full(self.y.size, -1, dtype=np.int64)
        for number, inside in enumerate(self.inside):
            cell[inside] = codes[inside] + number * many
        return ConstraintGroups(cell, self.events)

    def solve(
        self, l2: float, slack: float, rows: Ints | slice = slice(None), start: SaddlePoint | None = None
    ) -> SaddlePoint:
        """Return the saddle point on some rows."""
        penalised, cell_chances = self.method.setting("intercept") == "penalised", None
        if slack < 1.0:  # rates differ by no more than 1
            cell_chances = self.cell_chances(self.design.matrix, rows)
        if cell_chances is not None and start is None:
            start = self.solve(l2, math.inf, rows)
        settings: dict[str, Any] = {"slack": slack, "l2": l2, "penalize_intercept": penalised, "start": start}
        return solve(*self._rows(rows), cell_chances=cell_chances, **settings)

    def settled(self, best: SaddlePoint) -> SaddlePoint:
        """Return a solution with prices by what the finished rule sees of the rows, its coefficients as they are."""
        z = self.design.shipped @ best.coef + best.intercept
        _, y, cells, weight = self._rows(slice(None))
        cell_chances = self.cell_chances(self.design.shipped, slice(None))
        priced = solve_prices(
            z, y, cells, weight, cell_chances=cell_chances, slack=self.method.slack, start=best.prices
        )
        return replace(
            priced,
            coef=best.coef,
            intercept=best.intercept,
            steps=best.steps + priced.steps,
            converged=best.converged and priced.converged,
        )

    def cell_chances(self, X: Floats, rows: Ints | slice) -> Floats | None:
        """Return the chances of the cells by what is seen of all rows, (n, m); None where the rule sees the cells."""
        return None

    def _rows(self, rows: Ints | slice) -> tuple[Floats, Floats, ConstraintGroups, Floats]:
        """Return features, labels, cells and weights of some rows."""
        cells = ConstraintGroups(self.cells.codes[rows], self.cells.events)
        return self.design.matrix[rows], self.y[rows], cells, self.problem.weight[rows]

    def score(self, best: SaddlePoint, rows: Ints | slice = slice(None)) -> Floats:
        """Return the logistic score of some rows."""
        return np.asarray(expit(self.design.matrix[rows] @ best.coef + best.intercept))

    def scorer(self, best: SaddlePoint) -> Scorer:
        """Return the logistic score of a solution."""
        member = LinearMember(best.coef[:, None], np.array([best.intercept]), "sigmoid")
        return Scorer(self.design.features, self.design.member(member))

    def rule(self, best: SaddlePoint, rounded: bool) -> TruncatedLogit:
        """Return the rule of a solution."""
        groups = self.groups
        return TruncatedLogit(groups.columns, groups.levels, self.scorer(best), self.prices(best), rounded)

    def chance(self, best: SaddlePoint, held: Ints, rest: Ints) -> Floats:
        """Return the probabilities of held-out rows by a solution on the rest."""
        score = self.score(best, held)
        zero, one = self.prices(best)[:, self.groups.codes[held]]
        return marginal(score, zero, one)[0] if self.method.about_labels else truncated(score, one)

    def prices(self, best: SaddlePoint) -> Floats:
        """Return ``c`` by label and group, shape (2, K)."""
        c = np.zeros((2, len(self.groups.levels)))
        own = (best.prices / best.shares).reshape(-1, c.shape[1])
        for label, price in zip(EVENTS[self.method.goal], own, strict=True):
            c[slice(None) if label is None else label] = price
        return c

    def masses(self, weight: Floats) -> Floats:
        """Return the sums of weights, shape (n,), over each group in each event of the constraint, shape (E, K)."""
        groups = self.groups
        return np.stack([np.bincount(groups.codes, weight * one, len(groups.levels)) for one in self.inside])

    def check_events(self) -> None:
        """Raise where a group has no rows in an event."""
        groups, constraint = self.groups, self.method.goal
        for label, mass in zip(EVENTS[constraint], self.masses(self.problem.weight), strict=True):
            if not mass.all():
                name = groups.names[int(np.argmin(mass))]
                raise DataError(
                    f"group {name!r} of {attribute_name(groups.columns)!r} has no rows with label {label} to fit on, "
                    f"which {constraint} needs; leave the group out, merge it into another, or use demographic_parity"
                )

    def penalty(self) -> tuple[float, tuple[Note, ...]]:
        """Return the penalty, and a note where cross validation chose it."""
        if self.method.penalty != "cv":
            return float(self.method.penalty), ()
        best, at, worse = math.inf, L2, 0
        starts: dict[int, SaddlePoint] = {}
        for l2 in GRID:
            loss = self.held_out(l2, starts)
            if loss < best:
                best, at, worse = loss, l2, 0
            else:
                worse += 1
                if worse == 2:
                    break
        if math.isinf(best):
            note = (
                f"cross validation could not choose l2, so it is {at:g}: without one of the {FOLDS} folds, some "
                f"group lacks the rows that {self.method.goal} needs, or a log loss is infinite"
            )
            return at, (Note(note, "chosen"),)
        note = f"l2 {at:.3g} has the least log loss in {FOLDS}-fold cross validation"
        return at, (Note(note, "chosen"),)

    def held_out(self, l2: float, starts: dict[int, SaddlePoint]) -> float:
        """Return the log loss of rows out of their fold; folds without which a cell is empty are left out."""
        weight, losses, masses = self.problem.weight, [], []
        for fold in range(FOLDS):
            out = self.design.folds == fold
            if not out.any() or not self.masses((~out).astype(np.float64)).all():
                continue
            held, rest = np.flatnonzero(out), np.flatnonzero(~out)
            best = self.solve(l2, self.method.slack, rest, starts.get(fold))
            starts[fold] = best
            losses.append(_log_loss(self.chance(best, held, rest), self.y[held], weight[held]))
            masses.append(float(weight[held].sum()))
        return float(np.average(losses, weights=masses)) if sum(masses) > 0 else math.inf

    def notes(self, rule: TruncatedLogit, best: SaddlePoint, base: SaddlePoint) -> Iterator[Note]:
        """Yield both gaps of a constraint given the label, and what the threshold does: nothing, or too much."""
        table = self.problem.table
        cut, w = table.data_spec.cut, table.weight
        if self.method.about_labels and not self.method.estimates:
            after = self.gap_of((self.masses(w * rule.predict(table)) / self.masses(w)).ravel())
            yield Note(
                f"on the training rows, the {self.gap} is {self.gap_of(best.rates):.4f} given the true labels, and "
                f"{after:.4f} for the rule in use, which does not know them",
                "reached",
            )
        if rule.rounded:
            yield from _alike(self.groups, rule.predict(table), self.scorer(base)(table), cut)
        elif cut != 0.5:
            yield Caution(
                f"decisions are randomized with the probability and ignore the threshold of {cut:g}, which applies to "
                "the original model alone. With `decisions=deterministic`, the probability is rounded at it",
                "threshold",
            )


@once_per_object
def _unconstrained(problem: RepairProblem, goal: str, basis: str, intercept: str, l2: float) -> SaddlePoint:
    """Return the solution where rates may differ by anything, with which the fit for every slack begins."""
    method = LogLoss(constraint=goal, learner=f"linear(basis={basis},intercept={intercept})")
    return LogLossFit(method, problem, label_of(problem)).solve(l2, math.inf)


@once_per_object
def _classes(problem: RepairProblem, about_labels: bool) -> tuple[Ints, Ints]:
    """Return the class of each row, shape (n,), and of each class with rows its group + K label, shape (C,)."""
    groups, _ = within_strata(problem)
    code = groups.codes
    if about_labels:
        code = code + len(groups.levels) * label_of(problem).astype(np.int64)
    there = np.unique(code[problem.weight > 0])
    return np.minimum(np.searchsorted(there, code), there.size - 1), there


@once_per_object
def _class_model(problem: RepairProblem, about_labels: bool, basis: str, numbers: bytes | None) -> Member:
    """Return the model of the classes fitted to some rows, their numbers as bytes, or to all: that of every slack."""
    rows = slice(None) if numbers is None else np.frombuffer(numbers, dtype=np.intp)
    code, there = _classes(problem, about_labels)
    X, weight = expanded(problem, basis).matrix[rows], problem.weight[rows]
    return fit_classes(X, code[rows], there.size, weight, learner="linear", l2=L2 / 2.0, seed=0)


@dataclass(frozen=True, eq=False)
class ProxyLogLossFit(LogLossFit):
    """The same where a rule goes by chances of what a row does not tell: its label, and perhaps its group.

    A class is a group, or a group and a label where the constraint is about labels; those without rows are left out.
    Groups of different strata are different groups, and a row tells its stratum.
    """

    @property
    def conditioning(self) -> str:
        """Words for how it is known of a row which rates it is part of."""
        what = ["groups"] * (self.method.group == "unused") + ["labels"] * self.method.about_labels
        return f", by the probabilities of {' and '.join(what)}, corrected by the records"

    @cached_property
    def _coded(self) -> tuple[Ints, Ints, Ints]:
        """The class of each row, shape (n,); of each class the group and the cell, -1 for none, shape (C,) each."""
        events, many = EVENTS[self.method.goal], len(self.groups.levels)
        code, there = _classes(self.problem, self.method.about_labels)
        label = (there // many).tolist() if self.method.about_labels else [None] * there.size
        event = np.array([events.index(own) if own in events else -1 for own in label])
        return code, there % many, np.where(event < 0, -1, there % many + many * event)

    def member(self, rows: Ints | slice) -> Member:
        """Return the model of the classes fitted to some rows."""
        numbers = None if isinstance(rows, slice) else rows.tobytes()
        return _class_model(self.problem, self.method.about_labels, self.method.basis, numbers)

    @cached_property
    def _told(self) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], Ints, Ints]:
        """Groups that the rule distinguishes: columns, levels, the level of each row, (n,), and of each class, (C,)."""
        groups, owners = self.groups, self._coded[1]
        if self.method.group == "used":
            return groups.columns, groups.levels, groups.codes, owners
        strata, (_, stratum) = self.problem.strata, within_strata(self.problem)
        if strata is None:
            return (), ((),), np.zeros_like(groups.codes), np.zeros_like(owners)
        return strata.columns, strata.levels, strata.codes, stratum[owners]

    def classes(self, X: Floats, rows: Ints | slice, member: Member) -> Floats:
        """Return the chances of the classes of some rows given all that the rule looks at, shape (n, C).

        ``X``: what is seen of all rows, shape (n, m).
        """
        _, _, codes, owners = self._told
        return of_own_group(member.predict(X[rows]), owners, codes[rows])

    def class_prices(self, best: SaddlePoint) -> Floats:
        """Return ``c`` of each class, shape (C,)."""
        return np.append(best.prices / best.shares, 0.0)[self._coded[2]]

    def cell_chances(self, X: Floats, rows: Ints | slice) -> Floats:
        """Return the chances of the cells of the constraint of some rows, shape (n, E K), by those of the classes."""
        classes, cell = self.classes(X, rows, self.member(rows)), self._coded[2]
        out = np.zeros((len(classes), self.events.size))
        out[:, cell[cell >= 0]] = classes[:, cell >= 0]
        return out

    def rule(self, best: SaddlePoint, rounded: bool) -> TruncatedLogit:
        """Return the rule of a solution."""
        columns, levels, _, owners = self._told
        return EstimatedLogit(
            columns,
            levels,
            self.scorer(best),
            self.class_prices(best),
            rounded,
            classifier=Scorer(self.design.features, self.design.member(self.member(slice(None)))),
            owners=owners,
        )

    def chance(self, best: SaddlePoint, held: Ints, rest: Ints) -> Floats:
        """Return the probabilities of held-out rows by a solution on the rest."""
        price = self.classes(self.design.matrix, held, self.member(rest)) @ self.class_prices(best)
        return truncated(self.score(best, held), price)


def _alike(groups: Groups, chance: Floats, plain: Floats, cut: float) -> Iterator[Caution]:
    """Yield a caution on groups whose rows all get one rounded decision, as they would not from the plain model."""
    for decision in (1, 0):
        ours, theirs = ((one >= cut) == decision for one in (chance, plain))
        caught = [
            name
            for k, name in enumerate(groups.names)
            if ours[groups.codes == k].all() and not theirs[groups.codes == k].all()
        ]
        if caught:
            who = f"every training row in {', '.join(map(repr, caught))} gets"
            if ours.all():
                who = "all rows used for training get"
            yield Caution(
                f"rounded at {cut:g}, {who} decision {decision}, "
                "unlike with the plain model: the probabilities there are all on one side of the threshold; "
                "randomize the decisions, or use `method=ramp`",
                "selection",
            )


def _log_loss(chance: Floats, label: Any, weight: Floats | None) -> float:
    """Return the mean log loss of probabilities."""
    with np.errstate(divide="ignore"):
        loss = -np.log(np.where(label == 1, chance, 1.0 - chance))
    return float(np.average(loss, weights=weight))


def of_own_group(by_class: Floats, owners: Ints, code: Ints) -> Floats:
    """Return the probabilities of classes given that a row is of its own group, shape (n, C): 0 for those of others.

    ``by_class``: probabilities of the classes, shape (n, C). ``owners``: group of each class, shape (C,). ``code``:
    group of each row, shape (n,), or -1, for which all is 0.
    """
    inside = owners == code[:, None]
    kept, total = np.where(inside, by_class, 0.0), np.zeros(len(by_class))
    for column in kept.T:
        total += column
    lost = total == 0.0  # so unlikely of that group that the probabilities are too small for floats
    kept[lost], total[lost] = inside[lost], np.maximum(inside[lost].sum(axis=1), 1)
    return np.asarray(kept / total[:, None])
