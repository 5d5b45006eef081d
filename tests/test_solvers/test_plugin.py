"""The plug-in's shipped rule against convex programs, on its own rows and on new ones, in any units."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import pytest
from fairfix.solvers.parity import ks_to_overall
from fairfix.solvers.plugin import PluginProblem, _PluginProgram
from fairfix.solvers.plugin_rule import PluginRule, expected_loss

Floats = npt.NDArray[np.float64]


def problem(seed: int, groups: int = 2, rows: int = 400, loss: str = "logistic") -> PluginProblem:
    """Return rows whose chance of the groups hangs on the score, with groups drawn by it."""
    rng = np.random.default_rng(seed)
    eta = rng.beta(2, 3, rows)
    form = (np.arange(groups) - 1) * (3 * eta[:, None] - 1 + rng.normal(size=(rows, 1)))
    pi = np.exp(form) / np.exp(form).sum(axis=1, keepdims=True)
    codes = (rng.random((rows, 1)) > np.cumsum(pi, axis=1)[:, :-1]).sum(axis=1)
    return PluginProblem(eta, pi, codes, rng.integers(1, 3, rows).astype(float), loss)


def kinds(
    seed: int, groups: int = 2, rows: int = 6000, loss: str = "square", units: float = 1.0
) -> PluginProblem:
    """Return rows of eight kinds, whose chances of groups are known badly."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(8, rows, p=rng.dirichlet(np.full(8, 5.0)))
    truth = rng.dirichlet(np.full(groups, 1.5), 8)
    codes = (rng.random((rows, 1)) > np.cumsum(truth[kind], axis=1)[:, :-1]).sum(axis=1)
    eta = units * (rng.random(8) + truth[:, 0])[kind] / 2
    return PluginProblem(eta, rng.dirichlet(np.ones(groups), 8)[kind], codes, None, loss)


def program(given: PluginProblem, slack: Floats, code: npt.NDArray[np.int64], wide: int = 300) -> float:
    """Return the least loss of any drawn rule of the cells ``code`` with values of a fine grid, by a conic solver."""
    many, groups = int(code.max()) + 1, given.shares.size
    weight = np.bincount(code, given.share)
    eta = np.bincount(code, given.share * given.eta) / weight
    grid = np.linspace(eta.min(), eta.max(), wide)
    if given.loss == "logistic":
        grid = np.clip(grid, 1e-9, 1 - 1e-9)
    # the same in other units, so that the solver's tolerance is of the right size
    unit = given.losses(given.constant)
    cost = np.zeros((many, wide))
    for i, e, w in zip(code, given.eta, given.share, strict=True):
        cost[i] += w / unit * expected_loss(given.loss, np.full(1, e), grid)
    below = cp.Variable((many, wide))  # the chance of a value or a lower one
    chance = cp.hstack([below[:, :1], cp.diff(below, axis=1)])
    rules = [chance >= 0, below[:, -1] == 1]
    for k in range(groups):
        own = np.bincount(code, given.share * (given.codes == k), many) / given.shares[k]
        rules.append(cp.abs((own - weight) @ below) <= slack[k])
    found = cp.Problem(cp.Minimize(cp.sum(cp.multiply(cost, chance))), rules)
    found.solve(solver=cp.CLARABEL)
    assert found.status == cp.OPTIMAL
    return float(found.value) * unit


def expected_distances(given: PluginProblem, rule: PluginRule) -> Floats:
    """Return the distances of a rule by giving each row every draw of a fine lattice."""
    many = 400
    draws = (np.arange(many) + 0.5) / many
    values = np.concatenate([rule.score(given.eta, given.pi, np.full(given.eta.size, d)) for d in draws])
    weight = np.tile(given.share, many)
    return ks_to_overall(values, np.tile(given.codes, many), weight, given.shares.size)


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("loss", ["square", "logistic"])
@pytest.mark.parametrize("slack", [0.0, 0.05, 0.15])
def test_the_shipped_rule_costs_what_the_program_does(groups: int, loss: str, slack: float) -> None:
    """On a few kinds of rows what is shipped costs the least there is, and its gap is no less than the true one."""
    given = kinds(1, groups, loss=loss)
    found = given.fit(np.full(groups, slack))
    code = np.unique(given.eta, return_inverse=True)[1].astype(np.int64)
    exact, free = program(given, np.full(groups, slack), code), given.losses(PluginRule.free())
    span = given.losses(given.constant) - free

    assert found.rule.moves
    assert found.loss - free <= 1.01 * (exact - free) + 1e-4 * span
    assert found.gap >= found.loss - exact - 1e-6 * span
    assert found.bound <= exact + 1e-6 * span


@pytest.mark.parametrize("slack", [0.0, 0.03, 0.1, np.inf])
@pytest.mark.parametrize("groups", [2, 3])
def test_distances_on_rows_are_within_the_slack(slack: float, groups: int) -> None:
    """By the groups as they are, no distance is beyond its slack, over all draws that a row may have."""
    given = problem(3, groups)
    found = given.fit(np.full(groups, slack))

    assert (found.ks <= slack + 1e-9).all()
    np.testing.assert_allclose(expected_distances(given, found.rule), found.ks, atol=0.01)


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_the_loss_is_that_of_the_draws(loss: str) -> None:
    """What is reported is the mean loss of the values that rows get."""
    given = problem(8, 3, loss=loss)
    found = given.fit(np.full(3, 0.05))
    draws = (np.arange(200) + 0.5) / 200
    each = [
        given.share
        @ expected_loss(loss, given.eta, found.rule.score(given.eta, given.pi, np.full(given.eta.size, d)))
        for d in draws
    ]

    np.testing.assert_allclose(np.mean(each), found.loss, rtol=5e-3)


def test_an_infinite_slack_leaves_the_score() -> None:
    """Without a bound the score is the expected label; one group alone may be bounded."""
    given = problem(4, 3)
    found = given.fit(np.full(3, np.inf))
    one = given.fit(np.array([np.inf, 0.01, np.inf]))

    np.testing.assert_array_equal(found.rule.score(given.eta, given.pi, np.zeros(400)), given.eta)
    assert found.gap == 0
    assert one.ks[1] <= 0.01 < one.ks.max()
    assert one.gap < 0.02 * given.losses(given.constant)


@pytest.mark.parametrize("units", [1e-6, 0.25, 1e6])
def test_units_change_nothing(units: float) -> None:
    """Values, losses and gaps are the same in the units of the label, at any shift."""
    plain = problem(6, 3, loss="square")
    moved = PluginProblem(units * (plain.eta + 3), plain.pi, plain.codes, plain.weight, "square")
    slack, draw = np.full(3, 0.04), np.random.default_rng(0).random(400)
    one, other = plain.fit(slack), moved.fit(slack)

    np.testing.assert_allclose(
        other.rule.score(moved.eta, moved.pi, draw) / units - 3,
        one.rule.score(plain.eta, plain.pi, draw),
        atol=1e-6,
    )
    np.testing.assert_allclose(other.loss / units**2, one.loss, rtol=1e-6)
    np.testing.assert_allclose(other.gap / units**2, one.gap, atol=1e-6 * one.loss)


def test_groups_that_the_rows_do_not_tell_of_cost_nothing() -> None:
    """Where each kind of row has the same share of each group, scores are left as they are."""
    eta = np.repeat(np.arange(5.0), 40)
    given = PluginProblem(eta, np.full((200, 2), 0.5), np.tile([0, 1], 100), None, "square")

    assert not given.fit(np.full(2, 0.0)).rule.moves


def test_new_rows_keep_the_slack_where_the_chances_are_known() -> None:
    """Cells do not learn by heart which rows are of which group."""
    rng = np.random.default_rng(7)

    def drawn(rows: int) -> PluginProblem:
        eta = rng.beta(2, 3, rows)
        second = 1 / (1 + np.exp(3 - 4 * eta))
        pi = np.column_stack([1 - second, second])
        return PluginProblem(eta, pi, (rng.random(rows) < second).astype(np.int64), None, "square")

    over = []
    for _ in range(3):
        found = drawn(2000).fit(np.full(2, 0.05))
        over.append(drawn(200_000).distances(found.rule).max() - 0.05)
    # records of 512 cells alone would let new rows be beyond the slack by 0.08; chance in 2,000 rows is 0.02
    assert np.mean(over) < 0.03


def test_a_rule_gives_values_by_their_chances() -> None:
    """The shares of the values over draws are the chances of the cell, up to the last draw below 1."""
    given = problem(9)
    rule = given.fit(np.full(2, 0.02)).rule
    values, chance = rule.distributions()
    cell = int(np.argmax(np.count_nonzero(chance, axis=1)))
    row = int(np.argmax(rule.cells(given.eta, given.pi) == cell))
    draw = np.append(np.arange(10_000) / 10_000, np.nextafter(1.0, 0.0))
    got = rule.score(np.full(draw.size, given.eta[row]), np.tile(given.pi[row], (draw.size, 1)), draw)

    assert rule.sound
    assert np.count_nonzero(chance[cell]) > 1
    assert rule.drawn(given.eta[row : row + 1], given.pi[row : row + 1]).all()
    for value, share in zip(values, chance[cell], strict=True):
        assert abs(np.mean(got == value) - share) < 1e-3
    assert (np.diff(got) >= 0).all()


def test_a_failed_solver_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the program is not solved everybody gets the mean, and nothing is certified."""
    monkeypatch.setattr(_PluginProgram, "solve", lambda _: None)
    given = problem(10)
    found = given.fit(np.full(2, 0.01))

    assert not found.solved
    assert found.gap == np.inf
    assert found.ks.max() < 1e-12
    np.testing.assert_allclose(
        found.rule.score(given.eta, given.pi, np.zeros(400)), given.share @ given.eta, rtol=1e-12
    )


def test_the_log_loss_is_exact_at_the_ends() -> None:
    """A certain label with a certain score costs nothing; a wrong one is infinite."""
    ends = np.array([0.0, 1.0])

    np.testing.assert_array_equal(expected_loss("logistic", ends, ends), [0, 0])
    assert np.isinf(expected_loss("logistic", ends, 1 - ends)).all()


def test_the_unit_of_survey_weights_does_not_matter() -> None:
    """Weights of a survey that are whole numbers are no repetitions: cells must not learn single rows by heart."""
    rng = np.random.default_rng(0)
    codes, weight = rng.integers(0, 2, 1500), np.rint(rng.lognormal(12, 0.5, 1500))
    eta = np.clip(rng.beta(2, 4, 1500) + 0.1 * codes, 0, 1)
    chance = 1 / (1 + np.exp(-4 * (eta - 0.4)))
    problem = PluginProblem(
        eta, np.column_stack([1 - chance, chance]), codes, weight, "logistic", by_label=True
    )
    slack = np.full(2, 0.02)
    one, other = problem.fit(slack), replace(problem, weight=weight / 7).fit(slack)

    assert other.loss == pytest.approx(one.loss, rel=1e-9)
    assert problem.rows == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    # a table of counts has few points, which stand for as many people as it says
    few = replace(problem, eta=eta.round(1), pi=np.full((1500, 2), 0.5))
    assert few.rows == weight.sum()
