"""Exponentiated gradient: what its gap says, against the linear program of the same game."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.solvers.exponentiated_gradient import Game, play
from fairfix.solvers.reduction import Direct, Oracle, Penalised, reduce
from scipy.optimize import linprog

from tests.test_solvers.test_reduction import rows

Floats = npt.NDArray[np.float64]


def columns(seed: int) -> tuple[Floats, Floats]:
    """Return losses in [0, 1] and constraints of 30 models, of which a mixture holds all four."""
    rng = np.random.default_rng(seed)
    loss, table = rng.random(30), rng.uniform(-0.3, 0.5, (30, 4))
    table[0] = -0.05
    loss[0] = 1.0
    return loss, table


def cheapest(loss: Floats, table: Floats, prices: Floats) -> int:
    return int(np.argmin(loss + table @ prices))


@pytest.mark.parametrize("seed", range(4))
def test_the_gap_bounds_loss_and_violation(seed: int) -> None:
    """Of best answers: loss within 2 nu of the least within the constraints, these missed by (1 + 2 nu) / B at most."""
    loss, table = columns(seed)
    least = linprog(loss, table.T, np.zeros(4), np.ones((1, 30)), [1.0]).fun

    def answer(prices: Floats) -> tuple[float, Floats]:
        at = cheapest(loss, table, prices)
        return float(loss[at]), table[at]

    game = Game(bound=20.0, nu=0.05, rounds=20_000)
    found = play(answer, 4, game)

    assert found.gap <= game.nu
    assert found.loss <= least + 2 * game.nu
    assert found.excess <= (1 + 2 * game.nu) / game.bound
    assert found.prices.sum() <= game.bound


def test_the_gap_is_that_of_the_averages() -> None:
    """After every number of rounds it is the larger of what either player could still gain against the averages."""
    loss, table = columns(7)
    for rounds in (1, 3, 50):
        seen: list[int] = []

        def answer(prices: Floats, seen: list[int] = seen) -> tuple[float, Floats]:
            seen.append(cheapest(loss, table, prices))
            return float(loss[seen[-1]]), table[seen[-1]]

        found = play(answer, 4, Game(bound=5.0, nu=1e-9, rounds=rounds))
        late = seen[rounds // 2 :]
        mean, over = loss[late].mean(), table[late].mean(axis=0)
        value = mean + over @ found.prices
        gains = value - (loss + table @ found.prices)[seen].min(), mean + 5.0 * max(over.max(), 0.0) - value

        assert len(seen) == found.rounds == rounds
        assert found.gap == pytest.approx(max(gains))
        assert (found.loss, found.excess) == (pytest.approx(mean), pytest.approx(over.max()))


def test_a_violation_beyond_what_the_bound_allows_says_that_nothing_holds() -> None:
    """Where every model breaks a constraint, bounded prices end at their bound, and the violation is told."""
    game = Game(bound=10.0, nu=0.01, rounds=500)
    found = play(lambda prices: (0.0, np.array([0.5])), 1, game)

    assert found.gap <= game.nu
    assert found.prices == pytest.approx(game.bound, abs=0.1)
    assert found.excess == pytest.approx(0.5)
    assert found.excess > (1 + 2 * game.nu) / game.bound


def best_of(many: int) -> Oracle:
    """Return an oracle that takes the best of a few linear models, which is the least cost of their class."""
    X, _, _ = rows(1)
    parts = [(a, b) for a in np.linspace(0, 1, many) for b in (0, 1)]
    scores = [np.clip(0.4 + 0.12 * a * X[:, 0] + 0.05 * b * X[:, 1], 0, 1) for a, b in parts]

    def best(problem: Penalised) -> tuple[int, Floats]:
        at = int(np.argmin([problem.cost(one) for one in scores]))
        return at, scores[at]

    return best


@pytest.mark.parametrize(("slack", "nu"), [(0.05, 0.1), (0.1, 0.04)])
def test_both_searches_find_the_same_optimum(slack: float, nu: float) -> None:
    """Of a class whose best answers are known, the game ends within nu of the linear program, and holds the slack."""
    _, y, codes = rows(1)
    direct = reduce(y, codes, None, np.full(2, slack), "square", best_of(8), rounds=200, nu=1e-4)

    def game(saved: float, nu: float) -> Game:
        return Game(2 * saved / slack, nu, rounds=3000)

    played = reduce(y, codes, None, np.full(2, slack), "square", best_of(8), nu=nu, game=game)

    assert direct.converged
    assert played.saddle is not None
    assert played.saddle.gap <= played.nu
    assert (played.ks <= slack + 1e-9).all()
    assert played.loss <= direct.loss + 2 * played.nu


def test_a_game_that_is_cut_short_has_not_converged() -> None:
    """Three rounds are said to be too few, and the slack holds all the same."""
    X, y, codes = rows(1)

    def game(saved: float, nu: float) -> Game:
        return Game(2 * saved / 0.02, nu, rounds=3)

    short = reduce(y, codes, None, np.full(2, 0.02), "square", Direct(X, link="identity"), game=game)

    assert not short.converged
    assert short.saddle is not None
    assert short.saddle.gap > short.nu
    assert (short.ks <= 0.02 + 1e-9).all()
