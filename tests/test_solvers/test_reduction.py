"""The reduction: its linear program, its oracles against literal programs, and what its mixtures hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.solvers.losses import row_loss
from fairfix.solvers.parity import ks_to_overall
from fairfix.solvers.reduction import (
    CostSensitive,
    Direct,
    Oracle,
    Penalised,
    mixture_distances,
    reduce,
)
from scipy.optimize import check_grad, linprog

Floats = npt.NDArray[np.float64]


def rows(seed: int, many: int = 200) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Return features, labels in [0, 1] and groups that differ in both."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([[0, 1], rng.integers(0, 2, many - 2)])
    X = rng.normal(size=(many, 3)) + 0.8 * codes[:, None] * [1, 0, 0]
    y = np.clip(0.4 + 0.12 * X[:, 0] + 0.05 * X[:, 1] + 0.05 * rng.normal(size=many), 0, 1)
    return X, y, codes


def penalised(seed: int, loss: str = "square") -> Penalised:
    """Return a problem with random steps."""
    _, y, codes = rows(seed)
    steps = 0.01 * np.random.default_rng(seed).normal(size=(2, 40))
    z = (np.arange(40) + 0.5) / 40
    return Penalised(y, codes, np.full(y.size, 1 / y.size), row_loss(loss), z, steps)


def fit_to(X: Floats) -> Oracle:
    """Return the least-squares oracle over linear models."""
    A = np.column_stack([X, np.ones(len(X))])

    def fit(target: Floats) -> tuple[Floats, Floats]:
        v = np.linalg.lstsq(A, target, rcond=None)[0]
        return v, A @ v

    return lambda problem: fit(problem.targets())


@pytest.mark.parametrize("oracle", ["direct", "least-squares", "cost-sensitive"])
@pytest.mark.parametrize("slack", [0.0, 0.02, 0.1])
def test_the_mixture_holds_the_slack_at_every_threshold(oracle: str, slack: float) -> None:
    """Expected distances are within the slack over all thresholds, and the loss is no worse than the constant's."""
    X, y, codes = rows(1)
    made = {
        "direct": Direct(X, link="identity"),
        "least-squares": fit_to(X),
        "cost-sensitive": CostSensitive(X),
    }
    found = reduce(y, codes, None, np.full(2, slack), "square", made[oracle], rounds=8)

    assert (found.ks <= slack + 1e-9).all()
    assert found.loss <= np.var(y) + 1e-6
    assert found.weights.sum() == pytest.approx(1)
    assert found.loss == pytest.approx(
        float(found.weights @ ((found.scores - y) ** 2).mean(axis=1)), abs=1e-9
    )


def test_the_slack_holds_where_thresholds_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thresholds may be added, what the program misses between them is mended by more of the constant."""
    monkeypatch.setattr("fairfix.solvers.reduction.CUTS", 1)
    monkeypatch.setattr("fairfix.solvers.reduction.GRID", 3)
    X, y, codes = rows(1)
    slack = 0.02
    found = reduce(y, codes, None, np.full(2, slack), "square", Direct(X, link="identity"), rounds=1)

    assert (found.ks <= slack + 1e-9).all()
    assert found.loss < np.var(y)


def test_without_a_constraint_it_is_the_least_squares_fit() -> None:
    """An infinite slack gives the unconstrained optimum of the class, one model."""
    X, y, codes = rows(3)
    found = reduce(y, codes, None, np.full(2, np.inf), "square", Direct(X, link="identity"), rounds=3)
    A = np.column_stack([X, np.ones(len(X))])
    least = np.mean((A @ np.linalg.lstsq(A, y, rcond=None)[0] - y) ** 2)

    assert found.loss == pytest.approx(least, rel=1e-5)
    assert found.spread < 1e-3


def whole_program(models: list[Floats], y: Floats, codes: npt.NDArray[np.int64], slack: float) -> float:
    """Return the least loss of mixtures of models and of the best constant, with a constraint at every score."""
    constant = np.full(y.size, min(np.linspace(0, 1, 1001), key=lambda c: np.mean((y - c) ** 2)))
    columns = [constant, *models]
    cuts = np.unique(np.concatenate(columns))
    table = np.stack(
        [[np.mean(u[codes == k] > z) - np.mean(u > z) for k in (0, 1) for z in cuts] for u in columns], axis=1
    )
    losses, limits = [np.mean((u - y) ** 2) for u in columns], np.full(2 * len(table), slack)
    return float(
        linprog(losses, np.concatenate([table, -table]), limits, np.ones((1, len(columns))), [1]).fun
    )


def test_weights_of_the_program_are_those_of_all_thresholds() -> None:
    """The mixture of given models equals that of a linear program with a constraint at every score."""
    _, y, codes = rows(4, many=60)
    fixed = [np.clip(y + 0.1 * np.random.default_rng(i).normal(size=60), 0, 1).round(2) for i in range(4)]
    supply = iter([*enumerate(fixed), *([(3, fixed[3])] * 20)])
    found = reduce(
        y, codes, None, np.full(2, 0.06), "square", lambda problem: next(supply), rounds=8, nu=-1.0
    )

    assert found.loss == pytest.approx(whole_program(fixed, y, codes, 0.06), abs=1e-5)


def test_what_the_search_says_of_itself_is_so() -> None:
    """Over a finite family with an exact oracle: the estimate is below the least loss, and only near it is it told so.

    The least loss is that of the linear program over the whole family, with a constraint at every score.
    """
    _, y, codes = rows(4, many=60)
    rng = np.random.default_rng(7)
    family = [
        np.clip(y + spread * rng.normal(size=60), 0, 1).round(2) for spread in np.repeat([0.02, 0.1, 0.2], 4)
    ]
    slack = 0.1

    def best(problem: Penalised) -> tuple[int, Floats]:
        which = min(range(len(family)), key=lambda i: problem.cost(family[i]))
        return which, family[which]

    found = [reduce(y, codes, None, np.full(2, slack), "square", best, rounds=most) for most in (1, 2, 40)]
    least = whole_program(family, y, codes, slack)

    assert all(one.estimate <= least + 1e-9 for one in found)
    assert not found[0].converged
    assert found[0].loss - least > found[0].nu, "a search of one round is far off here"
    assert found[-1].converged
    assert found[-1].loss - least <= found[-1].nu


@pytest.mark.parametrize(
    ("loss", "link"),
    [("square", "identity"), ("logistic", "sigmoid"), ("poisson", "exp"), ("huber:0.1", "identity")],
)
def test_gradients_are_those_of_finite_differences(loss: str, link: Any) -> None:
    """The smoothed costs of the direct and the hinge oracle have the slopes that they claim."""
    X, _, _ = rows(5)
    problem = penalised(5, loss)
    direct = Direct(X, link=link, l2=0.01)
    v = 0.3 * np.random.default_rng(5).normal(size=4)

    def value(x: Floats) -> float:
        return direct.value(x, problem, 0.1)[0]

    assert check_grad(value, lambda x: direct.value(x, problem, 0.1)[1], v) < 1e-6
    hinge = CostSensitive(X)
    gain = np.diff(problem.on_grid, axis=1)
    given = problem.thresholds, -np.sign(gain), np.abs(gain) * problem.share[:, None], 0.01
    assert check_grad(lambda x: hinge.value(x, *given)[0], lambda x: hinge.value(x, *given)[1], v) < 1e-6


def test_the_hinge_oracle_equals_the_literal_linear_program() -> None:
    """Without augmentation the hinge is as small as that of the program with a variable for each row and threshold."""
    X, y, codes = rows(6, many=60)
    z = (np.arange(10) + 0.5) / 10
    steps = 0.02 * np.random.default_rng(6).normal(size=(2, 10))
    problem = Penalised(y, codes, np.full(60, 1 / 60), row_loss("square"), z, steps)
    oracle = CostSensitive(X, smoothing=1e-5)
    model, _ = oracle(problem)
    gain = np.diff(problem.on_grid, axis=1)
    side, size = -np.sign(gain), np.abs(gain) / 60
    form = X @ model.coef + model.intercept
    own = (size * np.maximum(oracle.margin - side * (form[:, None] - z), 0)).sum()
    A = np.column_stack([X, np.ones(60)])
    # xi >= margin - side (a v - z), one for each row and threshold
    left = -(side[:, :, None] * A[:, None, :]).reshape(600, 4)
    found = linprog(
        np.append(np.zeros(4), size.ravel()),
        A_ub=np.column_stack([left, -np.eye(600)]),
        b_ub=(-oracle.margin - side * z).ravel(),
        bounds=[(-1, 1)] * 3 + [(None, None)] + [(0, None)] * 600,
    )

    assert own == pytest.approx(found.fun, abs=1e-4)


def test_targets_take_the_middle_of_a_plateau() -> None:
    """Where two points cost the same the target lies between them."""
    y = np.array([0.5])
    problem = Penalised(
        y, np.array([0]), np.ones(1), row_loss("absolute"), np.array([0.25, 0.5, 0.75]), np.zeros((1, 3))
    )

    assert problem.targets() == pytest.approx([0.5])


def test_distances_of_a_mixture_are_those_of_repeated_rows() -> None:
    """A mixture with chances in fourths has the distances of rows repeated as often."""
    _, _, codes = rows(7, many=40)
    values = np.random.default_rng(7).random((2, 40)).round(1)
    stacked = np.concatenate([values[0], values[1], values[1], values[1]])
    expected = ks_to_overall(stacked, np.tile(codes, 4), None, 2)

    np.testing.assert_allclose(
        mixture_distances(values, np.array([0.25, 0.75]), codes, np.full(40, 1 / 40), 2), expected
    )
