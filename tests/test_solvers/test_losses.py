"""Losses besides square and logistic: fits, bounds and plug-in rules against general solvers, in any unit."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from fairfix.solvers.group_loss import GroupLossSolution, Infeasible, solve_linear
from fairfix.solvers.linear_losses import standard_of
from fairfix.solvers.losses import in_units, name_of, number_of, row_loss
from fairfix.solvers.plugin import PluginProblem
from fairfix.solvers.plugin_rule import PluginRule
from scipy.optimize import linprog, minimize_scalar
from scipy.stats import norm
from sklearn.metrics import mean_pinball_loss, mean_poisson_deviance

LOSSES = ("quantile:0.8", "absolute", "huber:0.4", "poisson")


def convex(loss: str, y: Any, form: Any) -> Any:
    """Return the loss of each row as cvxpy has it; the form is the logarithm of a mean of counts."""
    if loss == "poisson":
        level = np.array([2 * (v * np.log(v) - v) if v else 0.0 for v in y])
        return 2 * (cp.exp(form) - cp.multiply(y, form)) + level
    error = y - form
    if loss == "absolute":
        return cp.abs(error)
    if name_of(loss) == "huber":
        return cp.huber(error, number_of(loss)) / 2
    return cp.maximum(number_of(loss) * error, (number_of(loss) - 1) * error)


@pytest.mark.parametrize(
    ("loss", "unit"), [*((loss, 1.0) for loss in LOSSES), ("huber:0.4", 1e4), ("poisson", 1e-6)]
)
def test_bounded_losses_reach_what_a_general_solver_does(loss: str, unit: float) -> None:
    """With bounds that bind, the losses equal a conic solver's; below the least level a proof refuses, in any unit."""
    rng = np.random.default_rng(3)
    X, codes = rng.normal(size=(90, 2)), np.arange(90) % 2
    form = X @ [0.6, -0.4] + codes * (X[:, 0] - 0.5)
    y = rng.poisson(np.exp(form)).astype(float) if loss == "poisson" else form + rng.standard_t(3, 90)
    own = in_units(loss, 1 / unit)  # Huber's number is in units of the label
    scale = unit ** row_loss(loss).power
    impossible = solve_linear(X, unit * y, codes, None, np.zeros(2), loss=own)
    assert isinstance(impossible, Infeasible)
    bounds = 1.01 * impossible.excess * np.ones(2)
    found = solve_linear(X, unit * y, codes, None, bounds, loss=own, l2=1e-3)
    assert isinstance(found, GroupLossSolution)

    level, spread = standard_of(y, None, loss)
    w, b = cp.Variable(2), cp.Variable()
    rows = convex(in_units(loss, spread), (y - level) / spread, X @ w + b)
    limit = bounds / scale / spread ** row_loss(loss).power
    held = [cp.sum(rows[codes == k]) / (codes == k).sum() <= limit[k] for k in range(2)]
    other = cp.Problem(cp.Minimize(cp.sum(rows) / y.size + 1e-3 * cp.sum_squares(w)), held)
    other.solve(solver=cp.CLARABEL)
    value = other.value * spread ** row_loss(loss).power * scale

    assert found.converged
    assert (found.losses <= bounds * (1 + 1e-9)).all()
    assert found.multipliers.max() > 0
    assert found.objective == pytest.approx(value, rel=5e-5)
    assert found.bound <= value * (1 + 1e-6)
    assert found.objective - found.bound <= 5e-5 * value


@pytest.mark.parametrize("loss", LOSSES[:3])
def test_the_plug_in_costs_what_a_linear_program_does(loss: str) -> None:
    """Three kinds of rows, whose labels lie around their scores alike: no drawn rule of the kind is cheaper."""
    rng = np.random.default_rng(0)
    kind = np.arange(360) % 3
    eta = np.array([0.0, 1.0, 3.0])[kind]
    codes = (rng.random(360) < np.array([0.2, 0.5, 0.9])[kind]).astype(np.int64)
    label = eta + rng.standard_t(3, 360)
    pi = np.column_stack([[0.8, 0.5, 0.1], [0.2, 0.5, 0.9]])[kind]
    given = PluginProblem(eta, pi, codes, None, loss, label=label)
    slack, own = 0.05, row_loss(loss)
    found = given.fit(np.full(2, slack))

    residual = label - eta
    shift = minimize_scalar(
        lambda c: own.value(residual, np.full(1, c)).mean(), bounds=(-3, 3), method="bounded"
    ).x
    grid = np.linspace(0, 3, 201)
    cost = (
        np.stack([own.value((e + residual - shift)[:, None], grid).mean(axis=0) for e in (0.0, 1.0, 3.0)]) / 3
    )
    r = np.array(
        [[(codes[kind == c] == a).mean() / (codes == a).mean() - 1 for c in range(3)] for a in (0, 1)]
    )
    above = np.tril(np.ones((201, 201)))  # value k or more, by value
    rows = np.concatenate([np.kron(side * r[a] / 3, above.T) for a in (0, 1) for side in (-1, 1)])
    answer: Any = linprog(
        cost.ravel(), rows, np.full(len(rows), slack), np.kron(np.eye(3), np.ones(201)), np.ones(3)
    )
    free, span = (
        given.losses(PluginRule.free()),
        given.losses(given.constant) - given.losses(PluginRule.free()),
    )

    assert (found.ks <= slack + 1e-9).all()
    assert free + 0.1 * span < found.loss < free + 0.9 * span
    assert found.loss == pytest.approx(answer.fun, abs=0.02 * span)
    assert found.bound <= answer.fun + 1e-3 * span
    assert found.gap <= 0.03 * span


def test_losses_are_those_of_other_libraries() -> None:
    """Pinball loss and deviance as scikit-learn has them; Huber's between half the square and the absolute one."""
    rng = np.random.default_rng(1)
    y, u = rng.poisson(2.0, 50).astype(float), rng.gamma(2.0, 1.0, 50)

    def mean(loss: str) -> float:
        return float(row_loss(loss).value(y, u).mean())

    assert mean("quantile:0.3") == pytest.approx(mean_pinball_loss(y, u, alpha=0.3))
    assert mean("poisson") == pytest.approx(mean_poisson_deviance(y, u))
    assert mean("huber:100") == pytest.approx(mean("square") / 2)
    assert mean("huber:1e-9") / 1e-9 == pytest.approx(mean("absolute"))


def test_the_shift_of_scores_that_are_no_quantile_is_measured() -> None:
    """A mean that is taken for a quantile of level 0.9 is off by what a shift saves; the quantile itself is not."""
    rng = np.random.default_rng(2)
    mean, codes = rng.normal(size=2000), (np.arange(2000) % 2).astype(np.int64)
    label, pi = mean + rng.normal(size=2000), np.full((2000, 2), 0.5)
    off = [
        around.off
        for shift in (0.0, norm.ppf(0.9))
        if (around := PluginProblem(mean + shift, pi, codes, None, "quantile:0.9", label=label).around)
    ]
    # pinball losses of a standard normal label at 0 and at its quantile: E(r+) = 0.399, and the density there
    assert off[0] == pytest.approx(1 - norm.pdf(norm.ppf(0.9)) / norm.pdf(0.0), abs=0.05)
    assert off[1] < 0.02
