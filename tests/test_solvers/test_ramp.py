"""The exact ramp against quadratic programs, brute force over rho, and the laws of the problem."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from itertools import permutations

import numpy as np
import pytest
import quadprog
from fairfix.solvers.ramp import Cell, RampSolution, solve
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import examples

# ---- instances and independent oracles -----------------------------------------------------------------


def draw(rng: np.random.Generator) -> tuple[list, list, float, float]:
    """Return scores and weights per cell, gamma and slack of a small instance, from one of five kinds."""
    cells = int(rng.integers(2, 11))
    sizes = rng.integers(1, max(2, 60 // cells) + 1, size=cells)
    shift = rng.uniform(-0.5, 0.5, size=cells)
    kind = rng.integers(5)
    scores = []
    for size, s in zip(sizes, shift, strict=True):
        f = np.clip(rng.uniform(-0.7, 0.7, size=size) + s, -1, 1)
        if kind == 1:  # few values
            f = np.round(f * 4) / 4
        elif kind == 2:  # clumped at both ends
            f = np.where(rng.random(size) < 0.7, np.sign(f), f)
        elif kind == 3:  # one value per cell
            f = np.full(size, f[0])
        scores.append(f)
    weights = [10 ** rng.uniform(-1.5, 1.5, size=size) if kind != 4 else np.ones(size) for size in sizes]
    gamma = 10 ** rng.uniform(-3, 0.5)
    slack = float(rng.choice([0.0, 0.01, 0.1, 0.3]))
    return scores, weights, gamma, slack


def made(scores: list, weights: list | None = None) -> list[Cell]:
    """Return the cells of an instance."""
    return [Cell.of(f, w) for f, w in zip(scores, weights or [None] * len(scores), strict=True)]


def value(q: np.ndarray, f: np.ndarray, w: np.ndarray, gamma: float) -> float:
    """Return the objective per unit of weight, straight from its definition."""
    return float(np.sum(w * (gamma / 2 * q**2 - f * q)) / w.sum())


def program(
    scores: list, weights: list, gamma: float, slack: float, rho: float | None, ratio: float = 1.0
) -> float:
    """Return the optimum by a dense quadratic program in the shares alone (a free rho is eliminated)."""
    f, w = np.concatenate(scores), np.concatenate(weights)
    w = w / w.sum()
    cell = np.repeat(np.arange(len(scores)), [len(s) for s in scores])
    means = np.array([np.where(cell == k, w, 0) / w[cell == k].sum() for k in range(len(scores))])
    if rho is None:
        pairs = np.array([ratio * means[a] - means[b] for a, b in permutations(range(len(scores)), 2)])
        equal, at = means[1:] - means[0], np.zeros(len(scores) - 1)
        below, room = -pairs, np.full(len(pairs), -slack)
    else:
        equal, at = means, np.full(len(scores), rho)
        below = np.vstack([means, -means])
        room = np.concatenate([np.full(len(scores), rho - slack / 2), np.full(len(scores), -rho - slack / 2)])
    exact = slack == 0 and ratio == 1
    band, edge = (equal, at) if exact else (below, room)
    n = f.size
    # in units p = q sqrt(w gamma): the identity as quadratic form, which a narrow ramp does not ill-condition
    unit = np.sqrt(w * gamma)
    rows = np.vstack([band, np.eye(n), -np.eye(n)]) / unit
    right = np.concatenate([edge, np.zeros(n), -np.ones(n)])
    norm = np.linalg.norm(rows, axis=1)
    p = quadprog.solve_qp(
        np.eye(n), w * f / unit, (rows / norm[:, None]).T, right / norm, len(at) if exact else 0
    )[0]
    return value(p / unit, f, w, gamma)


def shares(solution: RampSolution, scores: list, gamma: float) -> list[np.ndarray]:
    """Return the shares of all points, cell by cell."""
    parts = zip(scores, solution.offsets, solution.remainders, strict=True)
    return [np.clip((f - t - rest) / gamma, 0, 1) for f, t, rest in parts]


def dual(
    solution: RampSolution, scores: list, weights: list, gamma: float, slack: float, given: bool
) -> float:
    """Return the Lagrangian dual value at the offsets, summed over the points by its definition."""
    t = solution.offsets + solution.remainders
    total = np.array([w.sum() for w in weights])
    inner = 0.0
    for f, w, offset, rest in zip(scores, weights, solution.offsets, solution.remainders, strict=True):
        u = f - offset - rest
        inner += np.sum(w * np.where(u <= 0, 0.0, np.where(u >= gamma, gamma / 2 - u, -(u**2) / (2 * gamma))))
    pull = float(total @ t)
    price = slack / 2 * float(total @ np.abs(t))
    return (inner - price - (solution.rho * pull if given else max(0.0, pull))) / total.sum()


# ---- optimality ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("seed", range(examples(10)))
def test_objective_equals_that_of_a_quadratic_program(seed: int, free: bool) -> None:
    """Ties, clumps, single values and weights over three orders: the program finds nothing better."""
    rng = np.random.default_rng(seed)
    for _ in range(30):
        scores, weights, gamma, slack = draw(rng)
        rho = None if free else float(rng.random())
        if rho is not None and slack > 0 and rng.random() < 0.3:
            rho = float(rho > 0.5)  # without slack, one point is feasible, and the program finds none
        solution = solve(made(scores, weights), gamma, slack, rho)
        oracle = program(scores, weights, gamma, slack, rho)
        assert solution.objective == pytest.approx(oracle, abs=1e-10)
        assert solution.converged


@pytest.mark.parametrize("free", [False, True])
def test_solution_is_feasible_and_certified_point_by_point(free: bool) -> None:
    """Shares recomputed from the offsets keep the band to 1e-12; value minus dual value is the gap."""
    rng = np.random.default_rng(20)
    for _ in range(150):
        scores, weights, gamma, slack = draw(rng)
        gamma = float(rng.choice([gamma, 1e-6]))
        rho = None if free else float(rng.random())
        solution = solve(made(scores, weights), gamma, slack, rho)
        q = shares(solution, scores, gamma)
        means = np.array([np.average(a, weights=w) for a, w in zip(q, weights, strict=True)])
        assert means == pytest.approx(solution.rates, abs=1e-13)
        assert np.all(np.abs(means - solution.rho) <= slack / 2 + 1e-12)
        primal = value(np.concatenate(q), np.concatenate(scores), np.concatenate(weights), gamma)
        assert solution.objective == pytest.approx(primal, abs=1e-13)
        gap = primal - dual(solution, scores, weights, gamma, slack, not free)
        assert solution.gap == pytest.approx(gap, abs=1e-12)
        assert -1e-12 <= solution.gap <= 1e-9


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.8, 0.99])
def test_the_ratio_is_held_at_the_optimum_of_a_quadratic_program(ratio: float) -> None:
    """The least mean is at least the share of the greatest, and no shares that keep to that are better."""
    rng, bound = np.random.default_rng(5), 0
    for _ in range(25):
        scores, weights, gamma, _ = draw(rng)
        solution = solve(made(scores, weights), gamma, 0.0, ratio=ratio)
        q = shares(solution, scores, gamma)
        means = np.array([np.average(a, weights=w) for a, w in zip(q, weights, strict=True)])
        bound += abs(means.min() - ratio * means.max()) < 1e-9
        assert means.min() >= ratio * means.max() - 1e-12
        primal = value(np.concatenate(q), np.concatenate(scores), np.concatenate(weights), gamma)
        assert primal == pytest.approx(program(scores, weights, gamma, 0.0, None, ratio), abs=1e-9)
        assert solution.objective == pytest.approx(primal, abs=1e-12)
        assert solution.converged
        assert -1e-12 <= solution.gap <= 1e-9
    assert bound > (15 if ratio > 0.5 else 3 * (ratio > 0))


def test_a_search_cut_short_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """With too few steps the offsets are not the best ones; the gap covers what that loses."""
    rng = np.random.default_rng(9)
    cells = made([np.tanh(rng.normal(size=500) * s + s - 1) for s in (0.4, 1.0, 3.0)])
    best = solve(cells, 1.5, 0.02)
    monkeypatch.setattr("fairfix.solvers.ramp.STEPS", 2)
    short = solve(cells, 1.5, 0.02)
    assert best.converged
    assert not short.converged
    assert np.ptp(short.rates) <= 0.02 + 1e-12
    assert 1e-9 < short.objective - best.objective <= short.gap


def test_a_flat_piece_gives_no_offset_of_the_wrong_sign() -> None:
    """Where the band ends within rounding of the free rate, a flat piece around zero is cut at zero."""
    for n in range(2, 30):
        cell = Cell.of(
            [-0.9] * (n - 1) + [0.5]
        )  # any offset in [-0.9, 0.4] gives rate 1/n; the middle is -0.25
        for hair in np.linspace(0.97e-14, 1.03e-14, 25):
            solution = solve([cell], 0.1, 0.02, 1 / n - 0.01 - hair)
            assert solution.offsets[0] >= 0
            assert solution.gap <= 1e-9


def test_means_keep_their_digits_behind_a_heavy_point() -> None:
    """Behind a point as heavy as a billion others no rounding per point gathers: means are met as elsewhere."""
    weights = np.full(300_000, 0.1)
    weights[0] = 1e8
    cell = Cell.of(np.arange(weights.size), weights)
    for rate in (1e-5, 1e-4, 0.5):
        solution = solve([cell], 10.0, 0.0, rate)
        assert solution.converged
        q = np.clip((cell.scores - solution.offsets[0] - solution.remainders[0]) / 10.0, 0, 1)
        assert np.average(q, weights=weights) == pytest.approx(rate, abs=1e-13)


def test_jump_of_discrete_scores_leaves_rho_exact() -> None:
    """Two scores per cell and a narrow ramp: the best common rate is a level of one cell, met by both."""
    scores = [np.array([-0.5, -0.5, 0.9, 0.9]), np.array([-0.9] * 7 + [0.6])]
    solution, best = solve(made(scores), 0.01, 0.0), program(scores, [np.ones(4), np.ones(8)], 0.01, 0, None)
    # up to 1/8 a larger rate pays: 4 * 0.9 + 8 * 0.6 > 0; beyond, it does not: 4 * 0.9 - 8 * 0.9 < 0
    assert solution.rho == pytest.approx(1 / 8, abs=1e-13)
    assert solution.rates == pytest.approx([1 / 8, 1 / 8], abs=1e-13)
    assert solution.objective == pytest.approx(best, abs=1e-10)


# ---- exactness at size ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("gamma", "weighted"), [(0.1, False), (1e-6, False), (3.0, True)])
def test_a_million_points_meet_the_rate_to_twelve_digits(gamma: float, weighted: bool) -> None:
    """Rates summed over the unsorted million with numpy alone equal rho, whatever the width of the ramp."""
    rng = np.random.default_rng(5)
    scores = [np.tanh(rng.normal(size=n) * 4 + s) for n, s in ((10**6, 0.3), (2 * 10**5, -0.4))]
    weights = [rng.exponential(size=f.size) + 1e-3 if weighted else np.ones(f.size) for f in scores]
    cells = made(scores, weights if weighted else None)
    for rho in (0.37, None):
        solution = solve(cells, gamma, 0.0, rho)
        assert solution.converged
        for q, w in zip(shares(solution, scores, gamma), weights, strict=True):
            assert np.average(q, weights=w) == pytest.approx(solution.rho, abs=1e-12)


@pytest.mark.parametrize("gamma", [1e-6, 1e-3, 1.0])
def test_remainder_keeps_twelve_digits_where_all_scores_tie(gamma: float) -> None:
    """One score for all points of a cell: an offset of one float would be 1e-11 off at the narrowest ramp."""
    scores = [np.full(1000, 0.9), np.full(10, 0.7)]
    for rho in (0.123456789, None):
        solution = solve(made(scores), gamma, 0.0, rho)
        for q in shares(solution, scores, gamma):
            assert q.mean() == pytest.approx(solution.rho, abs=1e-13)
        assert np.all(np.abs(solution.remainders) <= np.spacing(np.abs(solution.offsets)))


# ---- roots ---------------------------------------------------------------------------------------------


def test_root_on_a_flat_piece_is_its_middle() -> None:
    """Between scores further apart than the ramp is wide, the ramp may stand anywhere; it stands midway."""

    def root(scores: list[float], weights: list[float] | None, rate: float, gamma: float) -> float:
        far = np.array(scores) + 16.0  # so that without an offset all are above the ramp
        return float(solve([Cell.of(far, weights)], gamma, 0.0, rate).offsets[0]) - 16.0

    assert root([-0.8, -0.8, 0.4, 0.8], None, 0.5, 0.2) == pytest.approx((-0.8 + 0.4 - 0.2) / 2, abs=1e-14)
    assert root([-0.8, -0.8, 0.4, 0.8], None, 0.25, 0.2) == pytest.approx((0.4 + 0.8 - 0.2) / 2, abs=1e-14)
    for k in range(1, 10):  # 10 (1 - k/10) is a hair below, at, or above a whole number
        for weights in (None, [0.1] * 10):
            assert root(list(range(10)), weights, k / 10, 0.5) == pytest.approx(9 - k + 0.25, abs=1e-14)
    assert root([0.8, -0.8, 0.4], [1.0, 2.0, 1.0], 0.5, 0.2) == pytest.approx(-0.3, abs=1e-14)


def test_root_at_the_ends_touches_the_extreme_scores() -> None:
    """Rate 0 puts the foot of the ramp on the highest score, rate 1 its top on the lowest."""
    for cell in (Cell.of([0.1, -0.7, 0.6]), Cell.of([0.1, -0.7, 0.6], [0.3, 7.0, 0.1])):
        for rho, end in ((0.0, 0.6), (1.0, -0.95)):
            solution = solve([cell], 0.25, 0.0, rho)
            assert solution.offsets[0] == end
            assert solution.rates == pytest.approx([rho], abs=1e-15)
            assert solution.converged


# ---- inactive constraints ------------------------------------------------------------------------------


def test_offsets_are_exactly_zero_where_nothing_binds() -> None:
    """Zero to the bit: infinite slack, a band just wide enough, one cell, and cells inside their band."""
    rng = np.random.default_rng(7)
    cells = made([rng.uniform(-1, 1, 50) + s for s in (-0.3, 0.0, 0.4)])
    free = np.array([cell.reached(0.0, 0.0, 0.2)[0] for cell in cells])
    for solution in (
        solve(cells, 0.2, np.inf),
        solve(cells, 0.2, np.inf, 0.1),
        solve(cells, 0.2, float(np.ptp(free))),
        solve(cells[:1], 0.2, 0.0),
        solve([cells[0], cells[0]], 0.2, 0.0),
    ):
        assert not solution.offsets.any()
        assert not solution.remainders.any()
        assert solution.gap == 0.0
        assert solution.converged
    loose = solve(cells, 0.2, np.inf)
    assert loose.rho == pytest.approx((free.min() + free.max()) / 2, abs=1e-15)
    assert loose.iterations == 0
    middle = solve(cells, 0.2, 0.02, float(free[1]))
    assert middle.offsets[1] == 0.0
    assert middle.offsets[0] < 0 < middle.offsets[2]
    assert middle.rates == pytest.approx([free[1] - 0.01, free[1], free[1] + 0.01], abs=1e-13)


def test_zero_inside_a_flat_piece_is_kept() -> None:
    """A cell whose free rate is a level of its scores stays at zero while the other one moves."""
    cells = [Cell.of([-0.5, 0.9]), Cell.of([0.7, 0.8, 0.9, -0.3])]
    solution = solve(cells, 0.1, 0.0, 0.5)
    assert solution.offsets[0] == 0.0
    assert solution.offsets[1] > 0


def test_a_band_edge_beyond_zero_or_one_never_binds() -> None:
    """With the band reaching below 0 only high cells move, above 1 only low ones."""
    cells = [Cell.of([-0.9, -0.8]), Cell.of([0.9, 0.8])]
    low, high = solve(cells, 0.5, 0.2, 0.05), solve(cells, 0.5, 0.2, 0.95)
    assert low.offsets[0] == 0.0
    assert low.rates == pytest.approx([0.0, 0.15], abs=1e-14)
    assert high.offsets[1] == 0.0
    assert high.rates == pytest.approx([0.85, 1.0], abs=1e-14)


def test_single_points_share_a_rate_in_closed_form() -> None:
    """One point per cell, no slack: the common share minimises a parabola, clipped to [0, 1]."""
    for f, g, weight in [(0.9, -0.3, 1.0), (0.5, 0.2, 30.0), (-0.9, 0.1, 2.0), (0.9, 0.8, 1e9)]:
        solution = solve([Cell.of([f]), Cell.of([g], [weight])], 0.7, 0.0)
        mean = (f + weight * g) / (1 + weight)
        assert solution.rates == pytest.approx([np.clip(mean / 0.7, 0, 1)] * 2, abs=1e-12)


@pytest.mark.parametrize("ratio", [1e-9, 1e-4, 1e9])
def test_wildly_different_cells_still_meet(ratio: float) -> None:
    """A cell a billion times heavier than the other keeps its own rate, and the light one follows."""
    rng = np.random.default_rng(8)
    scores = [rng.uniform(-1, 1, 40), rng.uniform(-0.5, 1, 30)]
    weights = [np.ones(40), np.full(30, ratio)]
    solution = solve(made(scores, weights), 0.1, 0.0)
    assert solution.converged
    assert np.ptp(solution.rates) <= 1e-12
    heavy = int(ratio > 1)
    if ratio != 1e-4:
        assert solution.rho == pytest.approx(Cell.of(scores[heavy]).reached(0.0, 0.0, 0.1)[0], abs=1e-7)


# ---- laws ----------------------------------------------------------------------------------------------

instances = st.integers(0, 2**32 - 1).map(lambda seed: draw(np.random.default_rng(seed)))
rhos = st.one_of(st.none(), st.floats(0, 1))


@given(instances, rhos)
@settings(max_examples=examples(60))
def test_weight_two_is_the_point_twice(instance: tuple, rho: float | None) -> None:
    """Integer weights and repeated points have one solution."""
    scores, _, gamma, slack = instance
    times = [np.arange(f.size) % 3 + 1 for f in scores]
    weighted = solve(made(scores, times), gamma, slack, rho)
    repeated = solve(made([np.repeat(f, c) for f, c in zip(scores, times, strict=True)]), gamma, slack, rho)
    assert weighted.rates == pytest.approx(repeated.rates, abs=1e-12)
    assert weighted.offsets == pytest.approx(repeated.offsets, abs=1e-12)
    assert weighted.objective == pytest.approx(repeated.objective, abs=1e-12)


@given(instances, rhos, st.integers(0, 99))
@settings(max_examples=examples(60))
def test_order_of_points_does_not_matter(instance: tuple, rho: float | None, seed: int) -> None:
    """A permutation leaves the solution the same: to the bit unweighted, to rounding weighted."""
    scores, weights, gamma, slack = instance
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(f.size) for f in scores]
    mixed = [f[o] for f, o in zip(scores, orders, strict=True)]
    plain, moved = solve(made(scores), gamma, slack, rho), solve(made(mixed), gamma, slack, rho)
    assert np.array_equal(plain.offsets, moved.offsets)
    assert plain.objective == moved.objective
    heavy = solve(made(scores, weights), gamma, slack, rho)
    other = solve(made(mixed, [w[o] for w, o in zip(weights, orders, strict=True)]), gamma, slack, rho)
    assert heavy.rates == pytest.approx(other.rates, abs=1e-12)
    assert heavy.objective == pytest.approx(other.objective, abs=1e-12)


@given(instances, rhos)
@settings(max_examples=examples(60))
def test_units_of_scores_and_weights_do_not_matter(instance: tuple, rho: float | None) -> None:
    """Scores and width times 4 is 4 times the offsets; weights times 8 changes nothing; both to the bit."""
    scores, weights, gamma, slack = instance
    here = solve(made(scores, weights), gamma, slack, rho)
    there = solve(made([4 * f for f in scores], [8 * w for w in weights]), 4 * gamma, slack, rho)
    assert np.array_equal(there.offsets, 4 * here.offsets)
    assert np.array_equal(there.rates, here.rates)
    assert there.rho == here.rho


# ---- gates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "weights", "message"),
    [
        ([], None, "at least one"),
        ([[0.1]], None, "at least one"),
        ([0.1, np.nan], None, "finite"),
        ([0.1, -np.inf], None, "finite"),
        ([0.1, np.nan], [1, 1], "finite"),
        ([0.1, 0.2], [1.0], "one weight per point"),
        ([0.1, 0.2], [1.0, 0.0], "weight 0"),
        ([0.1, 0.2], [1.0, np.nan], "positive and finite"),
        ([0.1, 0.2], [1.0, np.inf], "positive and finite"),
    ],
)
def test_bad_points_are_refused(scores: list, weights: list | None, message: str) -> None:
    """A cell that exists is valid."""
    with pytest.raises(ValueError, match=message):
        Cell.of(scores, weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": 0.0}, "gamma"),
        ({"gamma": np.nan}, "gamma"),
        ({"gamma": np.inf}, "gamma"),
        ({"slack": -0.1}, "slack"),
        ({"slack": np.nan}, "slack"),
        ({"rho": 1.1}, "rho"),
        ({"rho": np.nan}, "rho"),
        ({"cells": []}, "at least one cell"),
    ],
)
def test_numbers_out_of_range_are_refused(change: dict, message: str) -> None:
    """Each parameter is named when it is out of range."""
    with pytest.raises(ValueError, match=message):
        solve(**({"cells": [Cell.of([0.1])], "gamma": 0.1, "slack": 0.0, "rho": 0.5} | change))


def test_results_and_inputs_stay_as_they_are() -> None:
    """Cells and solutions are read-only, and the caller's arrays are neither sorted nor locked."""
    scores, weights = np.array([0.5, -0.5]), np.array([1.0, 2.0])
    cell = Cell.of(scores, weights)
    solution = solve([cell], 0.1, 0.0, 0.5)
    for array in (cell.scores, cell.weights, solution.offsets, solution.rates):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    with pytest.raises(FrozenInstanceError):
        solution.rho = 0.1
    assert scores.tolist() == [0.5, -0.5]
    assert scores.flags.writeable
    assert weights.flags.writeable
