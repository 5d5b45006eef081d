"""Worst cases over all tables that a survey leaves open, against programs written anew."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from fairfix.methods.robust.histogram import range_of
from fairfix.noise.bounds import valid_radius
from fairfix.noise.rates import DEMANDS, LABELS, RATIOS, cells_of
from fairfix.noise.score_bin_bounds import (
    BoundedDependence,
    ClassConditional,
    KnownTable,
    KnownTableByLabel,
    rate_bounds,
)
from fairfix.noise.thresholds import solve_noisy
from fairfix.noise.training import TableInterval
from fairfix.noise.uncertainty_set import Range, entry_ends, largest_radii
from scipy.optimize import linprog
from scipy.stats import binomtest

from tests.strategies import examples
from tests.test_noise.programs import Cut, least_by_cuts
from tests.test_noise.test_thresholds import draw, seen, true_excess

KEEPS = ("true-given-noisy", "noisy-given-true")


def around(table: np.ndarray, keep: str, wide: float) -> Range:
    """Return the range within ``wide`` of a table's shares."""
    share = table / table.sum(-2 if keep == "true-given-noisy" else -1, keepdims=True)
    return Range(np.maximum(share - wide, 0.0), np.minimum(share + wide, 1.0), keep)  # type: ignore[arg-type]  # a Keep


def farthest(
    n: np.ndarray, between: Range, group: int, value: np.ndarray, labels: list[int], sign: float, eps: float
) -> tuple[float, np.ndarray]:
    """Return the least (sign 1) or largest rate of a group, and the joint masses that have it, shape (J, K, B, 2).

    Variables are the masses of all groups and the scale, the denominator is 1, and nothing is left out.
    """
    groups, noisy, (bins, two) = between.shape[-2], len(n), n.shape[1:]
    shape = (groups, noisy, bins, two)
    size, equal, under = int(np.prod(shape)), [], []

    def row(scale: float, *places: tuple[tuple[object, ...], float]) -> np.ndarray:
        out = np.zeros(shape)
        for at, number in places:
            out[at] += number
        return np.append(out.ravel(), scale)

    every = slice(None)
    for k, b, y in itertools.product(range(noisy), range(bins), range(two)):
        equal.append(row(-n[k, b, y], ((every, k, b, y), 1.0)))
    for part in (0, 1) if between.ndim == 3 else (every,):
        low, high = (end[part] if between.ndim == 3 else end for end in (between.low, between.high))
        for j, k in itertools.product(range(groups), range(noisy)):
            whole = (every, k, every, part) if between.keep == KEEPS[0] else (j, every, every, part)
            own = (j, k, every, part)
            under.append(row(0.0, (own, 1.0), (whole, -high[j, k])))
            under.append(row(0.0, (own, -1.0), (whole, low[j, k])))
            for b, y in itertools.product(range(bins), range(two)) if eps < 1 else ():
                if between.ndim == 3 and y != part:
                    continue
                cell, of_cell = (j, k, b, y), (j, every, b, y)
                under.append(row(0.0, (cell, 1.0), (of_cell, -high[j, k] - eps)))
                under.append(row(0.0, (cell, -1.0), (of_cell, low[j, k] - eps)))
    goal, bottom = np.zeros(shape), np.zeros(shape)
    goal[group][..., labels] = sign * value[..., None]
    bottom[group][..., labels] = 1.0
    answer = linprog(
        np.append(goal.ravel(), 0.0),
        A_ub=np.array(under),
        b_ub=np.zeros(len(under)),
        A_eq=np.array([*equal, np.append(bottom.ravel(), 0.0)]),
        b_eq=np.append(np.zeros(len(equal)), 1.0),
        method="highs",
    )
    assert answer.status == 0
    return sign * float(answer.fun), answer.x[:size].reshape(shape) / answer.x[-1]


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("labelled", [False, True])
def test_bounds_over_a_range_are_those_of_linear_programs(labelled: bool, keep: str) -> None:
    """Under each assumption; at least as wide as by the table in the middle."""
    for seed in range(examples(3)):
        q = draw(seed, 2 + seed % 2, 2 + seed % 2, 3)
        n, C, by_label = seen(q)
        between = around(by_label if labelled else C, keep, 0.05)
        F = np.sort(np.random.default_rng(seed).random(n.shape[:2]), 1)
        for rate in ("selection_rate", "true_positive_rate", "false_positive_rate"):
            for assumption, eps in (
                (KnownTableByLabel() if labelled else KnownTable(), 1.0),
                (BoundedDependence(0.3), 0.3),
            ):
                if eps < 1 and keep == KEEPS[0]:
                    with pytest.raises(ValueError, match="eps is about P"):
                        rate_bounds(n, between, F, rate, assumption)
                    continue
                low, high = rate_bounds(n, between, F, rate, assumption)
                for j in range(len(q)):
                    ends = [
                        farthest(n, between, j, F, list(LABELS[rate]), sign, eps)[0] for sign in (1.0, -1.0)
                    ]
                    np.testing.assert_allclose((low[j], high[j]), ends, atol=1e-6)
                inside = rate_bounds(n, by_label if labelled else C, F, rate, BoundedDependence(eps))
                assert (low <= inside[0] + 1e-7).all()
                assert (high >= inside[1] - 1e-7).all()


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("labelled", [False, True])
def test_tables_between_the_ends_of_a_range_allow_all_that_it_does(labelled: bool, keep: str) -> None:
    """No less; and no more where it is of P(true | noisy), whose columns know nothing of one another.

    Of P(noisy | true) they allow more, but no more than tables without any sum would. The worst noise is one of them.
    """
    for seed in range(examples(4)):
        n, C, by_label = seen(draw(seed, 2 + seed % 2, 2 + seed % 3 // 2, 3))
        between = around(by_label if labelled else C, keep, 0.05)
        parts = [(n[..., y].sum(1), between[y]) for y in (0, 1)] if labelled else [(n.sum((1, 2)), between)]
        low, high = (np.squeeze(end) for end in zip(*(entry_ends(*part) for part in parts), strict=True))
        adversary = TableInterval(np.asarray(low), np.asarray(high))
        accept = np.random.default_rng(seed).random(n.shape[:2]) < 0.5
        cells = cells_of(*((n * one[..., None]).sum(1) for one in (accept, ~accept)))
        for rate in ("selection_rate", "true_positive_rate"):
            ends = adversary.bounds(cells, RATIOS[rate])
            exact = rate_bounds(
                n, between, accept * 1.0, rate, KnownTableByLabel() if labelled else KnownTable()
            )
            assert (ends[0] <= exact[0] + 1e-6).all()
            assert (ends[1] >= exact[1] - 1e-6).all()
            if keep == KEEPS[0]:
                np.testing.assert_allclose(ends, exact, atol=1e-6)
            else:
                assert max(np.abs(ends[i] - exact[i]).max() for i in (0, 1)) <= 0.25
            worst = adversary.shares(cells, RATIOS[rate])
            won = (worst * np.array(RATIOS[rate].a)).sum((1, 2))
            np.testing.assert_allclose(won, ends[0], atol=1e-9)


def test_ends_of_entries_that_no_table_has_are_refused() -> None:
    narrow = Range(np.full((2, 2), 0.5), np.full((2, 2), 0.5), "noisy-given-true")
    with pytest.raises(ValueError, match=r"P\(noisy \| true\) that is consistent with the survey gives"):
        entry_ends(np.array([0.9, 0.1]), narrow)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("parity", list(DEMANDS)[:4])
def test_thresholds_over_a_range_hold_for_every_table_in_it_and_are_the_best(parity: str, keep: str) -> None:
    """Cutting planes with the worst masses of the other program, which are themselves true groups that are held."""
    binds = 0
    for seed in range(examples(2)):
        q = draw(seed, 2, 2, 3)
        n, _, by_label = seen(q)
        between = around(by_label, keep, 0.04)
        found = solve_noisy(n, between, parity, 0.06, KnownTableByLabel())  # type: ignore[arg-type]  # a Parity
        assert found.feasible
        assert found.violation <= 1e-6
        assert true_excess(q, found.F, parity, 0.15) <= 1e-6

        def cuts(x: np.ndarray, n: np.ndarray = n, between: Range = between) -> Iterator[Cut]:
            for (rate, sign), j in itertools.product(DEMANDS[parity], range(2)):  # type: ignore[index]  # a Parity
                labels = list(LABELS[rate])
                _, bad = farthest(n, between, j, x.reshape(2, 3), labels, sign, 1.0)
                own, taken = n[..., labels].sum(-1), bad[j][..., labels].sum(-1)
                yield sign * (own / own.sum() - taken / taken.sum()).ravel(), 0.06

        best = least_by_cuts((n[..., 0] - n[..., 1]).ravel(), (2, 3), cuts)
        assert found.error == pytest.approx(best.fun + n[..., 1].sum(), abs=1e-6)
        known = solve_noisy(n, by_label, parity, 0.06, KnownTableByLabel())  # type: ignore[arg-type]  # a Parity
        binds += found.error > known.error + 1e-4
    assert binds


def test_radii_of_a_range_are_the_largest_of_its_tables() -> None:
    """No table in it has a larger one, and some table nearly has it."""
    rng = np.random.default_rng(0)
    for keep in KEEPS:
        q = draw(1, 3, 3, 2)
        n, C, _ = seen(q)
        between, own = around(C, keep, 0.06), n.sum((1, 2))
        radii, nearest = largest_radii(own, between, np.arange(3)), np.zeros(3)
        for _ in range(150):
            cost = rng.normal(size=9)
            under, right = [], []
            for j, k in itertools.product(range(3), range(3)):
                for sign, end in ((1.0, between.high[j, k]), (-1.0, between.low[j, k])):
                    row = np.zeros((3, 3))
                    row[j, k] += sign
                    row[(slice(None), k) if keep == KEEPS[0] else (j, slice(None))] -= sign * end
                    under.append(row.ravel())
                    right.append(0.0)
            columns = np.array([np.eye(3)[k][None].repeat(3, 0).ravel() for k in range(3)])
            vertex = linprog(cost, A_ub=np.array(under), b_ub=right, A_eq=columns, b_eq=own, method="highs")
            nearest = np.maximum(nearest, valid_radius(np.maximum(vertex.x.reshape(3, 3), 0.0)))
        assert (nearest <= radii + 1e-7).all()
        assert (nearest >= radii - 0.03).all()


def test_limits_of_shares_are_those_of_clopper_and_pearson_for_all_entries_together() -> None:
    counts = np.array([[40.0, 3.0, 0.0], [10.0, 57.0, 0.0]])
    for keep, axis in zip(KEEPS, (0, 1), strict=True):
        between = range_of(counts, keep, 0.9)
        totals = np.broadcast_to(counts.sum(axis, keepdims=True), counts.shape)
        for at in np.ndindex(*counts.shape):
            if totals[at] == 0:
                assert (between.low[at], between.high[at]) == (0.0, 1.0)
                continue
            limits = binomtest(int(counts[at]), int(totals[at])).proportion_ci(1 - 0.1 / 6, method="exact")
            np.testing.assert_allclose((between.low[at], between.high[at]), limits, atol=1e-9)


def test_what_a_survey_rules_out_is_refused() -> None:
    """An empty set of tables would let every constraint vanish."""
    q = draw(0, 2, 2, 3)
    n, C, _ = seen(q)
    share = np.array([[0.99, 0.01], [0.98, 0.02]])  # nobody is recorded as the second
    narrow = Range(np.maximum(share - 0.001, 0.0), share + 0.001, "noisy-given-true")
    with pytest.raises(ValueError, match=r"no P\(noisy \| true\) that is consistent with the survey gives"):
        solve_noisy(n, narrow, "demographic_parity", 0.05, KnownTable())
    with pytest.raises(ValueError, match="not identified by a range"):
        solve_noisy(n, around(C, KEEPS[0], 0.1), "demographic_parity", 0.05, ClassConditional())
