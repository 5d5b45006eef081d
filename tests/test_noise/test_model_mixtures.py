"""Mixtures of a learner's models against programs over all models there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fairfix.noise.enumerated_rules import best_mixture
from fairfix.noise.model_mixtures import COIN, MODELS, mix_models
from fairfix.noise.randomized_rule_bounds import level_bounds
from fairfix.noise.rates import DEMANDS, LABELS
from fairfix.noise.training import NoisyRows, TableInterval, excess_of
from scipy.optimize import linprog

from tests.strategies import examples

PARITIES = [name for name in DEMANDS if name != "minimax"]
MANY = 240


def people(seed: int, noise: float) -> tuple[np.ndarray, NoisyRows, np.ndarray]:
    """Return features, rows of two recorded groups with weights, and the joint masses of true and recorded groups."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 2, MANY)
    X = np.round(rng.normal(0.6 * true[:, None], 1.0, (MANY, 3)))
    y = (rng.random(MANY) < 1 / (1 + np.exp(-X.sum(1)))).astype(np.int64)
    codes = np.where(rng.random(MANY) < noise, 1 - true, true)
    weight = rng.choice([1.0, 2.0], MANY)
    weight /= weight.sum()
    joint = np.zeros((2, 2))
    np.add.at(joint, (true, codes), weight)
    return X, NoisyRows(None, y, codes, weight, 2), joint


class Stumps:
    """An oracle over all cuts of all features in both directions: the model of least cost, as two bins."""

    def __init__(self, X: np.ndarray) -> None:
        every = [sign * x >= sign * cut for x in X.T for cut in np.unique(x) for sign in (1.0, -1.0)]
        self.accept = np.array(every)
        self.returned: list[int] = []

    def __call__(self, cost: np.ndarray) -> Any:
        self.returned.append(int((self.accept @ cost).argmin()))
        return self.accept[self.returned[-1]].astype(np.int64)

    def best(self, rows: NoisyRows, adversary: Any, parity: Any, slack: float) -> float:
        """Return the least error of mixtures of all stumps, by the program over all of them at once."""
        both = [np.zeros(MANY, bool), np.ones(MANY, bool), *self.accept]
        cells = np.stack([rows.cells(accept) for accept in both])
        excess = np.nan_to_num(excess_of(cells, adversary, parity, slack).reshape(len(both), -1))
        errors = cells[..., 1:3].sum((1, 2))
        return float(best_mixture(errors, excess).share @ errors)


@pytest.mark.parametrize("parity", PARITIES)
def test_without_noise_the_end_is_the_optimum_over_all_models(parity: Any) -> None:
    """An oracle that finds the least cost is all that the ideal algorithm needs."""
    for seed in range(examples(4)):
        X, rows, _ = people(seed, 0.0)
        adversary, oracle = TableInterval(np.diag(np.bincount(rows.codes, rows.weight))), Stumps(X)
        made = mix_models(rows, adversary, parity, 0.03, oracle)
        assert made.at_end
        assert made.models == len(oracle.returned) < MODELS
        best = oracle.best(rows, adversary, parity, 0.03)
        assert best - 1e-7 <= made.error <= best + 2e-4  # a rule has to promise a gain of 1e-4
        assert made.shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("parity", PARITIES)
def test_no_noise_that_fits_the_table_breaks_the_constraint(parity: Any) -> None:
    """Of the mixture as it is drawn, which noise knows, or knows only by its chance."""
    useful = 0
    for seed in range(examples(4)):
        X, rows, joint = people(seed, 0.1)
        adversary, oracle = TableInterval(joint), Stumps(X)
        made = mix_models(rows, adversary, parity, 0.1, oracle)
        decided = [oracle.accept[oracle.returned[model]] + 1 > cut for model, cut in made.rules]
        cells = np.stack([rows.cells(accept) for accept in decided])
        excess = np.tensordot(made.shares, np.nan_to_num(excess_of(cells, adversary, parity, 0.1)), 1)
        assert excess.max() <= 1e-6
        assert made.error == pytest.approx(made.shares @ cells[..., 1:3].sum((1, 2)))
        best = oracle.best(rows, adversary, parity, 0.1)
        assert made.error >= best - 1e-7
        assert (
            made.error <= best + 0.03
        )  # a rule is looked for by the worst noise of others: .023 in 36 worlds
        useful += made.error < min(rows.weight @ rows.y, rows.weight @ (1 - rows.y)) - 0.01

        chance = made.shares @ np.array(decided)
        levels, into = np.unique(chance, return_inverse=True)
        n = np.zeros((2, levels.size, 2))
        np.add.at(n, (rows.codes, into.ravel(), rows.y), rows.weight)
        F = np.broadcast_to(levels, (2, levels.size))
        for rate, sign in DEMANDS[parity]:
            own = n[..., list(LABELS[rate])].sum((0, 2))
            worst = level_bounds(n, joint, F, rate)[0 if sign > 0 else 1]
            assert np.nanmax(sign * ((own @ levels) / own.sum() - worst)) <= 0.1 + 1e-6
    if parity == "demographic_parity":  # of rates given the label such a table says next to nothing
        assert useful


def least_largest_error(rows: NoisyRows, adversary: Any, accept: np.ndarray) -> tuple[float, float]:
    """Return the least largest error of a true group by mixtures of rules, and the least error among those of it."""
    cells = np.stack([rows.cells(own) for own in accept])
    over = np.nan_to_num(excess_of(cells, adversary, "minimax", 0.0).reshape(len(accept), -1))
    over = np.vstack([over, np.full_like(over[:1], 0.5)])  # a coin for each row
    many, ones = len(over), np.ones((1, len(over)))
    least = linprog(
        np.append(np.zeros(many), 1.0),
        A_ub=np.c_[over.T, -np.ones(over.shape[1])],
        b_ub=np.zeros(over.shape[1]),
        A_eq=np.append(ones, 0.0)[None],
        b_eq=[1.0],
    )
    errors = np.append(cells[..., 1:3].sum((1, 2)), 0.5)
    best = linprog(errors, A_ub=over.T, b_ub=np.full(over.shape[1], least.fun + 1e-7), A_eq=ones, b_eq=[1.0])
    return float(least.fun), float(best.fun)


def test_without_noise_minimax_ends_at_the_optimum_over_all_models() -> None:
    """And of all mixtures that reach it at the one of least error."""
    drawn = 0
    for seed in range(examples(4)):
        X, rows, _ = people(seed, 0.0)
        adversary, oracle = TableInterval(np.diag(np.bincount(rows.codes, rows.weight))), Stumps(X)
        made = mix_models(rows, adversary, "minimax", 0.0, oracle)
        rules = np.array([np.zeros(MANY, bool), np.ones(MANY, bool), *oracle.accept])
        least, error = least_largest_error(rows, adversary, rules)
        assert made.at_end
        assert least - 1e-7 <= made.largest <= least + 2e-4  # a rule has to promise a gain of 1e-4
        assert made.error <= error + 3e-4
        drawn += made.shares.size > 1
    assert drawn


def test_no_noise_makes_a_true_group_err_more_than_minimax_tells() -> None:
    """Of the mixture by its chances; a mixture of what was found has no smaller largest error than is told."""
    coins = 0
    for seed in range(examples(4)):
        X, rows, joint = people(seed, 0.1 + 0.2 * (seed % 2))
        adversary, oracle = TableInterval(joint), Stumps(X)
        made = mix_models(rows, adversary, "minimax", 0.0, oracle)
        coins += COIN in made.rules
        decided = np.array(
            [
                np.full(MANY, 0.5)
                if rule == COIN
                else oracle.accept[oracle.returned[rule[0]]] + 1.0 > rule[1]
                for rule in made.rules
            ]
        )
        levels, into = np.unique(made.shares @ decided, return_inverse=True)
        n = np.zeros((2, levels.size, 2))
        np.add.at(n, (rows.codes, into.ravel(), rows.y), rows.weight)
        lowest = level_bounds(n, joint, np.broadcast_to(levels, (2, levels.size)), "accuracy")[0]
        assert (1.0 - lowest).max() <= made.largest + 1e-6
        assert made.largest <= 0.5 + 1e-6  # a coin errs no more
        asked = oracle.accept[oracle.returned]
        rules = np.array([np.zeros(MANY, bool), np.ones(MANY, bool), *asked])
        assert made.largest == pytest.approx(least_largest_error(rows, adversary, rules)[0], abs=2e-7)
    assert coins
