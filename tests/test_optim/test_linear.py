"""Ramps under linear constraints, covariances and pairs of means, held against quadratic programs."""

from __future__ import annotations

import numpy as np
import pytest
import quadprog
from fairfix.optim import overlaps
from fairfix.optim.overlaps import solve_overlaps, solve_step_covariances
from fairfix.optim.pairs import solve_covariances, solve_pairs, solve_soft
from fairfix.optim.ramp import Cell, solve, solve_covariance
from fairfix.optim.step import Staircase
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.strategies import examples


def least(
    f: np.ndarray, w: np.ndarray, gamma: float, rows: np.ndarray, bounds: np.ndarray, equal: int = 0
) -> float:
    """Return the least objective of ``rows q >= bounds`` by a general solver; extra columns are free variables."""
    more, w = rows.shape[1] - f.size, w / w.sum()
    hessian = np.diag(np.concatenate([w * gamma, np.full(more, 1e-13)]))
    box = np.eye(f.size, f.size + more)
    constraints = np.vstack([rows, box, -box])
    limits = np.concatenate([bounds, np.zeros(f.size), -np.ones(f.size)])
    q = quadprog.solve_qp(hessian, np.concatenate([w * f, np.zeros(more)]), constraints.T, limits, equal)[0]
    return value(q[: f.size], f, w, gamma)


def value(q: np.ndarray, f: np.ndarray, w: np.ndarray, gamma: float) -> float:
    """Return the objective, divided by the total weight."""
    return float((w * (gamma / 2 * q * q - f * q)).sum() / w.sum())


def points(seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Return scores and weights; every third instance has ties."""
    rng = np.random.default_rng(seed)
    f = rng.uniform(-1, 1, rng.integers(1, 15))
    return (np.round(f, 1) if seed % 3 == 0 else f), rng.uniform(0.1, 2, f.size), rng


# ---- one linear constraint -----------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.floats(0.01, 3), st.booleans())
@settings(max_examples=examples(120))
def test_one_constraint_is_solved_like_a_quadratic_program(seed: int, gamma: float, edge: bool) -> None:
    """Slopes of any sign, zeros and ties: optimal, inside the band around rho, and certified."""
    f, w, rng = points(seed)
    z = rng.normal(size=f.size)
    z = np.round(z) if seed % 3 == 0 else z
    cell = Cell.of(f, w, z)
    low, high = np.clip(cell.range, 0, 1)
    rho, slack = rng.uniform(low, high), 0.0 if edge else rng.uniform(0, high - low)
    found = solve([cell], gamma, slack, rho)
    row, room = w * z / w.sum(), slack / 2

    assert rho - room - 1e-10 <= found.rates[0] <= rho + room + 1e-10
    assert abs(found.gap) <= 1e-9
    try:
        best = least(f, w, gamma, np.stack([row, -row]), np.array([rho - room, -rho - room]))
    except ValueError:
        return  # the reference solver calls a point interval empty where rounding moves its ends apart
    assert found.objective <= best + 1e-9


def test_slopes_of_one_are_a_mean() -> None:
    """Cells with slope 1 give the solver of means the same optimum as sorted cells, to rounding."""
    rng = np.random.default_rng(1)
    scores, weights = [rng.uniform(-1, 1, n) for n in (300, 200)], [rng.random(n) + 0.1 for n in (300, 200)]
    cells = [Cell.of(f, w) for f, w in zip(scores, weights, strict=True)]
    linear = [Cell.of(f, w, np.ones(f.size)) for f, w in zip(scores, weights, strict=True)]
    for slack, rho in ((0.0, None), (0.05, None), (0.0, 0.3)):
        one, other = solve(cells, 0.1, slack, rho), solve(linear, 0.1, slack, rho)
        assert other.converged
        assert other.offsets == pytest.approx(one.offsets, abs=1e-11)
        assert other.objective == pytest.approx(one.objective, abs=1e-12)


def test_bad_points_are_refused() -> None:
    for bad in (([0.1], [np.nan]), ([np.inf, 0.1], [1.0, 1.0]), ([0.1, 0.2], [1.0])):
        with pytest.raises(ValueError, match=r"finite|length"):
            Cell.of(bad[0], None, bad[1])


# ---- covariance with cells -----------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.005, 0.02, 0.1, 2.0]), st.floats(0.01, 2))
@settings(max_examples=examples(60))
def test_covariance_is_solved_like_a_quadratic_program(seed: int, slack: float, gamma: float) -> None:
    """Two to five cells: optimal, every covariance within the slack, certified."""
    rng = np.random.default_rng(seed)
    scores = [rng.uniform(-1, 1, rng.integers(2, 15)) for _ in range(rng.integers(2, 6))]
    scores = [np.round(f, 1) for f in scores] if seed % 3 == 0 else scores
    weights = [rng.uniform(0.1, 2, f.size) for f in scores]
    found = solve_covariance([Cell.of(f, w) for f, w in zip(scores, weights, strict=True)], gamma, slack)
    f, w = np.concatenate(scores), np.concatenate(weights)
    cell = np.repeat(np.arange(len(scores)), [s.size for s in scores])
    part = np.bincount(cell, w) / w.sum()
    rows = np.array([w / w.sum() * ((cell == k) - part[k]) for k in range(part.size)])
    q = np.clip((f - found.offsets[cell] - found.remainders[cell]) / gamma, 0, 1)
    if slack:
        best = least(f, w, gamma, np.vstack([rows, -rows]), np.full(2 * part.size, -slack))
    else:
        best = least(f, w, gamma, rows[:-1], np.zeros(part.size - 1), part.size - 1)

    assert found.converged
    assert np.abs(rows @ q).max() <= slack + 1e-12
    assert value(q, f, w, gamma) == pytest.approx(best, abs=1e-9)
    assert found.objective == pytest.approx(value(q, f, w, gamma), abs=1e-12)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.005, 0.02, 0.1, 2.0]))
@settings(max_examples=examples(60))
def test_covariance_without_width_is_solved_like_a_linear_program(seed: int, slack: float) -> None:
    """Two to five cells, of masses that differ: optimal, every covariance within the slack, certified."""
    rng = np.random.default_rng(seed)
    scores = [rng.uniform(-1, 1, rng.integers(1, 15)) + 0.2 * k for k in range(rng.integers(2, 6))]
    scores = [np.round(f, 1) for f in scores] if seed % 3 == 0 else scores
    weights = [rng.uniform(0.1, 2, f.size) * rng.choice([0.1, 1, 5]) for f in scores]
    found = solve_step_covariances([Staircase.of(f, w) for f, w in zip(scores, weights, strict=True)], slack)
    f, w = np.concatenate(scores), np.concatenate(weights)
    cell = np.repeat(np.arange(len(scores)), [s.size for s in scores])
    part = np.bincount(cell, w) / w.sum()
    rows = np.array([w / w.sum() * ((cell == k) - part[k]) for k in range(part.size)])
    q = np.concatenate([step.shares(own) for step, own in zip(found.steps, scores, strict=True)])
    both = np.vstack([rows, -rows])
    best = -linprog(-w * f / w.sum(), both, np.full(len(both), slack), bounds=[(0, 1)] * f.size).fun

    assert found.converged
    assert np.abs(rows @ q).max() <= slack + 1e-12
    assert w @ (q * f) / w.sum() == pytest.approx(best, abs=1e-9)
    assert found.value == pytest.approx(best, abs=1e-9)
    assert -1e-12 <= found.gap <= 1e-9


@pytest.mark.parametrize("gamma", [1e-6, 0.01])
def test_jumps_of_the_pull_are_met(gamma: float) -> None:
    """Clumped scores under narrow ramps: weighted means and covariances end inside a jump, certified all the same."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        scores = [np.tanh(4 * rng.normal(0.1 - 0.3 * k, 1.2, n)) for k, n in enumerate((110, 55, 35))]
        slopes = [(1 + f) / np.mean(1 + f) for f in scores]
        best = [solve_covariance([Cell.of(f) for f in scores], gamma, 0.004)]
        cells = [Cell.of(f, None, z) for f, z in zip(scores, slopes, strict=True)]
        best += [solve(cells, gamma, slack) for slack in (0.0, 0.02)]
        for found in best:
            assert found.converged
            assert abs(found.gap) <= 1e-9


def test_covariance_of_two_cells_is_a_band() -> None:
    """With shares p and 1-p the covariance is p(1-p) times the difference of the means."""
    rng = np.random.default_rng(3)
    cells = [Cell.of(rng.uniform(-1, 1, n)) for n in (30, 70)]
    found = solve_covariance(cells, 0.1, 0.01)

    np.testing.assert_array_equal(found.offsets, solve(cells, 0.1, 0.01 / 0.21).offsets)
    with pytest.raises(ValueError, match="cell"):
        solve_covariance([], 0.1, 0.0)
    with pytest.raises(ValueError, match="slack"):
        solve_covariance([*cells, cells[0]], 0.1, -0.1)


# ---- two means per cell --------------------------------------------------------------------------------


def odds(seed: int) -> tuple[np.ndarray, ...]:
    """Return eta, slopes of both rates, cells and weights; with ties, zeros and ones in some instances."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 14, rng.integers(2, 5))
    eta = rng.uniform(0.02, 0.98, sizes.sum())
    if seed % 3 == 0:
        eta = np.clip(np.round(1.4 * eta - 0.2, 1), 0, 1)
    cell, w = np.repeat(np.arange(sizes.size), sizes), rng.uniform(0.1, 2, eta.size)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    eta[first] = 0.5
    base = np.bincount(cell, w * eta) / np.bincount(cell, w)
    return eta, np.stack([eta / base[cell], (1 - eta) / (1 - base)[cell]], axis=1), cell, w


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.03, 0.2, 2.0]), st.floats(0.01, 2))
@settings(max_examples=examples(60))
def test_two_means_are_solved_like_a_quadratic_program(seed: int, slack: float, gamma: float) -> None:
    """Ties, zeros and ones of the probability: optimal, both rates within the slack, certified."""
    eta, z, cell, w = odds(seed)
    f = 2 * eta - 1
    found = solve_pairs(f, z, cell, gamma, slack, w)
    rows = []
    for k in range(cell.max() + 1):
        for j in range(2):
            row = np.concatenate([np.where(cell == k, w * z[:, j], 0) / w[cell == k].sum(), np.zeros(2)])
            row[f.size + j] = -1
            rows += [row, -row]
    # half a billionth of room: the reference solver calls bands without any inconsistent
    best = least(f, w, gamma, np.array(rows), np.full(len(rows), -slack / 2 - 5e-10))
    q = np.clip((f - (found.multipliers[cell] * z).sum(axis=1)) / gamma, 0, 1)

    assert found.converged
    assert np.ptp(found.means, axis=0).max() <= slack + 1e-9
    assert value(q, f, w, gamma) == pytest.approx(best, abs=1e-8)
    assert found.objective == pytest.approx(value(q, f, w, gamma), abs=1e-12)
    assert found.objective <= best + 1e-8


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.03, 0.2, 2.0]), st.floats(0.01, 2))
@settings(max_examples=examples(90))
def test_soft_groups_are_solved_like_a_quadratic_program(seed: int, slack: float, gamma: float) -> None:
    """Means weighted by parts of points, of any sums, within the slack; optimal, certified."""
    f, w, rng = points(seed)
    groups = int(rng.integers(2, 5))
    z = rng.dirichlet(np.full(groups, rng.choice([0.2, 1.0, 10.0])), f.size)
    if seed % 2:  # parts that need not sum to 1, some of them 0
        z = z.round(1) * rng.uniform(0.2, 1, f.size)[:, None]
    z[0] = 1 / groups  # every group has a part of a point
    f = np.clip(f + z @ rng.normal(size=groups), -1, 1)
    found = solve_soft(f, z, gamma, slack, w)
    rows = np.concatenate([(z * w[:, None]).T / (w @ z)[:, None], -np.ones((groups, 1))], axis=1)
    both = np.vstack([rows, -rows])
    best = least(f, w, gamma, both, np.full(len(both), -slack / 2 - 5e-10))
    q = np.clip((f - z @ found.multipliers[:, 0]) / gamma, 0, 1)

    loosened = 5e-10 * float(
        w @ z @ np.abs(found.multipliers[:, 0]) / w.sum()
    )  # what the program's band is worth

    assert found.converged
    assert np.ptp((w * q) @ z / (w @ z)) <= slack + 1e-9
    assert value(q, f, w, gamma) == pytest.approx(best, abs=1e-8 + loosened)
    assert found.objective == pytest.approx(value(q, f, w, gamma), abs=1e-12)
    assert -1e-12 <= found.gap <= 1e-9


@given(st.integers(0, 10**6), st.floats(0.01, 2), st.floats(0.0, 0.2))
@settings(max_examples=examples(60))
def test_soft_groups_of_several_kinds_are_solved_like_a_quadratic_program(
    seed: int, gamma: float, slack: float
) -> None:
    """Two kinds of parts, each with its slack."""
    f, w, rng = points(seed)
    groups = int(rng.integers(2, 4))
    eta = rng.uniform(0.1, 0.9, f.size)
    z = rng.dirichlet(np.ones(groups), f.size)[:, :, None] * np.stack([eta, 1 - eta], -1)[:, None]
    slacks, mass = np.array([slack, 2 * slack]), np.einsum("i,ikj->kj", w, z)
    found = solve_soft(f, z, gamma, slacks, w)
    rows, limits = [], []
    for k in range(groups):
        for j in range(2):
            row = np.concatenate([w * z[:, k, j] / mass[k, j], -np.eye(2)[j]])
            rows += [row, -row]
            limits += [-slacks[j] / 2, -slacks[j] / 2]
    best = least(f, w, gamma, np.array(rows), np.array(limits) - 5e-10)
    q = np.clip((f - np.einsum("ikj,kj->i", z, found.multipliers)) / gamma, 0, 1)
    means = np.einsum("i,ikj->kj", w * q, z) / mass

    assert found.converged
    assert (np.ptp(means, axis=0) <= slacks + 1e-9).all()
    np.testing.assert_allclose(found.means, means, atol=1e-12)
    assert value(q, f, w, gamma) == pytest.approx(best, abs=1e-7)
    assert found.objective == pytest.approx(value(q, f, w, gamma), abs=1e-12)
    assert -1e-12 <= found.gap <= 1e-9


@given(st.integers(0, 10**6), st.floats(0.01, 2), st.sampled_from([0.0, 0.01, 0.1]), st.integers(1, 3))
@settings(max_examples=examples(90))
def test_covariances_are_solved_like_a_quadratic_program(
    seed: int, gamma: float, slack: float, many: int
) -> None:
    """Means of shares times numbers within the slack, also where numbers have heavy tails; one is the exact ramp."""
    f, w, rng = points(seed)
    x = rng.standard_t(2, (f.size + 4, many)) if seed % 2 else rng.normal(size=(f.size + 4, many)).round(1)
    f, w = np.concatenate([f, rng.uniform(-1, 1, 4)]), np.concatenate([w, np.ones(4)])
    x -= w @ x / w.sum()
    t, found = solve_covariances(f, x, gamma, slack, w)
    rows = (x * w[:, None]).T / w.sum()
    best = least(f, w, gamma, np.vstack([rows, -rows]), np.full(2 * many, -slack - 5e-10))
    q = np.clip((f - x @ t) / gamma, 0, 1)

    assert found.converged
    assert np.abs(rows @ q).max() <= slack + 1e-9
    assert value(q, f, w, gamma) == pytest.approx(best, abs=1e-7)
    if many == 1:
        alone = solve([Cell.of(f, w, x[:, 0])], gamma, 2 * slack, rho=0.0)
        assert found.objective == pytest.approx(alone.objective, abs=1e-9)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([[0.5, 0.5], [np.nan, 1.0]], "0 or more"),
        ([[-0.1, 1.1], [0.5, 0.5]], "0 or more"),
        ([[0, 1], [0, 1]], "part of"),
    ],
)
def test_soft_groups_refuse_bad_numbers(parts: list, told: str) -> None:
    """Parts are shares, and every group has some."""
    with pytest.raises(ValueError, match=told):
        solve_soft([0.1, 0.2], parts, 0.1, 0.0)


def overlapping(seed: int) -> tuple[np.ndarray, ...]:
    """Return scores, groups by two or three columns of their own, and weights; every third instance has ties."""
    rng = np.random.default_rng(seed)
    many = int(rng.integers(6, 40))
    columns = [
        np.unique(rng.integers(0, size, many), return_inverse=True)[1] for size in rng.integers(2, 5, 2)
    ]
    if seed % 2:  # a column that another one gives away, so that their constraints are not independent
        columns.append(columns[0] > 0)
    cell = np.stack(columns, axis=1).astype(int)
    f = np.clip(rng.uniform(-0.8, 0.8, many) + 0.2 * cell[:, 0] - 0.1 * cell[:, 1], -1, 1)
    return (np.round(f, 1) if seed % 3 == 0 else f), cell, rng.uniform(0.1, 2, many)


def bands(cell: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return two rows for each group of each column, of its mean above and below the column's centre."""
    rows = []
    for j, own in enumerate(cell.T):
        for k in range(own.max() + 1):
            row = np.concatenate([np.where(own == k, w, 0) / w[own == k].sum(), np.zeros(cell.shape[1])])
            row[w.size + j] = -1
            rows += [row, -row]
    return np.array(rows)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.03, 0.2, 2.0]), st.floats(0.01, 2))
@settings(max_examples=examples(90))
def test_groups_of_several_columns_are_solved_like_a_quadratic_program(
    seed: int, slack: float, gamma: float
) -> None:
    """Each column's means within the slack, whatever those of the cells that columns cross to; optimal, certified."""
    f, cell, w = overlapping(seed)
    found = solve_pairs(f, np.ones(cell.shape), cell, gamma, slack, w)
    rows = bands(cell, w)
    best = least(f, w, gamma, rows, np.full(len(rows), -slack / 2 - 5e-10))
    q = np.clip((f - found.multipliers[cell, np.arange(cell.shape[1])].sum(axis=1)) / gamma, 0, 1)

    assert found.converged
    for own in cell.T:
        means = np.bincount(own, w * q) / np.bincount(own, w)
        assert np.ptp(means) <= slack + 1e-9
    assert value(q, f, w, gamma) == pytest.approx(best, abs=1e-8)
    assert found.objective == pytest.approx(value(q, f, w, gamma), abs=1e-12)
    assert -1e-12 <= found.gap <= 1e-9


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.03, 0.2, 2.0]))
@settings(max_examples=examples(90))
def test_groups_of_several_columns_without_width_are_solved_like_a_linear_program(
    seed: int, slack: float
) -> None:
    """Thresholds with tie probabilities of the crossed cells: each column's means within the slack to rounding."""
    f, cell, w = overlapping(seed)
    crossed, code = np.unique(cell, axis=0, return_inverse=True)
    code = code.reshape(-1)  # NumPy 2.0 alone keeps an axis
    stairs = [Staircase.of(f[code == c], w[code == c]) for c in range(len(crossed))]
    found = solve_overlaps(stairs, crossed, slack)
    q = np.zeros(f.size)
    for c, step in enumerate(found.steps):
        q[code == c] = step.shares(f[code == c])
    rows = bands(cell, w)
    box = [(0, 1)] * f.size + [(None, None)] * cell.shape[1]
    cost = np.concatenate([-w * f / w.sum(), np.zeros(cell.shape[1])])
    best = -linprog(cost, -rows, np.full(len(rows), slack / 2), bounds=box).fun

    assert found.converged
    for own in cell.T:
        means = np.bincount(own, w * q) / np.bincount(own, w)
        assert np.ptp(means) <= slack + 1e-12
    assert w @ (q * f) / w.sum() == pytest.approx(best, abs=1e-9)
    assert found.value == pytest.approx(best, abs=1e-9)
    assert -1e-12 <= found.gap <= 1e-9


@pytest.mark.parametrize("slack", [0.0, 0.05])
def test_few_breakpoints_find_the_optimum_of_all(slack: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few breakpoints of each cell, and those that are asked for, lead where a program in all of them leads."""
    rng = np.random.default_rng(2)
    groups = np.array([[g, k] for g in range(3) for k in range(2)])
    stairs = [Staircase.of(rng.uniform(-1, 1, 400) + 0.2 * g - 0.1 * k) for g, k in groups]
    whole = solve_overlaps(stairs, groups, slack)
    monkeypatch.setattr(overlaps, "PLACES", 4)
    few = solve_overlaps(stairs, groups, slack)

    assert few.rounds > whole.rounds
    assert few.converged
    assert few.value == pytest.approx(whole.value, abs=1e-12)
    assert few.rates == pytest.approx(whole.rates, abs=1e-9)


def test_two_means_of_many_points_meet_to_twelve_digits() -> None:
    """The polished multipliers hold both rates together far beyond the interior point method's own precision."""
    rng = np.random.default_rng(4)
    cell = rng.integers(0, 5, 20_000)
    eta = np.clip(rng.beta(2, 3, cell.size) + 0.05 * cell, 0, 1)
    base = np.bincount(cell, eta) / np.bincount(cell)
    z = np.stack([eta / base[cell], (1 - eta) / (1 - base)[cell]], axis=1)
    for slack in (0.0, 0.03):
        found = solve_pairs(2 * eta - 1, z, cell, 0.05, slack)
        assert found.converged
        assert np.ptp(found.means, axis=0).max() == pytest.approx(slack, abs=1e-12)
        assert abs(found.gap) <= 1e-12


@pytest.mark.parametrize("gamma", [1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("overlapping", [False, True])
def test_ramps_of_next_to_no_width_are_solved(gamma: float, overlapping: bool) -> None:
    """Where the dual is nearly linear in pieces the optimum is reached too, with small cells and tied scores."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        cell = rng.choice(5, 600, p=[0.5, 0.3, 0.1, 0.07, 0.03])
        eta = np.round(0.8 * rng.beta(2, 2, 600) + 0.04 * cell, 2).clip(0.01, 0.99)
        base = np.bincount(cell, eta) / np.bincount(cell)
        z = np.stack([eta / base[cell], (1 - eta) / (1 - base[cell])], axis=1)
        if overlapping:
            cell, z = np.stack([cell, rng.integers(0, 2, 600)], axis=1), np.ones((600, 2))
        found = solve_pairs(2 * eta - 1, z, cell, gamma, 0.02)

        assert found.converged
        assert np.ptp(found.means, axis=0).max() <= 0.02 + 2e-9


def test_pairs_refuse_bad_numbers() -> None:
    """Shapes, widths, slacks and empty cells."""
    f, z, c = [0.1, 0.2], [[1.0], [1.0]], [0, 1]
    for change, message in (
        ({"scores": []}, "row"),
        ({"scores": [0.1, np.inf]}, "finite"),
        ({"cells": [0, 2]}, "cell"),
        ({"gamma": 0.0}, "gamma"),
        ({"slack": -1.0}, "slack"),
    ):
        with pytest.raises(ValueError, match=message):
            solve_pairs(**({"scores": f, "slopes": z, "cells": c, "gamma": 0.1, "slack": 0.0} | change))
