"""The plug-in dual against linear programs, weak duality, and what its rule holds on rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from fairfix.optim.parity import ks_to_overall
from fairfix.optim.plugin import PluginProblem, _Dual, expected_loss, fit_plugin, mixed
from scipy.optimize import linprog

Floats = npt.NDArray[np.float64]


def problem(seed: int, groups: int = 2, rows: int = 400, loss: str = "logistic") -> PluginProblem:
    """Return rows whose chance of the groups hangs on the score."""
    rng = np.random.default_rng(seed)
    eta = rng.beta(2, 3, rows)
    form = (np.arange(groups) - 1) * (3 * eta[:, None] - 1 + rng.normal(size=(rows, 1)))
    pi = np.exp(form) / np.exp(form).sum(axis=1, keepdims=True)
    return PluginProblem(eta, pi, rng.integers(1, 3, rows).astype(float), loss)


def drawn_groups(given: PluginProblem, seed: int) -> npt.NDArray[np.int64]:
    """Return a group per row, drawn by its chances."""
    return (
        np.random.default_rng(seed).random((given.eta.size, 1)) > np.cumsum(given.pi, axis=1)[:, :-1]
    ).sum(axis=1)


def program(given: PluginProblem, slack: float) -> float:
    """Return the least loss of any mixture of maps of the cells into the grid, by a linear program."""
    weight, _, r = given.cells
    cells, wide = given.losses.shape
    step = sp.csr_matrix(
        np.triu(np.ones((wide, wide)), 1)[:-1]
    )  # row j: whether a value lies above threshold j
    away = sp.vstack([sp.kron(sp.csr_matrix((weight * r[:, a])[None, :]), step) for a in range(r.shape[1])])
    found = linprog(
        (weight[:, None] * given.losses).ravel(),
        A_ub=sp.vstack([away, -away]),
        b_ub=np.full(2 * away.shape[0], slack),
        A_eq=sp.kron(sp.eye(cells), np.ones((1, wide))),
        b_eq=np.ones(cells),
        method="highs",
    )
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize(
    ("groups", "loss", "slack"), [(2, "logistic", 0.05), (2, "square", 0.1), (5, "square", 0.1)]
)
def test_the_certificate_holds_the_linear_program(groups: int, loss: str, slack: float) -> None:
    """The optimum of the program lies between bound and value, which are near to one another."""
    given = problem(1, groups, 120, loss)
    solved = given.certified(given.solve(np.full(groups, slack)), np.full(groups, slack))
    exact = program(given, slack)

    assert solved.bound <= exact + 1e-9
    assert exact <= solved.value + 1e-9
    assert solved.gap <= 0.03 * given.of_constant


def test_the_bound_holds_for_any_multipliers() -> None:
    """Weak duality: no multipliers give a bound above the value of a rule within the slack."""
    given = problem(2, rows=150)
    exact = program(given, 0.08)
    rng = np.random.default_rng(0)
    many = 2 * 2 * given.thresholds.size
    for scale in (0.01, 0.1, 1.0):
        _, bound = _Dual(given, np.full(2, 0.08)).certificate(scale * rng.random(many), 1e-4)
        assert bound <= exact + 1e-9


@pytest.mark.parametrize("slack", [0.0, 0.03, 0.1, np.inf])
@pytest.mark.parametrize("groups", [2, 3])
def test_distances_on_rows_are_within_the_slack(slack: float, groups: int) -> None:
    """By the groups as they are, no distance is beyond its slack, expected over the share of constants."""
    given = problem(3, groups)
    codes = drawn_groups(given, 3)
    found = fit_plugin(given, codes, np.full(groups, slack))

    assert (found.ks <= slack + 1e-12).all()
    np.testing.assert_allclose(
        found.ks, (1 - found.share) * ks_to_overall(found.values, codes, given.weight, groups), atol=1e-12
    )
    np.testing.assert_array_equal(found.values, found.rule.score(given.eta, given.pi))


def test_an_infinite_slack_leaves_the_score() -> None:
    """Without a bound the score is the expected label."""
    given = problem(4)
    found = fit_plugin(given, drawn_groups(given, 4), np.full(2, np.inf))

    np.testing.assert_array_equal(found.rule.score(given.eta, given.pi), given.eta)
    assert found.gap == 0


def test_more_slack_costs_less() -> None:
    """The bound falls as the slack grows, and so does the value."""
    given = problem(5)
    found = [given.solve(np.full(2, slack)) for slack in (0.02, 0.05, 0.1, 0.2)]

    assert all(a.bound >= b.bound - 1e-9 for a, b in pairwise(found))


def test_groups_that_the_rows_do_not_tell_of_cost_nothing() -> None:
    """Where the chances of groups are the same for all rows, scores are left as they are."""
    given = problem(6)
    plain = PluginProblem(given.eta, np.tile([0.3, 0.7], (given.eta.size, 1)), given.weight, "square")
    solved = plain.solve(np.full(2, 0.01))

    np.testing.assert_allclose(solved.bound, 0, atol=1e-4)
    assert np.abs(solved.rule.score(plain.eta, plain.pi) - plain.eta).max() <= np.diff(plain.thresholds).max()


def test_a_share_of_rows_gets_the_constant() -> None:
    """The share is that of the draws, and the others keep their values."""
    draw = (np.arange(10_000) + 0.5) / 10_000
    out = mixed(np.zeros(10_000), 1.0, 0.3, draw)

    assert abs(out.mean() - 0.3) < 0.02
    np.testing.assert_array_equal(mixed(draw, 1.0, 0.0, draw), draw)


def test_the_log_loss_is_exact_at_the_ends() -> None:
    """A certain label with a certain score costs nothing; a wrong one is infinite."""
    ends = np.array([0.0, 1.0])

    np.testing.assert_array_equal(expected_loss("logistic", ends, ends), [0, 0])
    assert np.isinf(expected_loss("logistic", ends, 1 - ends)).all()
