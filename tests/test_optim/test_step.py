"""The ramp without width, held against a linear program."""

from __future__ import annotations

import numpy as np
import pytest
from fairfix.optim.ramp import Cell, solve
from fairfix.optim.step import Staircase, solve_steps
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.strategies import examples


def draw(seed: int, cells: int | None = None) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return worths and masses of a few cells; every other instance has ties."""
    rng = np.random.default_rng(seed)
    worths, masses = [], []
    for _ in range(rng.integers(1, 5) if cells is None else cells):
        v = rng.uniform(-1, 1, rng.integers(1, 12))
        worths.append(np.round(v, 1) if seed % 2 else v)
        masses.append(rng.uniform(0.1, 2, v.size))
    return worths, masses


def best_value(worths: list, masses: list, slack: float, rho: float | None, ratio: float = 1.0) -> float:
    """Return the optimum by a general solver; the last variable is the centre of the band."""
    many = sum(v.size for v in worths)
    rows, start = [], 0
    for m in masses:
        row = np.zeros(many + 1)
        row[start : start + m.size] = m / m.sum()
        lower = -row
        row[-1], lower[-1] = -1, ratio
        rows += [row, lower]
        start += m.size
    cost = -np.concatenate([*(v * m for v, m in zip(worths, masses, strict=True)), [0]])
    bounds = [(0, 1)] * many + [(0, 1) if rho is None else (rho, rho)]
    found = linprog(cost, np.array(rows), np.full(len(rows), slack / 2), bounds=bounds)
    return -found.fun / sum(m.sum() for m in masses)


BANDS = [(0.0, 1.0), (0.03, 1.0), (0.3, 1.0), (2.0, 1.0), (0.0, 0.8), (0.0, 0.3), (0.1, 0.5), (0.0, 0.0)]
"""Slack and ratio."""


@given(st.integers(0, 10**6), st.sampled_from(BANDS), st.one_of(st.none(), st.floats(0, 1)))
@settings(max_examples=examples(120))
def test_value_is_that_of_a_linear_program(seed: int, band: tuple[float, float], rho: float | None) -> None:
    """No feasible shares have a larger value, and the steps attain it within the band."""
    (slack, ratio), (worths, masses) = band, draw(seed)
    cells = [Staircase.of(v, m) for v, m in zip(worths, masses, strict=True)]
    found = solve_steps(cells, slack, rho, ratio)
    shares = [step.shares(v) for step, v in zip(found.steps, worths, strict=True)]
    total = sum(m.sum() for m in masses)
    value = sum((q * v * m).sum() for q, v, m in zip(shares, worths, masses, strict=True)) / total
    rates = [float(q @ m / m.sum()) for q, m in zip(shares, masses, strict=True)]

    assert value == pytest.approx(best_value(worths, masses, slack, rho, ratio), abs=1e-9)
    assert value == pytest.approx(found.value, abs=1e-12)
    assert rates == pytest.approx(found.rates, abs=1e-12)
    assert ratio * (max(rates) - slack / 2) - slack / 2 <= min(rates) + 1e-12
    if rho is not None:
        assert all(ratio * rho - slack / 2 - 1e-12 <= r <= rho + slack / 2 + 1e-12 for r in rates)


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.9])
def test_a_ratio_is_held_at_the_optimum_of_a_linear_program(ratio: float) -> None:
    """Edges that move with the centre at different rates: the breakpoint where the value is largest is found."""
    for seed in range(40):
        worths, masses = draw(seed, 3)
        found = solve_steps(
            [Staircase.of(v, m) for v, m in zip(worths, masses, strict=True)], 0.0, None, ratio
        )

        assert found.value == pytest.approx(best_value(worths, masses, 0.0, None, ratio), abs=1e-9)
        assert found.rates.min() >= ratio * found.rates.max() - 1e-12


def test_many_breakpoints_are_bisected_to_the_same_optimum() -> None:
    """Beyond the few that are evaluated at once, bisection finds the same rate as the narrow ramp."""
    rng = np.random.default_rng(3)
    scores = [rng.uniform(-1, 1, 30_000) + s for s in (0.0, 0.4)]
    steps = solve_steps([Staircase.of(f) for f in scores], 0.01)
    ramps = solve([Cell.of(f) for f in scores], 1e-6, 0.01)

    assert steps.rho == pytest.approx(ramps.rho, abs=1e-4)
    assert -steps.value == pytest.approx(ramps.objective, abs=1e-5)
    assert -steps.value <= ramps.objective
    assert steps.rates == pytest.approx([steps.rho - 0.005, steps.rho + 0.005], abs=1e-12)


def test_narrow_ramps_tend_to_the_step() -> None:
    """The ramp's objective falls to the step's value as its width goes to zero."""
    worths, masses = draw(4, 3)
    step = solve_steps([Staircase.of(v, m) for v, m in zip(worths, masses, strict=True)], 0.05)
    cells = [Cell.of(v, m) for v, m in zip(worths, masses, strict=True)]
    gaps = [solve(cells, gamma, 0.05).objective + step.value for gamma in (1e-1, 1e-2, 1e-3, 1e-4)]

    assert all(gap >= -1e-12 for gap in gaps)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-4


def test_an_atom_is_split_and_a_gap_is_not() -> None:
    """One tied worth is shared out to the rate; between two worths the level stands midway."""
    tied = Staircase.of([0.3] * 4)
    assert tied.step(0.25).shares([0.3, 0.4, 0.2]).tolist() == [0.25, 1.0, 0.0]
    apart = Staircase.of([0.8, 0.4, -0.2])
    assert apart.step(1 / 3).level == pytest.approx(0.6)
    assert apart.step(2 / 3).shares([0.8, 0.4, -0.2]).tolist() == [1, 1, 0]
    assert apart.step(0.0).shares([0.8, 0.9]).tolist() == [0.0, 1.0]
    assert apart.step(1.0).shares([-0.2]).tolist() == [1.0]


def test_order_and_repetition_do_not_matter() -> None:
    """Shuffled points and integer masses as repeated points give the same steps."""
    v, m = np.array([0.5, -0.1, 0.5, 0.2]), np.array([1.0, 2.0, 3.0, 1.0])
    here, mixed = Staircase.of(v, m), Staircase.of(v[::-1], m[::-1])
    repeated = Staircase.of(np.repeat(v, m.astype(int)))

    for other in (mixed, repeated):
        np.testing.assert_allclose(other.rates, here.rates, atol=1e-15)
        np.testing.assert_allclose(other.gains, here.gains, atol=1e-15)


@pytest.mark.parametrize(
    ("worth", "mass", "message"),
    [
        ([], None, "at least one"),
        ([np.nan], None, "finite"),
        ([1.0], [0.0], "positive"),
        ([1.0], [1, 2], "one weight per point"),
    ],
)
def test_bad_points_are_refused(worth: list, mass: list | None, message: str) -> None:
    """A staircase that exists is valid."""
    with pytest.raises(ValueError, match=message):
        Staircase.of(worth, mass)


@pytest.mark.parametrize("change", [{"cells": []}, {"slack": -1.0}, {"rho": 1.5}])
def test_numbers_out_of_range_are_refused(change: dict) -> None:
    """Each parameter is named when it is out of range."""
    name = next(iter(change)).removesuffix("s")
    with pytest.raises(ValueError, match=name):
        solve_steps(**({"cells": [Staircase.of([0.1])], "slack": 0.0, "rho": 0.5} | change))
