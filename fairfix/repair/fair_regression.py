r"""Fair regression: real-valued scores with statistical parity at every threshold, or with bounded loss in every group.

Statistical parity. With a loss ``l``, groups ``a`` and slacks ``epsilon_a``:

.. math::
    \min_u\; E[l(Y, u)] \quad\text{s.t.}\quad
    \sup_z \left|P(u \le z \mid a) - P(u \le z)\right| \le \epsilon_a \text{ for each group } a .

Bounded group loss, with a bound ``zeta_a`` on the loss of each group:

.. math::
    \min_f\; E[l(Y, f(X))] \quad\text{s.t.}\quad E[l(Y, f(X)) \mid a] \le \zeta_a \text{ for each group } a .

The loss is the square ``(Y - u)^2`` or the log loss of a probability; the reduction knows the absolute loss too.

================  ================================  ===================  =====================================
solver            solutions it searches             group at predict     optimum
================  ================================  ===================  =====================================
``closed-form``   all functions of score and group  yes                  exact
``plug-in``       all functions of what is looked   only if a feature    certified gap for the estimated
                  at, through ``E[Y|X]``, ``P(a|X)``                     ``E[Y|X]`` and ``P(a|X)``
``reduction``     mixtures of linear models or      only if a feature    of the paper's Algorithm 1; no gap is
                  trees                                                  claimed for its heuristic oracles
================  ================================  ===================  =====================================

``auto`` takes the closed form where the protected columns are features, else the plug-in. The mathematics is in
:mod:`fairfix.optim.quantiles`, :mod:`~fairfix.optim.plugin`, :mod:`~fairfix.optim.reduction` with
:mod:`~fairfix.optim.oracles`, and :mod:`~fairfix.optim.group_loss`.

**Slack.** It is the paper's: group against everybody. Two groups that differ by ``e`` from each other differ by ``e
(1 - p_a)`` from everybody. On the rows of the fit the distance is measured over all thresholds, ties included, and
never lies above the slack. Where even equal distributions cannot show that on so few rows, a share of the rows gets
everybody's mean; a note says so. On new rows a distance of chance is added, which the report names.

**Scores.** With features, rows are scored by models that have not seen them (:mod:`fairfix.repair.learned`), and the
slack holds for those scores. A score alone is taken as ``E[Y|X]``: it should be calibrated.

=======================  =======================  ==========================================================
paper                    here                     meaning
=======================  =======================  ==========================================================
``f(X)``                 ``prediction``           score
``gamma_{a,z}``          distance at ``z``        ``P(f >= z | a) - P(f >= z)``
``epsilon_a``            ``slack``                allowed distance, ``group_slack`` for single groups
``zeta_a``               ``bound``                allowed loss of a group
``lambda``               multipliers              prices of the constraints
``Q``                    mixture                  distribution over models
``CS``, ``LS``, ``RM``   ``oracle``               cost-sensitive, least-squares, risk (weighted risk minimisation)
=======================  =======================  ==========================================================

References
----------
A. Agarwal, M. Dudik and Z. S. Wu, *Fair regression: quantitative definitions and reduction-based algorithms* (2019);
E. Chzhen, C. Denis, M. Hebiri, L. Oneto and M. Pontil, *Fair regression with Wasserstein barycenters* (2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fairfix.counts import Floats
from fairfix.errors import UsageError
from fairfix.optim.plugin import PluginProblem, expected_loss, fit_plugin
from fairfix.optim.quantiles import Scores, TubeFit, fit_tube
from fairfix.predictors import FitTrace, RepairedPredictor
from fairfix.repair.base import Repairer, RepairProblem, param
from fairfix.repair.learned import Scored, groups_of, mean_of
from fairfix.table import Groups, Reading, Table, Task
from fairfix.values import GroupTube, PluginScore, Unrepaired, ValuePredictor


@dataclass(frozen=True)
class FairRegression(Repairer):
    """Scores with statistical parity at every threshold, or bounded loss in every group; see the module's docstring."""

    name: ClassVar[str] = "fair-regression"
    summary: ClassVar[str] = (
        "real-valued scores: statistical parity at every threshold (KS), or bounded loss in every group"
    )
    criterion: ClassVar[str] = "ks.to_overall"
    learns: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    tasks: ClassVar[tuple[Task, ...]] = ("classification", "regression")

    constraint: str = param(
        "statistical_parity",
        "what is held: the distance of each group's scores to everybody's, or the loss of each group",
        choices=("statistical_parity", "bounded_group_loss"),
    )
    slack: float = param(0.05, "largest gap that is left, in the method's criterion", at_least=0.0)
    group_slack: str = param("", "slacks of single groups instead, as GROUP=NUMBER,...", text=True)
    loss: str = param(
        "auto",
        "what is minimised; auto: logistic for 0/1 labels, square for real ones",
        choices=("auto", "square", "logistic", "absolute"),
    )
    solver: str = param(
        "auto",
        "how statistical parity is reached; auto: closed-form if the protected columns are features, else plug-in",
        choices=("auto", "closed-form", "plug-in", "reduction"),
    )
    learner: str = param(
        "linear",
        "model that is learned from features: linear (or logistic), or boosted trees",
        choices=("linear", "trees"),
        selectable=True,
    )
    l2: float = param(
        1e-3,
        "weight of the squared coefficients of a linear model, beside the mean loss",
        at_least=0.0,
        selectable=True,
    )

    @property
    def bounds(self) -> str:
        """Identifier of the audit comparison that ``slack`` or ``bound`` holds."""
        if self.constraint == "statistical_parity":
            return self.criterion
        return "log_loss.max" if self.loss == "logistic" else "square_loss.max"

    def quality(self, table: Table, predicted: Floats, threshold: float) -> float:
        """Return what selection among parameter values makes large: minus the mean loss on the labels."""
        label = table.rows.label
        if label is None:
            raise UsageError("selecting among parameter values needs labels; name the column with --label")
        loss = expected_loss(self._loss(table.reading), label.astype(np.float64), predicted)
        return -float(np.average(loss, weights=table.rows.weight))

    def _loss(self, reading: Reading) -> str:
        """Return the loss in force."""
        if self.loss != "auto":
            return self.loss
        return "square" if reading.task == "regression" else "logistic"

    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        seed = int(rng.integers(2**31))
        solver = self.solver
        if solver == "auto":
            solver = "closed-form" if problem.protected_as_feature else "plug-in"
        if solver == "closed-form":
            if not problem.protected_as_feature:
                raise UsageError(
                    "fair-regression: the closed form treats groups apart, so it needs the protected attribute at "
                    "predict time: say --protected-as-feature, or take --solver plug-in"
                )
            return self._by_tube(problem, seed)
        return self._by_plugin(problem, seed)

    # ------------------------------------------------------------------ closed form

    def _by_tube(self, problem: RepairProblem, seed: int) -> RepairedPredictor:
        """Return the closed form: scores moved group by group into one tube of distributions."""
        groups, table = problem.cells, problem.table
        loss = self._loss(table.reading)
        base = mean_of(problem, self.learner, loss, self.l2, seed)
        scores = problem.once(
            ("scores", id(base)),
            lambda: Scores(
                base.values, groups.codes, lambda: table.draws, table.rows.weight, len(groups.levels)
            ),
        )
        slack = self._slacks(groups)
        found = fit_tube(scores, slack)
        predictor = GroupTube(groups.columns, groups.levels, base.scorer, found.tube)
        notes = tuple(_notes_on(found, groups, slack))
        cost = expected_loss(loss, base.values, found.values)
        constant = expected_loss(loss, base.values, np.full(base.values.size, found.tube.constant))
        share = found.tube.share
        value = float(np.average((1 - share) * cost + share * constant, weights=table.rows.weight))
        fitted = predictor.of_scores(table, base.values)
        return _traced(predictor, base, fitted, FitTrace(True, found.evaluations, value, math.nan, notes))

    # ------------------------------------------------------------------ without the group

    def _by_plugin(self, problem: RepairProblem, seed: int) -> RepairedPredictor:
        """Return the plug-in: a score of the expected label and of the probabilities of groups."""
        groups, table = problem.cells, problem.table
        loss = self._loss(table.reading)
        base = mean_of(problem, self.learner, loss, self.l2, seed)
        group = groups_of(problem, self.learner, self.l2, seed)
        rows = problem.once(
            ("plug-in", id(base), id(group), loss),
            lambda: PluginProblem(base.values, group.values, table.rows.weight, loss),
        )
        slack = self._slacks(groups)
        found = fit_plugin(rows, groups.codes, slack)
        predictor = PluginScore(base.scorer, group.scorer, found.rule, found.constant, found.share)
        constant = expected_loss(loss, base.values, np.full(base.values.size, found.constant))
        cost = (1 - found.share) * expected_loss(loss, base.values, found.values) + found.share * constant
        value = float(rows.share @ cost)
        fitted = predictor.of_scores(table, base.values, group.values)
        notes = tuple(_note_on_share(found.share, found.ks, slack, groups))
        return _traced(predictor, base, fitted, FitTrace(True, found.evaluations, value, found.gap, notes))

    def _slacks(self, groups: Groups) -> Floats:
        """Return the slack of each group, shape (K,)."""
        own = pairs_of(self.group_slack, groups.names, "--group-slack")
        return np.array([own.get(name, self.slack) for name in groups.names], dtype=np.float64)


def _traced(predictor: ValuePredictor, base: Scored, fitted: Floats, trace: FitTrace) -> RepairedPredictor:
    """Return the predictor with its trace; where models were learned, with values by models that have not seen the row.

    ``fitted`` are the values of the rows of the fit that come from the scores ``base.values``.
    """
    if base.scorer.member is None:
        return predictor.traced(trace)
    learned = replace(trace, base=Unrepaired(base.scorer), base_fitted=base.values, fitted=fitted)
    return predictor.traced(learned)


def pairs_of(text: str, names: tuple[str, ...], option: str) -> dict[str, float]:
    """Return the numbers of ``GROUP=NUMBER,...``.

    Raises
    ------
    UsageError
        A group is unknown, or a number is none or negative.
    """
    out: dict[str, float] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, sign, number = part.rpartition("=")
        if not sign or name.strip() not in names:
            raise UsageError(f"{option} {part!r}: write GROUP=NUMBER with a group of {', '.join(names)}")
        try:
            out[name.strip()] = float(number)
        except ValueError:
            raise UsageError(f"{option} {part!r}: {number!r} is not a number") from None
        if not out[name.strip()] >= 0:
            raise UsageError(f"{option} {part!r}: the number must be at least 0")
    return out


def _notes_on(found: TubeFit, groups: Groups, slack: Floats) -> Iterator[str]:
    """Yield what the user should know of a tube."""
    yield from _note_on_share(found.tube.share, found.ks, slack, groups)
    if found.tube.share == 0 and found.tube.drawn:
        held = (
            "holds in expectation over the draws"
            if found.expected
            else "holds for the rows of the fit as drawn"
        )
        yield f"many rows share a score; they are spread by a draw from the row's identity, and the slack {held}"


def _note_on_share(share: float, ks: Floats, slack: Floats, groups: Groups) -> Iterator[str]:
    """Yield a note where the slack is below what so few rows can show."""
    if share <= 0:
        return
    far = ks / (1 - share) if share < 1 else ks
    worst = int(np.argmax(far))
    rows = int(np.count_nonzero(groups.codes == worst))
    more = f"; take --slack {float(far.max()) * 1.005:.2g} or more to do without" if share < 1 else ""
    yield (
        f"a slack of {slack.min():g} cannot be shown on the {rows:,} rows of group {groups.names[worst]!r} by moving "
        f"scores alone, so {share:.1%} of the rows, drawn by identity, get everybody's mean{more}"
    )
