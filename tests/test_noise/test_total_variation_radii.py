"""Thresholds and bounds of drawn decisions within radii of total variation, against plain linear programs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from fairfix.errors import DataError, UsageError
from fairfix.noise.bounds import tv_bounds, valid_radius
from fairfix.noise.randomized_rule_bounds import ball_bounds
from fairfix.noise.rates import DEMANDS, LABELS, RATIOS
from fairfix.noise.score_bin_bounds import TotalVariation, rate_bounds
from fairfix.noise.thresholds import solve_noisy
from fairfix.noise.total_variation_radii import balls_for, balls_of
from fairfix.noise.uncertainty_set import near_group, ratio_ends

from tests.strategies import examples
from tests.test_noise.programs import Cut, least_by_cuts, near
from tests.test_noise.test_randomized_rule_bounds import drawn


def about(rate: str) -> np.ndarray:
    """Return which labels a rate is about, shape (2,)."""
    return np.isin([0, 1], LABELS[rate])


@pytest.mark.parametrize("rate", list(LABELS))
def test_bounds_within_a_ball_are_those_of_linear_programs(rate: str) -> None:
    """Over all distributions of rows in the data, by recorded group, level and label."""
    for seed in range(examples(10)):
        q, F = drawn(seed)
        n = q.sum(0)
        rng = np.random.default_rng(seed)
        home = rng.integers(0, len(n), len(n) + 1)  # one group more, and some recorded ones that none is near
        radii = rng.choice([0.0, 0.05, 0.3, 0.9, 1.0], home.size)
        value = np.stack([1 - F if rate == "accuracy" else F, F], -1)
        low, high = ball_bounds(n, radii, F, rate, home=home)
        for j, k in enumerate(home):
            ends = [
                float((near(n, k, radii[j], value, about(rate), sign) * value).sum()) for sign in (1.0, -1.0)
            ]
            np.testing.assert_allclose((low[j], high[j]), ends, atol=1e-7)


def test_decisions_without_chance_have_the_bounds_of_their_cells_and_drawn_ones_none_wider() -> None:
    """Noise cannot look at a draw that is made later; several sets of masses go at once."""
    for seed in range(examples(10)):
        q, F = drawn(seed)
        n, radii = q.sum(0), np.full(q.shape[1], 0.2)
        for chances in (np.round(F), F):
            yes, no = ((n * chance[..., None]).sum(1) for chance in (chances, 1 - chances))
            cells = np.stack([yes[:, 1], no[:, 1], yes[:, 0], no[:, 0]], -1)
            for rate in LABELS:
                home = np.arange(len(n))[::-1]
                by_cell = tv_bounds(cells, radii, RATIOS[rate], home)
                low, high = ball_bounds(np.stack([n, n]), radii, chances, rate, home=home)
                np.testing.assert_array_equal(low[0], low[1])
                if (chances == np.round(F)).all():
                    np.testing.assert_allclose((low[0], high[0]), by_cell, atol=1e-9)
                else:
                    assert (low[0] >= by_cell[0] - 1e-9).all()
                    assert (high[0] <= by_cell[1] + 1e-9).all()


def least_error(n: np.ndarray, radii: np.ndarray, home: np.ndarray, parity: str, slack: float) -> float:
    """Return the least error by asking for the worst distributions again and again."""

    def cuts(x: np.ndarray) -> Iterator[Cut]:
        F = x.reshape(n.shape[:2])
        for (rate, sign), (j, k) in itertools.product(DEMANDS[parity], enumerate(home)):
            own = n[..., list(LABELS[rate])].sum(-1) / n[..., list(LABELS[rate])].sum()
            p = near(n, k, radii[j], F[..., None], about(rate), sign)
            yield sign * (own - p.sum(-1)).ravel(), slack

    found = least_by_cuts((n[..., 0] - n[..., 1]).ravel(), n.shape[:2], cuts)
    return float(found.fun + n[..., 1].sum())


@pytest.mark.parametrize("parity", [name for name in DEMANDS if name != "minimax"])
def test_thresholds_within_radii_are_what_cutting_planes_find(parity: str) -> None:
    useful = 0
    for seed in range(examples(4)):
        rng = np.random.default_rng(seed)
        n = rng.dirichlet(np.ones(16)).reshape(2, 4, 2) * np.linspace([2.0, 0.5], [0.5, 2.0], 4)
        n /= n.sum()
        home = np.array([0, 1, seed % 2])  # two true groups are near one recorded group
        radii, ball = rng.choice([0.0, 0.03, 0.1], home.size), TotalVariation(tuple(home.tolist()))
        found = solve_noisy(n, radii, parity, 0.1, ball)
        assert found.feasible
        assert found.violation <= 1e-7
        assert found.error == pytest.approx(least_error(n, radii, home, parity, 0.1), abs=1e-6)
        for rate, sign in DEMANDS[parity]:
            ends = rate_bounds(n, radii, found.F, rate, ball)
            own = n[..., list(LABELS[rate])].sum(-1)
            for j, k in enumerate(home):
                p = near(n, k, radii[j], found.F[..., None], about(rate), sign).sum(-1)
                assert (p * found.F).sum() == pytest.approx(ends[0 if sign > 0 else 1][j], abs=1e-7)
                assert sign * ((own * found.F).sum() / own.sum() - (p * found.F).sum()) <= 0.1 + 1e-7
        useful += found.error < min(n[..., 0].sum(), n[..., 1].sum()) - 0.01
    assert useful >= 2


def test_radii_that_are_none_are_refused() -> None:
    """One for each group, in [0, 1]."""
    n = np.full((2, 2, 2), 0.125)
    for radii in (np.array([0.1]), np.array([0.1, 1.5]), np.array([0.1, np.nan])):
        with pytest.raises(ValueError, match="a radius in"):
            solve_noisy(n, radii, "demographic_parity", 0.1, TotalVariation())


def test_a_table_gives_balls_that_hold_its_true_groups_whatever_their_number() -> None:
    """Of any noise with its joint masses; each is near the recorded group of the least radius."""
    for seed in range(examples(10)):
        rng = np.random.default_rng(seed)
        q = rng.dirichlet(np.full(4 * 3 * 5, 0.3)).reshape(
            4, 3, 5
        )  # four true groups, three recorded ones, cells
        joint = q.sum(-1)
        balls = balls_of(joint[None], ("w", "b", "c", "d"), ("a", "b", "c"))
        true, noisy = q.sum(1) / q.sum((1, 2))[:, None], q.sum(0) / q.sum((0, 2))[:, None]
        far = np.abs(true[:, None] - noisy).sum(-1) / 2  # total variation of each true and recorded group
        assert (far[np.arange(4), balls.home] <= balls.radii + 1e-12).all()
        every = [valid_radius(joint, np.full(4, k)) for k in range(3)]
        np.testing.assert_allclose(balls.radii, np.min(every, axis=0))
    own = balls_of(joint[None, :3], ("c", "a", "b"), ("a", "b", "c"))
    assert own.home.tolist() == [2, 0, 1]  # the groups of the same names


def test_radii_are_read_with_the_groups_they_are_around() -> None:
    names = ("x near y", "y", "z")
    balls = balls_for({"x near y": 0.1, "v near z": 0.2, "u near x near y": 0.3}, names, "seen")
    assert balls.true == ("x near y", "v", "u near x")
    assert balls.recorded(names) == ("x near y", "z", "y")
    np.testing.assert_array_equal(balls.radii, [0.1, 0.2, 0.3])
    only = balls_for({"w near x near y": 0.1, "x near y": 0.2}, ("x near y", "z"), "seen")
    assert only.true == ("w", "x near y")
    assert only.recorded(("x near y", "z")) == ("x near y", "x near y")
    assert balls_for({"b": 0.2, "a": 0.1}, ("a", "b"), "seen").true == ("a", "b")
    for radii, said in (
        ({"a": 0.1, "v near q": 0.1}, "has no group 'q'"),
        ({"a": 0.1}, "lacks the group 'b'"),
        ({"a": 0.1, "a near b": 0.1}, "names the true group 'a' twice"),
    ):
        with pytest.raises(UsageError, match=said):
            balls_for(radii, ("a", "b"), "seen")
    with pytest.raises(DataError, match="nothing to compare"):
        balls_for({"v near a": 0.1}, ("a", "b"), "seen")


def test_bounds_near_a_group_are_those_of_the_program() -> None:
    """The closed form against the rows of the uncertainty set; mass moves to the ends of both recorded groups."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        n = rng.dirichlet(np.ones(12)).reshape(2, 3, 2)
        F, radius = np.sort(rng.random((2, 3)), axis=1), rng.random()
        for rate in ("selection_rate", "true_positive_rate"):
            about = n[0][:, list(LABELS[rate])]
            mass = np.append(about.ravel(), n[0].sum() - about.sum()) / n[0].sum()
            space = near_group(mass, radius, F.size)
            worth = np.concatenate([np.repeat(F[0], about.shape[1]), [0.0], F.ravel()])
            counts = np.concatenate([np.ones(about.size), [0.0], np.ones(F.size)])
            top, bottom = space.placed(0, [worth]), space.placed(0, [counts])
            found = ratio_ends(space, [(top, bottom, 1.0), (top, bottom, -1.0)])
            low, high = ball_bounds(n, np.full(2, radius), F, rate)
            np.testing.assert_allclose(found, [low[0], high[0]], atol=1e-9)
