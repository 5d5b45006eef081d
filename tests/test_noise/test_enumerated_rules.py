"""The best mixture over all rules of a small class, against enumeration by another hand, a game, and other solvers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from fairfix.noise.bounds import table_bounds, tv_bounds, valid_radius
from fairfix.noise.enumerated_rules import MOST, USUAL, rules_of, solve_ideal, usual_bins
from fairfix.noise.rates import DEMANDS, RATIOS
from fairfix.noise.score_bin_bounds import KnownTable, KnownTableByLabel
from fairfix.noise.thresholds import solve_noisy
from fairfix.noise.training import TableInterval, TotalVariationBalls
from scipy.optimize import linprog

from tests.strategies import examples

PARITIES = [name for name in DEMANDS if name != "minimax"]


def drawn(
    seed: int, *, noisy: int = 2, bins: int = 4, true: int = 2
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return joint masses q (J, K, B, 2), labels rising with the bin, the data's masses, and the table by label."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(true * noisy * bins * 2, 1.0)).reshape(true, noisy, bins, 2)
    q *= (4 * np.eye(true, noisy) + 1)[:, :, None, None]
    q[..., 1] *= np.arange(1, bins + 1)
    q[..., 0] *= np.arange(bins, 0, -1)
    q[1, :, : bins // 2] *= 2
    q /= q.sum()
    return q, q.sum(0), np.moveaxis(q.sum(2), -1, 0)


def by_hand(
    n: np.ndarray, parity: Any, slack: float, worst: Any, blind: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return error and worst cases of every rule: loops, and ``worst(cells, rate, group)`` -> (low, high)."""
    noisy, bins, _ = n.shape
    errors, rows = [], []
    for cuts in itertools.product(range(bins + 1), repeat=1 if blind else noisy):
        own = cuts * noisy if blind else cuts
        cells = np.array(
            [
                [n[k, c:, 1].sum(), n[k, :c, 1].sum(), n[k, c:, 0].sum(), n[k, :c, 0].sum()]
                for k, c in enumerate(own)
            ]
        )
        errors.append(cells[:, 1:3].sum())
        row = []
        for rate, sign in DEMANDS[parity]:
            overall = RATIOS[rate].of(cells.sum(0))
            for j in range(2):
                low, high = worst(cells, RATIOS[rate], j)
                row.append(sign * (overall - (low if sign > 0 else high)) - slack)
        rows.append(row)
    return np.array(errors), np.array(rows)


@pytest.mark.parametrize("parity", PARITIES)
@pytest.mark.parametrize("blind", [False, True])
def test_mixture_and_single_rule_are_those_of_enumeration_with_linear_programs(
    parity: Any, blind: bool
) -> None:
    """Each rule's worst case in closed form, the mixture by a linear program over all rules."""
    for seed in range(2):
        _, n, C = drawn(seed, bins=3)
        table, radius = C.sum(0), valid_radius(C.sum(0))
        for adversary, closed, known_of in (
            (TableInterval(table), table_bounds, table),
            (TotalVariationBalls(radius, np.arange(radius.size)), tv_bounds, radius),
        ):

            def worst(
                cells: np.ndarray, ratio: Any, j: int, closed: Any = closed, known_of: Any = known_of
            ) -> list[float]:
                return [end[j] for end in closed(cells, known_of, ratio)]

            errors, over = by_hand(n, parity, 0.1, worst, blind)
            one = {"A_eq": np.ones((1, errors.size)), "b_eq": [1.0]}
            known = linprog(errors, A_ub=over.T, b_ub=np.zeros(over.shape[1]), **one)
            found = solve_ideal(n, adversary, parity, 0.1, blind=blind)
            assert found.error == pytest.approx(known.fun, abs=1e-7)
            assert found.feasible
            assert found.programs == errors.size
            assert found.violation <= 1e-7
            single = solve_ideal(n, adversary, parity, 0.1, blind=blind, single=True)
            assert single.error == pytest.approx(errors[(over <= 1e-9).all(1)].min(), abs=1e-12)
            assert set(np.unique(single.F)) <= {0.0, 1.0}
            assert single.error >= found.error - 1e-9
            assert not blind or (np.ptp(found.F, axis=0) == 0).all()


def test_the_game_of_the_paper_goes_to_the_program() -> None:
    """Best answers of one player, raised multipliers of the other: the mean of the answers nears the optimum."""
    _, n, C = drawn(3, bins=6)
    adversary = TableInterval(C.sum(0))
    optimum = solve_ideal(n, adversary, "equal_opportunity", 0.05)

    def worst(cells: np.ndarray, ratio: Any, j: int) -> list[float]:
        return [end[j] for end in adversary.bounds(cells, ratio)]

    errors, over = by_hand(n, "equal_opportunity", 0.05, worst, False)
    multipliers, answers, rounds = np.zeros(over.shape[1]), np.zeros(errors.size), 20_000
    for _ in range(rounds):
        at = int(np.argmin(errors + over @ multipliers))
        answers[at] += 1 / rounds
        multipliers = np.maximum(multipliers + 0.02 * over[at], 0.0)
    assert optimum.error > errors.min() + 0.01  # the constraint binds
    assert answers @ errors == pytest.approx(optimum.error, abs=4e-3)
    assert (answers @ over).max() <= 4e-3


@pytest.mark.parametrize("parity", PARITIES)
def test_where_the_adversary_fills_the_same_bins_it_is_the_program_over_thresholds(parity: Any) -> None:
    """With a table by label, and for selection rates with any, it is the optimum over mixtures of thresholds."""
    for seed in range(examples(4)):
        _, n, C = drawn(seed, noisy=3, bins=5, true=2)
        known = solve_noisy(n, C, parity, 0.03, KnownTableByLabel())
        found = solve_ideal(n, TableInterval(C), parity, 0.03)
        assert found.error == pytest.approx(known.error, abs=1e-7)
        known = solve_noisy(n, C.sum(0), parity, 0.03, KnownTable())
        found = solve_ideal(n, TableInterval(C.sum(0)), parity, 0.03)
        if parity == "demographic_parity":
            assert found.error == pytest.approx(known.error, abs=1e-7)
        else:  # it knows which rule was drawn
            assert found.error >= known.error - 1e-7


def test_a_class_that_is_not_small_is_refused() -> None:
    """All rules are looked at, so there are few; and none is found without the label that is asked for."""
    n = np.ones((6, 10, 2)) / 120
    table = np.full((6, 6), 1 / 36)
    assert rules_of(10, 6) > MOST
    with pytest.raises(ValueError, match="1,771,561 rules"):
        solve_ideal(n, TableInterval(table), "demographic_parity", 0.1)
    assert solve_ideal(n, TableInterval(table), "demographic_parity", 0.1, blind=True).programs == 11
    n[..., 1] = 0.0
    with pytest.raises(ValueError, match="no row with a label"):
        solve_ideal(n / n.sum(), TableInterval(table), "equal_opportunity", 0.1, blind=True)
    for groups in range(1, 12):
        bins = usual_bins(groups, 100)
        assert bins == 100 or rules_of(bins, groups) <= USUAL < rules_of(bins + 1, groups)


def test_what_cannot_be_had_is_missed_by_the_least() -> None:
    """A slack below 0 asks for more than a constant rule gives."""
    _, n, C = drawn(1)
    for single in (False, True):
        found = solve_ideal(n, TableInterval(C.sum(0)), "equal_opportunity", -0.2, single=single)
        assert not found.feasible
        assert found.violation == pytest.approx(0.2, abs=1e-6)
        assert np.isnan(found.bound)
