"""Laws of the solver of bands: feasible, optimal by a certificate of the test's own, and by an independent solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from fairfix.solvers.band_ramps import solve_ramps
from fairfix.solvers.band_thresholds import solve_thresholds
from fairfix.solvers.bands import Bands
from fairfix.solvers.ramp import Cell, solve
from fairfix.solvers.threshold_curves import ThresholdCurve, mean_of, nearest
from scipy import sparse
from scipy.optimize import linprog

from tests.strategies import examples

Floats = np.ndarray[Any, np.dtype[np.float64]]

GAMMAS = (0.5, 0.05, 1e-3, 1e-6)
SLACKS = (0.0, 0.02, 0.1, 0.7)


class World:
    """Points of some groups by two attributes, with scores that tie in some worlds, and weights."""

    def __init__(self, seed: int, most: int = 300) -> None:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(20, most))
        self.groups, other = (self._codes(rng, n) for _ in range(2))
        self.both = np.stack([self.groups, other], axis=1)
        self.cells = self.groups * 10 + other
        self.weights = rng.choice([1.0, 0.2, 3.0], n)
        eta = rng.beta(2, 2, n) * (0.6 + 0.4 * (self.groups % 2))
        self.eta = np.round(eta, int(rng.choice([1, 2, 6]))).clip(0.01, 0.99)
        self.scores = 2 * self.eta - 1
        self.slack, self.gamma = float(rng.choice(SLACKS)), float(rng.choice(GAMMAS))
        base = np.bincount(self.groups, self.weights * self.eta) / np.bincount(self.groups, self.weights)
        base = base[self.groups]
        self.slopes = np.stack([self.eta / base, (1 - self.eta) / (1 - base)], axis=1)
        self.parts = rng.dirichlet(np.full(3, 0.5), n)
        numbers = rng.normal(size=(n, 2))
        self.numbers = numbers - self.weights @ numbers / self.weights.sum()

    @staticmethod
    def _codes(rng: np.random.Generator, n: int) -> Any:
        many = int(rng.integers(2, 5))
        return rng.permutation(np.concatenate([np.arange(many), rng.integers(0, many, n - many)]))


def _odds(world: World) -> Bands:
    twice = np.stack([world.groups, world.groups], axis=1)
    return Bands.of_groups(twice, world.slack, world.weights, world.slopes)


def joined(bands: Bands, other: Bands) -> Bands:
    """Return the rows of both, over the same points."""
    free = other.centre >= 0
    return replace(
        bands,
        slopes=sparse.vstack([bands.slopes, other.slopes]).tocsr(),
        mass=np.concatenate([bands.mass, other.mass]),
        half=np.concatenate([bands.half, other.half]),
        centre=np.concatenate([bands.centre, np.where(free, other.centre + bands.centres, -1)]),
        target=np.concatenate([bands.target, other.target]),
    )


FAMILIES: dict[str, Callable[[World], Bands]] = {
    "parity": lambda w: Bands.of_groups(w.groups, w.slack, w.weights),
    "given centre": lambda w: Bands.of_groups(w.groups, w.slack, w.weights, centre=0.4),
    "ratio": lambda w: Bands.of_groups(w.groups, 0.0, w.weights, ratio=0.8),
    "one rate": lambda w: Bands.of_groups(w.groups, w.slack, w.weights, w.slopes[:, 0]),
    "odds": _odds,
    "attributes": lambda w: Bands.of_groups(w.both, w.slack, w.weights),
    "ratio of attributes": lambda w: Bands.of_groups(w.both, 0.0, w.weights, ratio=0.7),
    "covariance": lambda w: Bands.of_covariances(w.groups, w.slack / 4, w.weights),
    "numbers": lambda w: Bands.of_parts(w.numbers, w.slack, w.weights, centre=0.0),
    "soft groups": lambda w: Bands.of_parts(w.parts, w.slack, w.weights),
    "parity and numbers": lambda w: joined(
        Bands.of_groups(w.groups, w.slack, w.weights),
        Bands.of_parts(w.numbers, w.slack, w.weights, centre=0.0),
    ),
}
THRESHOLDS = tuple(name for name in FAMILIES if "numbers" not in name and "soft" not in name)


def far(bands: Bands, means: Floats, centres: Floats) -> float:
    """Return how far means are beyond their bands, by the definition."""
    worst = 0.0
    for mean, half, own, target in zip(means, bands.half, bands.centre, bands.target, strict=True):
        at = target if own < 0 else centres[own]
        worst = max(worst, mean - at - half, bands.ratio * at - half - mean)
    return worst


def means_of(bands: Bands, shares: Floats) -> Floats:
    """Return the means of the rows, by dense sums."""
    return np.asarray(bands.slopes.toarray() @ (bands.weights * shares) / bands.mass)


@pytest.mark.parametrize("family", FAMILIES)
def test_ramps_are_optimal_by_their_multipliers(family: str) -> None:
    """Shares lie within the bands, and weak duality leaves nothing above them: no number of the solver is trusted."""
    for seed in range(examples(60)):
        world = World(seed)
        bands, f, gamma = FAMILIES[family](world), world.scores, world.gamma
        best = solve_ramps(f, bands, gamma)
        prices = bands.slopes.toarray().T @ best.multipliers
        shares = np.clip((f - prices) / gamma, 0, 1)
        worth = float(bands.weights @ ((gamma / 2 * shares - f) * shares))
        u, moves = best.multipliers, np.where(best.multipliers < 0, bands.ratio, 1.0)
        lowest = float(bands.weights @ ((gamma / 2 * shares - f + prices) * shares))
        lowest -= float(bands.mass @ (bands.half * np.abs(u) + moves * u * bands.target))
        pull = [float((bands.mass * moves * u)[bands.centre == j].sum()) for j in range(bands.centres)]

        assert best.converged, (seed, best)
        assert far(bands, means_of(bands, shares), best.centres) <= 1e-9, seed
        assert np.abs(pull).max(initial=0.0) <= 1e-9, seed
        assert worth == pytest.approx(
            best.objective, abs=1e-10
        )  # a ramp of 1e-6 makes a million of a rounding
        assert worth - lowest <= 2e-9, seed


@pytest.mark.parametrize("gamma", GAMMAS[:3])
def test_small_groups_and_sure_labels(gamma: float) -> None:
    """Groups of next to no weight, and probabilities of 0 and 1, leave the solvers their digits.

    A group of weight 1e-4 has two multipliers of 1e4 that nearly cancel, which leaves too few digits for ramps of 1e-6.
    """
    for seed in range(examples(90)):
        rng = np.random.default_rng(seed)
        groups = np.concatenate([np.arange(4), rng.choice(4, 40, p=[0.6, 0.3, 0.09, 0.01])])
        eta = rng.beta(2, 2, 44) if seed % 2 else rng.choice([0.0, 1.0, 0.6], 44)
        eta = np.concatenate([np.full(4, 0.5), eta[4:]])
        weights = rng.uniform(1, 20, 44) * np.array([1.0, 1.0, 0.1, 0.01])[groups]
        base = (np.bincount(groups, weights * eta) / np.bincount(groups, weights))[groups]
        slopes = np.stack([eta / base, (1 - eta) / (1 - base)], axis=1)
        for kinds in ([0], [1], [0, 1]):
            bands = Bands.of_groups(np.stack([groups] * len(kinds), axis=1), 0.05, weights, slopes[:, kinds])
            assert solve_ramps(2 * eta - 1, bands, gamma).converged, (seed, kinds)
            assert solve_thresholds(2 * eta - 1, bands, groups).converged, (seed, kinds)


@pytest.mark.parametrize("family", THRESHOLDS)
def test_thresholds_are_optimal(family: str) -> None:
    """Shares lie within the bands, fall with the score inside every cell, and reach what a whole program reaches."""
    for seed in range(examples(60)):
        world = World(seed)
        bands, f = FAMILIES[family](world), world.scores
        best = solve_thresholds(f, bands, world.cells)
        shares = best.shares

        assert best.converged, (seed, best)
        assert far(bands, means_of(bands, shares), best.centres) <= 1e-9
        assert (shares >= 0).all()
        assert (shares <= 1).all()
        for cell in np.unique(world.cells):
            inside = np.flatnonzero(world.cells == cell)
            order = inside[np.argsort(f[inside])]
            assert (np.diff(shares[order]) >= -1e-12).all()
            ties = np.diff(f[order]) == 0
            assert (np.diff(shares[order])[ties] == 0).all()
        assert bands.weights @ (f * shares) == pytest.approx(best.value, abs=1e-12)
        assert best.value == pytest.approx(whole_program(f, bands, world.cells), abs=1e-8)


class Degenerate(World):
    """Many groups or few, with constants, ties, labels that are sure, and groups of one point."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        many = int(rng.choice([2, 3, 5, 20, 60]))
        n = many + int(rng.integers(0, 300))
        self.groups = np.concatenate([np.arange(many), rng.integers(0, many, n - many)])
        self.weights = np.ones(n) if seed % 2 else rng.choice([1.0, 0.2, 3.0], n)
        eta = np.round(rng.beta(2, 2, n) * (0.6 + 0.4 * (self.groups % 2)), int(rng.choice([1, 2, 6])))
        eta = (eta, eta, np.full(n, 0.7), rng.choice([0.0, 1.0, 0.6], n))[seed % 4].clip(0.0, 1.0)
        eta[:many] = 0.5
        eta[(self.groups == 0) & (seed % 4 == 1)] = 0.5
        base = np.bincount(self.groups, self.weights * eta) / np.bincount(self.groups, self.weights)
        base = base[self.groups]
        self.slopes = np.stack([eta / base, (1 - eta) / (1 - base)], axis=1)
        self.scores = 2 * eta - 1 + float(rng.choice([0.0, -0.4, 0.3]))
        self.slack = float(rng.choice([0.0, 0.02, 0.1]))


@pytest.mark.parametrize("family", ["parity", "given centre", "ratio", "one rate", "odds"])
def test_a_band_that_binds_nothing_changes_no_thresholds(family: str) -> None:
    """Few distinct scores, single groups of one score, and rates of 0 among them."""
    for seed in range(examples(40)):
        world = Degenerate(seed)
        bands = FAMILIES[family](world)
        beside = joined(bands, Bands.of_groups(np.zeros(world.groups.size, dtype=int), 2.0, world.weights))
        best, other = (solve_thresholds(world.scores, own, world.groups) for own in (bands, beside))

        assert best.converged, (seed, best)
        assert far(bands, means_of(bands, best.shares), best.centres) <= 1e-9, seed
        assert best.value == pytest.approx(other.value, abs=1e-9), seed
        np.testing.assert_allclose(best.shares, other.shares, atol=1e-6, err_msg=str(seed))


def test_the_nearest_mixture_has_the_least_mean_square() -> None:
    """Among all mixtures of thresholds with two given means, by a linear program."""
    for seed in range(examples(60)):
        world = World(seed)
        rng, n = np.random.default_rng(seed), world.scores.size
        alone = np.zeros(n, dtype=int)
        base = np.average(world.eta, weights=world.weights)
        slopes = np.stack([world.eta / base, (1 - world.eta) / (1 - base)], axis=1)
        bands = Bands.of_groups(np.stack([alone] * 2, axis=1), 0.0, world.weights, slopes)
        curve = ThresholdCurve.of(world.scores, bands, bands.slopes.tocsc(), np.arange(n))
        parts = rng.dirichlet(np.full(curve.ends.size, 0.1))
        means = curve.adds @ parts
        best = nearest(curve, means)
        assert best is not None
        square = (curve.taken / curve.taken[-1]) ** 2
        rules = np.vstack([curve.adds, np.ones(curve.ends.size)])
        least = linprog(square, A_eq=rules, b_eq=np.append(means, 1.0)).fun

        np.testing.assert_allclose(mean_of(curve.adds, best), means, atol=1e-10)
        assert sum(best.values()) == pytest.approx(1.0, abs=1e-12)
        assert min(best.values()) > 0
        assert float(mean_of(square, best)) == pytest.approx(least, abs=1e-8), seed


def test_cells_whose_points_add_nothing_to_a_mean() -> None:
    """Cells of sure labels, of two attributes: a rate of each attribute counts their points by nothing."""
    rng = np.random.default_rng(0)
    both = np.stack([np.repeat([0, 1], 40), np.tile([0, 1], 40)], axis=1)
    cells = both @ [2, 1]
    for sure in (0.0, 1.0):
        eta = np.where(cells == 3, sure, rng.beta(2, 2, 80))
        for zero in (0, 1):
            counted = 1 - eta if zero else eta
            slopes = np.stack(
                [counted / (np.bincount(k, counted) / np.bincount(k))[k] for k in both.T], axis=1
            )
            bands = Bands.of_groups(both, 0.01, slopes=slopes)
            best = solve_thresholds(2 * eta - 1, bands, cells)
            assert best.converged
            assert best.value == pytest.approx(whole_program(2 * eta - 1, bands, cells), abs=1e-8)


def test_points_of_a_cell_are_in_the_same_rows() -> None:
    for groups in ([0, 1, 1], [[0, 0], [1, 0], [1, 1]]):
        with pytest.raises(ValueError, match="same rows"):
            solve_thresholds([0.1, 0.2, 0.3], Bands.of_groups(groups, 0.1), [0, 0, 1])


def whole_program(f: Floats, bands: Bands, cells: Floats) -> float:
    """Return the largest value of all shares that rise with the score inside every cell, by one linear program."""
    q, c = cp.Variable(f.size), cp.Variable(max(bands.centres, 1))
    at = bands.target + np.pad(bands.belongs, ((0, 0), (0, max(0, 1 - bands.centres)))) @ c
    means = (bands.slopes.toarray() * (bands.weights / bands.mass[:, None])) @ q
    rules = [q >= 0, q <= 1, means <= at + bands.half, means >= bands.ratio * at - bands.half]
    for cell in np.unique(cells):
        inside = np.flatnonzero(cells == cell)
        order = inside[np.argsort(f[inside])]
        if order.size > 1:
            rules.append(q[order[1:]] >= q[order[:-1]])
            same = np.flatnonzero(np.diff(f[order]) == 0)
            rules.extend(q[order[k + 1]] == q[order[k]] for k in same)
    problem = cp.Problem(cp.Maximize((bands.weights * f) @ q), rules)
    return float(problem.solve(solver="HIGHS"))


def test_the_closed_root_is_the_same_optimum() -> None:
    """Parity has a closed solution, which agrees to the last digits."""
    for seed in range(examples(60)):
        world = World(seed)
        groups = [world.groups == k for k in range(world.groups.max() + 1)]
        cells = [Cell.of(world.scores[own], world.weights[own]) for own in groups]
        closed = solve(cells, world.gamma, world.slack)
        best = solve_ramps(world.scores, FAMILIES["parity"](world), world.gamma)
        assert best.objective == pytest.approx(closed.objective, abs=1e-11), seed


def test_no_multiplier_where_none_is_needed() -> None:
    """Where the best shares lie within the bands, they are the answer, and nothing is iterated."""
    world = World(3)
    bands = replace(FAMILIES["parity"](world), half=np.full(world.groups.max() + 1, 1.0))
    best, cut = solve_ramps(world.scores, bands, 0.1), solve_thresholds(world.scores, bands, world.cells)
    assert best.iterations == cut.rounds == 0
    assert not best.multipliers.any()
    np.testing.assert_array_equal(cut.shares, (world.scores > 0).astype(float))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"slack": -0.1}, "slack"),
        ({"ratio": 1.5}, "ratio"),
        ({"groups": [0, 2, 2]}, "every group needs a point"),
        ({"slopes": [1.0, 1.0]}, "one shape"),
        ({"weights": [1.0, 0.0, 1.0]}, "positive"),
    ],
)
def test_what_is_no_problem_is_refused(change: dict[str, Any], words: str) -> None:
    asked: dict[str, Any] = {"groups": [0, 1, 1], "slack": 0.1, **change}
    with pytest.raises(ValueError, match=words):
        Bands.of_groups(**asked)
    bands = Bands.of_groups([0, 1, 1], 0.1)
    for scores in ([0.1, np.nan, 0.2], [0.1, 0.2]):
        with pytest.raises(ValueError, match=r"score"):
            solve_ramps(scores, bands, 0.1)
        with pytest.raises(ValueError, match=r"score"):
            solve_thresholds(scores, bands, [0, 1, 1])
    with pytest.raises(ValueError, match="one cell per point"):
        solve_thresholds([0.1, 0.2, 0.3], bands, [0, 1])
    with pytest.raises(ValueError, match="gamma"):
        solve_ramps([0.1, 0.2, 0.3], bands, 0.0)
