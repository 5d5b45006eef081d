"""Many points, of which only those near the ramp are sorted: the same solution as from sorting all."""

from __future__ import annotations

import numpy as np
import pytest
from fairfix.solvers import ramp_screening
from fairfix.solvers.ramp import Cell, solve
from fairfix.solvers.ramp_screening import _near_the_ramp, solve_points


def made(kind: str, cells: int, rows: int = 70_000, seed: int = 0) -> list[np.ndarray]:
    """Return scores per cell: smooth, clumped at the ends, or of eleven values."""
    rng = np.random.default_rng(seed)
    out = []
    for k in range(cells):
        f = np.tanh(rng.normal(0.4 * k / cells - 0.2, 0.6, rows))
        out.append(
            {"smooth": f, "clumped": np.clip(3 * f, -1, 1), "eleven": np.round((f + 1) * 5) / 5 - 1}[kind]
        )
    return out


@pytest.mark.parametrize("kind", ["smooth", "clumped", "eleven"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("gamma", "slack", "rho", "ratio"),
    [(0.01, 0.0, None, 0.9), (0.1, 0.02, None, 1.0), (0.05, 0.0, 0.3, 1.0)],
)
def test_it_is_the_solution_from_all_points(
    kind: str, weighted: bool, gamma: float, slack: float, rho: float | None, ratio: float
) -> None:
    """Offsets, rates and objective agree to rounding, and the short way was taken."""
    scores = made(kind, 3)
    rng = np.random.default_rng(1)
    weights = [rng.random(f.size) + 0.1 if weighted else None for f in scores]
    best = solve([Cell.of(f, w) for f, w in zip(scores, weights, strict=True)], gamma, slack, rho, ratio)
    found = _near_the_ramp(scores, weights, gamma, slack, rho, ratio)

    assert found is not None
    assert found.converged
    for t, r, f, w, rate in zip(found.offsets, found.remainders, scores, weights, found.rates, strict=True):
        assert np.average(np.clip((f - t - r) / gamma, 0, 1), weights=w) == pytest.approx(rate, abs=1e-12)
    assert found.offsets == pytest.approx(best.offsets, abs=1e-12)
    assert found.rates == pytest.approx(best.rates, abs=1e-12)
    assert found.objective == pytest.approx(best.objective, abs=1e-12)
    assert abs(found.gap) <= 1e-12


@pytest.mark.parametrize("slack", [0.0, 0.05])
def test_a_misleading_sample_changes_nothing(slack: float) -> None:
    """Rows in an order that every stride of the sample falls into: the long way is taken, to the same end."""
    scores = made("smooth", 2)
    step = scores[0].size // ramp_screening.SAMPLE
    scores[0][::step] = 0.9
    weights = [None, None]

    assert _near_the_ramp(scores, weights, 0.05, slack, None, 1.0) is None
    found = solve_points(scores, weights, 0.05, slack)
    best = solve([Cell.of(f) for f in scores], 0.05, slack)
    np.testing.assert_array_equal(found.offsets, best.offsets)


def test_idle_cells_and_wide_ramps_are_solved_whole() -> None:
    """Where nothing binds, or most points are on the ramp, all are sorted."""
    scores = made("smooth", 2)

    assert _near_the_ramp(scores, [None, None], 0.05, 2.0, None, 1.0) is None
    assert _near_the_ramp(scores, [None, None], 1.0, 0.0, 0.3, 1.0) is None
    assert not solve_points(scores, [None, None], 0.05, 2.0).offsets.any()
    assert solve_points(scores, [None, None], 3.0, 0.0).converged


def test_a_cell_inside_the_band_keeps_its_offset_of_zero() -> None:
    """With slack, a middle cell does not move, by the short way too."""
    rng = np.random.default_rng(2)
    scores = [rng.uniform(-1, 1, 70_000) + s for s in (-0.2, 0.0, 0.2)]
    found = _near_the_ramp(scores, [None] * 3, 0.05, 0.1, None, 1.0)

    assert found is not None
    assert found.offsets[1] == 0.0
    assert found.offsets[0] < 0 < found.offsets[2]
