r"""Fair robust log loss: probabilities of least log loss against the worst labels the data allow, with equal rates.

.. math::
    \min_{P \in \Gamma}\; \max_{Q \in \Xi}\; E_X \Big[-\sum_y Q(y \mid X) \log P(y \mid X)\Big]
    \;=\; \min_\theta \max_{\sum_k \lambda_k = 0}\; \frac1n \sum_i [\phi(z_i, c_i) - z_i y_i]
    + \tfrac C2 |\theta|^2 - \tfrac\epsilon2 \sum_k |\lambda_k| ,

with ``z = x' theta`` and ``c = lambda_k / p_k`` in cell ``k``. ``Gamma`` holds the rules whose expected rates differ
by at most ``epsilon`` within an event, ``Xi`` the label distributions that match the data's moments ``E[x y]``. The
rule is a logistic score ``s = sigmoid(z)``, capped in groups that are ahead and lifted in those behind:

.. math::
    P = \begin{cases} \min(s,\, 1/c) & c > 1 \\ \max(s,\, 1 + 1/c) & c < -1 \\ s & \text{else.} \end{cases}

==========================  ========================  =======================================
``constraint``              event                     what is equal in expectation
==========================  ========================  =======================================
``demographic_parity``      everybody                 selection rate
``equal_opportunity``       label 1                   true positive rate
``equalized_odds``          label 1, and label 0      true and false positive rate
==========================  ========================  =======================================

The derivation, the slack, more than two groups, the solver and its certificate are in
:mod:`fairfix.optim.robust_log_loss`.

The last two constraints make ``P`` hang on the label, which a new row does not have. As in the paper (eqs. 14 to 16) it
is averaged over the adversary's own chance of the label: *the constraint holds given the label, on the rows of the fit;
after averaging it need not.* Both gaps are in the notes. ``P`` is the chance of a drawn decision, for which the
constraint holds in expectation; rounded at the threshold it is another rule, with another error and another gap.

===================  ========================  =======================================
``constraint``              event                     what is equal in expectation
==========================  ========================  =======================================
``demographic_parity``      everybody                 selection rate
``equal_opportunity``       label 1                   true positive rate
``equalized_odds``          label 1, and label 0      true and false positive rate
==========================  ========================  =======================================

The derivation, the slack, more than two groups, the solver and its certificate are in
:mod:`fairfix.optim.robust_log_loss`.

**Unknown labels.** The last two constraints make ``P`` hang on the label, which a new row does not have. As in the
paper (eqs. 14 to 16) it is averaged over the adversary's own chance of the label. *The constraint holds given the
label, on the rows of the fit; after averaging it need not.* Both gaps are in the notes.

**Two readings.** ``P`` is the chance of a drawn decision, for which the constraint holds in expectation. Rounded at the
threshold it is another rule, with another error and another gap. The paper's tables pair the error of rounded decisions
with the gap of the probabilities; here each reading has its own table.

===================  ==============  ===============================================
paper                here            meaning
===================  ==============  ===============================================
``P(y hat|x,a,y)``   ``p_positive``  probability of a positive decision
``theta``            coefficients    of the linear score
``lambda``           prices          of the cells: ``+lambda, -lambda`` for two groups
``p_{gamma_k}``      shares          of all rows that lie in a cell
``C``                ``l2``          half of it weighs the squared coefficients
===================  ==============  ===============================================

References
----------
A. Rezaei, R. Fathony, O. Memarrast and B. Ziebart, *Fairness for robust log loss classification*, AAAI 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from fairfix.auditing.criteria import CRITERIA, events_of, metric_of
from fairfix.data.counts import Floats, Ints
from fairfix.data.reading import Reading
from fairfix.data.table import Groups, Table
from fairfix.errors import DataError
from fairfix.methods.base import Repairer, RepairProblem, param
from fairfix.methods.learned import FOLDS, Design, design_of, label_of
from fairfix.models.members import LinearMember
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.scorers import Scorer, TruncatedLogit, Unrepaired
from fairfix.models.trace import Caution, Certificate, FitTrace, Quantity
from fairfix.noisy.description import Noise
from fairfix.optim.robust_log_loss import Cells, Solution, marginal, solve, truncated

DEFAULT = 1e-3
"""Penalty where none is given or chosen."""

GRID = tuple(10.0**power for power in np.arange(-1.0, -6.5, -0.5))
"""Penalties that cross validation tries, from the largest on."""

EVENTS = {name: events_of(name)[::-1] for name in CRITERIA}
"""Labels of the events of a constraint, in the order of the multipliers; None: everybody."""

COMPARISONS = {name: f"{metric_of(name)}.difference.between_groups" for name in CRITERIA}


@dataclass(frozen=True)
class LogLoss(Repairer):
    """Fair probabilities of least robust log loss; see the module's docstring."""

    name: ClassVar[str] = "logloss"
    summary: ClassVar[str] = (
        "fair probabilities: a logistic model of least robust log loss with equal selection rates, true positive rates "
        "or odds"
    )
    criterion: ClassVar[str] = "selection_rate.difference.between_groups"
    learns: ClassVar[bool] = True

    constraint: str = param("demographic_parity", "what is made alike in expectation", choices=tuple(EVENTS))
    l2: float | str = param(
        DEFAULT,
        "half of it weighs the squared coefficients of the linear score, beside the mean loss; cv: the one of least "
        "log loss in cross validation",
        words=("cv",),
        above=0.0,
        at_most=1e6,
        selectable=True,
    )
    intercept: str = param(
        "free",
        "whether the intercept is penalised too, as in the authors' code",
        choices=("free", "penalised"),
    )
    decisions: str = param(
        "randomized",
        "decisions drawn with the probability, for which the slack holds, or the probability rounded at the threshold, "
        "for which it need not",
        choices=("randomized", "deterministic"),
    )

    @property
    def uses_labels(self) -> bool:
        """Whether the fit uses labels: always."""
        return True

    def bounds_of(self, reading: Reading) -> str:
        """Return the identifier of the audit comparison that ``slack`` bounds."""
        return COMPARISONS[self.constraint]

    def quality(self, table: Table, predicted: Floats, threshold: float) -> float:
        """Return what selection makes large: minus the log loss."""
        return -_log_loss(predicted, table.rows.label, table.rows.weight)

    @classmethod
    def contenders(cls, reading: Reading, noise: Noise | None = None) -> Iterator[tuple[str, Repairer]]:
        """Yield each constraint, and the rounded reading of the first."""
        yield cls.name, cls()
        yield f"{cls.name}, rounded", cls(decisions="deterministic")
        yield f"{cls.name}, equal opportunity", cls(constraint="equal_opportunity")
        yield f"{cls.name}, equalized odds", cls(constraint="equalized_odds")

    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Find the saddle point."""
        groups, y, weight = problem.cells, label_of(problem), problem.table.rows.weight
        self._check_events(groups, y, weight)
        design = design_of(problem, "linear")
        l2, tried = self._penalty(problem, design, y)
        best = self._solve(design.matrix, y, groups, weight, l2)
        base = self._solve(design.matrix, y, groups, weight, l2, slack=math.inf)
        rule = TruncatedLogit(
            groups.columns,
            groups.levels,
            _scorer(design, best),
            self._prices(best, len(groups.levels)),
            self.decisions == "deterministic",
        )
        notes = (
            *tried,
            *self._notes(rule, best, problem, [_scores(design.matrix, end) for end in (best, base)]),
        )
        proven = Certificate(
            "log loss against the fair adversary plus the penalty"
            + (" (of the probabilities before they are rounded)" if rule.rounded else ""),
            best.objective,
            best.objective - best.gap,
            f"linear scores whose probabilities hold the slack in {COMPARISONS[self.constraint]}"
            + ("" if self.constraint == "demographic_parity" else ", given the true labels"),
        )
        trace = FitTrace(
            best.converged,
            best.steps,
            best.objective,
            best.gap,
            notes,
            base=Unrepaired(_scorer(design, base)),
            certificates=(proven,),
            quantities=tuple(self._quantities(best, l2, groups)),
        )
        if rule.rounded:
            trace = replace(trace, randomized=replace(rule, rounded=False, trace=trace))
        return replace(rule, trace=trace)

    def _solve(
        self,
        X: Floats,
        y: Floats,
        groups: Groups,
        weight: Floats | None,
        l2: float,
        *,
        slack: float | None = None,
        rows: Ints | None = None,
        start: Solution | None = None,
    ) -> Solution:
        """Return the saddle point on some rows."""
        codes, many = groups.codes, len(groups.levels)
        if rows is not None:
            X, y, codes = X[rows], y[rows], codes[rows]
            weight = None if weight is None else weight[rows]
        cell, events = np.full(y.size, -1, dtype=np.int64), []
        for number, label in enumerate(EVENTS[self.constraint]):
            inside = np.ones(y.size, dtype=bool) if label is None else y == label
            cell[inside] = codes[inside] + number * many
            events += [number] * many
        return solve(
            X,
            y,
            Cells(cell, np.array(events)),
            weight,
            slack=self.slack if slack is None else slack,
            l2=l2,
            penalize_intercept=self.intercept == "penalised",
            start=start,
        )

    def _quantities(self, best: Solution, l2: float, groups: Groups) -> Iterator[Quantity]:
        """Yield the penalty and the multipliers."""
        yield Quantity("l2", l2, "half of it weighs the squared coefficients in the penalty")
        for number, label in enumerate(EVENTS[self.constraint]):
            where = "" if label is None else f" among rows with label {label:g}"
            own = best.prices[number * len(groups.levels) :]
            for name, price in zip(groups.names, own, strict=False):
                yield Quantity("multiplier", price, f"price of the group's rate{where}", name)

    def _prices(self, best: Solution, many: int) -> Floats:
        """Return ``c`` by label and group, shape (2, K)."""
        c = (best.prices / best.shares).reshape(-1, many)
        if self.constraint == "demographic_parity":
            return np.repeat(c, 2, axis=0)
        if self.constraint == "equal_opportunity":
            return np.concatenate([np.zeros((1, many)), c])
        return c

    def _masses(self, codes: Ints, y: Floats, weight: Floats | None, many: int) -> Floats:
        """Return the mass of each group in each event of the constraint, shape (E, K)."""
        w = np.ones(y.size) if weight is None else weight
        inside = [np.ones(y.size) if label is None else y == label for label in EVENTS[self.constraint]]
        return np.stack([np.bincount(codes, w * one, many) for one in inside])

    def _check_events(self, groups: Groups, y: Floats, weight: Floats | None) -> None:
        """Raise where a group has no rows in an event."""
        masses = self._masses(groups.codes, y, weight, len(groups.levels))
        for label, mass in zip(EVENTS[self.constraint], masses, strict=True):
            if not mass.all():
                name = groups.names[int(np.argmin(mass))]
                raise DataError(
                    f"group {name!r} of {' x '.join(groups.columns)!r} has no rows with label {label} to fit on, which "
                    f"{self.constraint} needs; leave the group out, fold it into another, or take demographic_parity"
                )

    def _penalty(self, problem: RepairProblem, design: Design, y: Floats) -> tuple[float, tuple[str, ...]]:
        """Return the penalty, and a note where cross validation chose it."""
        if self.l2 != "cv":
            return float(self.l2), ()
        best, at, worse = math.inf, DEFAULT, 0
        starts: dict[int, Solution] = {}
        for l2 in GRID:
            loss = self._held_out(problem, design, y, l2, starts)
            if loss < best:
                best, at, worse = loss, l2, 0
            else:
                worse += 1
                if worse == 2:
                    break
        if math.isinf(best):
            note = (
                f"cross validation chose no l2, so it is {at:g}: without a fold of {FOLDS} some group lacks the rows "
                f"that {self.constraint} needs, or a log loss is infinite"
            )
            return at, (note,)
        return at, (f"l2 {at:.3g} has the least log loss in {FOLDS}-fold cross validation",)

    def _held_out(
        self, problem: RepairProblem, design: Design, y: Floats, l2: float, starts: dict[int, Solution]
    ) -> float:
        """Return the log loss of rows out of their fold; folds without which a cell is empty are left out."""
        groups, weight = problem.cells, problem.table.rows.weight
        total, mass = 0.0, 0.0
        for fold in range(FOLDS):
            held, rows = np.flatnonzero(design.folds == fold), np.flatnonzero(design.folds != fold)
            if not held.size or not self._masses(groups.codes[rows], y[rows], None, len(groups.levels)).all():
                continue
            best = self._solve(design.matrix, y, groups, weight, l2, rows=rows, start=starts.get(fold))
            starts[fold] = best
            score = _scores(design.matrix[held], best)
            zero, one = self._prices(best, len(groups.levels))[:, groups.codes[held]]
            parity = self.constraint == "demographic_parity"
            chance = truncated(score, one) if parity else marginal(score, zero, one)[0]
            w = np.ones(held.size) if weight is None else weight[held]
            total += _log_loss(chance, y[held], w) * float(w.sum())
            mass += float(w.sum())
        return total / mass if mass > 0 else math.inf

    def _notes(
        self, rule: TruncatedLogit, best: Solution, problem: RepairProblem, scores: Sequence[Floats]
    ) -> Iterator[str]:
        """Yield both gaps of a constraint given the label, and what the threshold does: nothing, or too much."""
        chance, plain = rule.of_scores(problem.table, scores[0]), scores[1]
        if self.constraint != "demographic_parity":
            yield self._both_gaps(best, problem, chance)
        cut = problem.table.reading.cut
        if rule.rounded:
            yield from _alike(problem.cells, chance, plain, cut)
        elif cut != 0.5:
            yield Caution(
                f"decisions are drawn with the probability, and the threshold of {cut:g} has no part in them: it is of "
                "the base alone. With --decisions deterministic the probability is rounded at it"
            )

    def _both_gaps(self, best: Solution, problem: RepairProblem, chance: Floats) -> str:
        """Return the largest difference of rates given the labels, and of the rule's own, on the rows of the fit."""
        groups, y = problem.cells, label_of(problem)
        many, w = len(groups.levels), problem.weight
        given = max(float(np.ptp(part)) for part in best.rates.reshape(-1, many))
        masses = [self._masses(groups.codes, y, one, many) for one in (w, w * chance)]
        after = float(np.ptp(masses[1] / masses[0], axis=1).max())
        return (
            f"on the rows of the fit, {COMPARISONS[self.constraint]} is {given:.4f} given the true labels, and "
            f"{after:.4f} for the rule as it is used, which does not know them"
        )


def _alike(groups: Groups, chance: Floats, plain: Floats, cut: float) -> Iterator[str]:
    """Yield a caution on groups whose rows all get one rounded decision, as they would not from the plain model."""
    for decision in (1, 0):
        caught = [
            name
            for k, name in enumerate(groups.names)
            if bool(((chance >= cut) == decision)[groups.codes == k].all())
            and not bool(((plain >= cut) == decision)[groups.codes == k].all())
        ]
        if caught:
            yield Caution(
                f"rounded at {cut:g}, every row of the fit in {', '.join(map(repr, caught))} gets decision {decision}, "
                "unlike from the plain model: the probabilities there no longer straddle the threshold; draw the "
                "decisions, or take --method ramp"
            )


def _scores(X: Floats, best: Solution) -> Floats:
    """Return the logistic score of each row."""
    return np.asarray(expit(X @ best.coef + best.intercept))


def _scorer(design: Design, best: Solution) -> Scorer:
    """Return the logistic score of a solution."""
    return Scorer(design.features, LinearMember(best.coef[:, None], np.array([best.intercept]), "sigmoid"))


def _log_loss(chance: Floats, label: Any, weight: Floats | None) -> float:
    """Return the mean log loss of probabilities."""
    with np.errstate(divide="ignore"):
        loss = -np.log(np.where(label == 1, chance, 1.0 - chance))
    return float(np.average(loss, weights=weight))
