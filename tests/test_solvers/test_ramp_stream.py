"""The ramp from a stream, held against the exact solution on the same points."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from fairfix.solvers.ramp import Cell, RampSolution, solve
from fairfix.solvers.ramp_stream import StreamBatch, learn


def points(rows: int, cells: int = 3, seed: int = 0, kind: str = "smooth") -> tuple[np.ndarray, np.ndarray]:
    """Return scores and cells; the first cell holds 2 % of the points."""
    rng = np.random.default_rng(seed)
    share = np.concatenate([[0.02], np.full(cells - 1, 0.98 / (cells - 1))])
    cell = rng.choice(cells, rows, p=share)
    f = np.tanh(rng.normal(0.4 * cell / cells - 0.2, 0.6))
    return {"smooth": f, "clumped": np.clip(3 * f, -1, 1), "11 values": np.round(f * 5) / 5}[kind], cell


def stream(
    f: np.ndarray, cell: np.ndarray, w: np.ndarray | None = None, size: int = 10_000
) -> Callable[[], Iterator[StreamBatch]]:
    """Return a stream of batches of one size."""

    def batches() -> Iterator[StreamBatch]:
        for at in range(0, f.size, size):
            cut = slice(at, at + size)
            yield StreamBatch(f[cut], cell[cut], np.ones(f[cut].size) if w is None else w[cut])

    return batches


def exact(
    f: np.ndarray, cell: np.ndarray, gamma: float, slack: float, rho: float | None = None
) -> RampSolution:
    """Solve on all points at once."""
    return solve([Cell.of(f[cell == k]) for k in range(cell.max() + 1)], gamma, slack, rho)


@pytest.mark.parametrize("kind", ["smooth", "clumped", "11 values"])
@pytest.mark.parametrize(("gamma", "slack", "rho"), [(0.05, 0.0, None), (0.5, 0.05, None), (0.01, 0.0, 0.3)])
def test_two_passes_come_to_the_exact_solution(
    kind: str, gamma: float, slack: float, rho: float | None
) -> None:
    """Means, offsets and objective agree with those of the exact solver, by a narrow ramp too."""
    f, cell = points(100_000, kind=kind)
    found, best = learn(stream(f, cell), gamma, slack, rho), exact(f, cell, gamma, slack, rho)

    assert found.converged
    assert found.off < 2e-6
    assert found.rates == pytest.approx(best.rates, abs=1e-5)
    assert found.offsets == pytest.approx(best.offsets, abs=1e-5)
    assert found.objective == pytest.approx(best.objective, abs=1e-8)


def test_offsets_inside_the_band_stay_at_zero() -> None:
    """Where nothing binds there is nothing to learn."""
    f, cell = points(20_000)
    wide = learn(stream(f, cell), 0.1, 2.0)
    assert not wide.offsets.any()
    assert wide.off == 0


def test_order_batches_and_repeats_do_not_matter() -> None:
    """Any order and any size of batch gives the same result to rounding, and whole weights are repeated points."""
    f, cell = points(30_000)
    first = learn(stream(f, cell), 0.1, 0.02)
    for order in (np.arange(f.size), np.lexsort((f, cell)), np.argsort(f)):
        for size in (700, 30_000):
            other = learn(stream(f[order], cell[order], size=size), 0.1, 0.02)
            np.testing.assert_allclose(other.offsets, first.offsets, atol=1e-9)
    w = np.random.default_rng(2).integers(1, 4, f.size)
    heavy = learn(stream(f, cell, w.astype(float)), 0.1, 0.02)
    repeated = learn(stream(np.repeat(f, w), np.repeat(cell, w)), 0.1, 0.02)
    np.testing.assert_allclose(heavy.offsets, repeated.offsets, atol=1e-9)


def test_the_mean_score_as_rate_lifted_scores_and_missing_numbers() -> None:
    """The paper's default rate is that of the scores; a lift is taken back; cells without points have no offset."""
    f, cell = points(50_000, 2)
    found = learn(stream(f, 2 * cell), 0.1, 0.0, mean_share=True)
    lifted = learn(stream(f, 2 * cell), 0.1, 0.0, mean_share=True, lift=0.3)

    assert found.rho == pytest.approx((1 + f.mean()) / 2, abs=1e-12)
    np.testing.assert_allclose(
        lifted.offsets, found.offsets, atol=1e-9
    )  # nothing but rho decides without slack
    assert lifted.objective == pytest.approx(found.objective - 0.3 * found.rho, abs=1e-6)
    assert np.isnan(found.offsets[1])
    assert np.isfinite(found.offsets[[0, 2]]).all()


def test_what_has_not_converged_says_so() -> None:
    """Scores that differ by less than a bin, and a ramp far narrower: the means are what they are."""
    f, cell = points(60_000, 2)
    found = learn(stream(f / 1e5, cell), 1e-7, 0.0, 0.5)
    q = np.clip((f / 1e5 - found.offsets[cell]) / 1e-7, 0, 1)
    rates = np.bincount(cell, q) / np.bincount(cell)

    assert found.rates == pytest.approx(rates, abs=1e-12)
    assert found.off == pytest.approx(np.abs(rates - 0.5).max(), abs=1e-12)
    assert found.off > 1e-3
    assert not found.converged


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (None, "no points"),
        (StreamBatch(np.array([np.nan]), np.array([0]), np.ones(1)), "finite"),
        (StreamBatch(np.array([0.1]), np.array([0]), np.array([0.0])), "weight 0"),
    ],
)
def test_bad_streams_are_refused(batch: StreamBatch | None, message: str) -> None:
    """A stream that is learned from is valid."""
    with pytest.raises(ValueError, match=message):
        learn(lambda: [] if batch is None else [batch], 0.1, 0.0)
