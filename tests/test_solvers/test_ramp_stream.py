"""The ramp from a stream, held against the exact solution on the same points."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from fairfix.solvers.ramp import Cell, solve
from fairfix.solvers.ramp_stream import SAMPLE, Batch, StreamSolution, _mini, _State, learn


def points(rows: int, cells: int = 3, seed: int = 0, kind: str = "smooth") -> tuple[np.ndarray, np.ndarray]:
    """Return scores and cells; the first cell holds 2 % of the points."""
    rng = np.random.default_rng(seed)
    share = np.concatenate([[0.02], np.full(cells - 1, 0.98 / (cells - 1))])
    cell = rng.choice(cells, rows, p=share)
    f = np.tanh(rng.normal(0.4 * cell / cells - 0.2, 0.6))
    return (np.clip(3 * f, -1, 1) if kind == "clumped" else f), cell


def stream(
    f: np.ndarray, cell: np.ndarray, size: int = 10_000, w: np.ndarray | None = None
) -> Callable[[], Iterator[Batch]]:
    """Return a stream of batches of one size."""

    def batches() -> Iterator[Batch]:
        for at in range(0, f.size, size):
            cut = slice(at, at + size)
            yield Batch(f[cut], cell[cut], np.ones(f[cut].size) if w is None else w[cut])

    return batches


def run(
    f: np.ndarray, cell: np.ndarray, gamma: float, slack: float, rho: float | None = None, **more: object
) -> StreamSolution:
    """Learn with a fixed sample."""
    return learn(stream(f, cell), gamma, slack, rho, rng=np.random.default_rng(1), **more)


def exact(f: np.ndarray, cell: np.ndarray, gamma: float, slack: float, rho: float | None = None):
    """Solve on all points at once."""
    return solve([Cell.of(f[cell == k]) for k in range(cell.max() + 1)], gamma, slack, rho)


@pytest.mark.parametrize("kind", ["smooth", "clumped"])
@pytest.mark.parametrize("gamma", [0.05, 0.5])
@pytest.mark.parametrize("rho", [None, 0.3])
def test_one_pass_comes_to_the_exact_solution(kind: str, gamma: float, rho: float | None) -> None:
    """Without slack, means, offsets and objective of 200,000 points agree with those of the exact solver."""
    f, cell = points(200_000, kind=kind)
    found, best = run(f, cell, gamma, 0.0, rho), exact(f, cell, gamma, 0.0, rho)

    assert found.converged
    assert found.off < 3e-4
    assert found.rates == pytest.approx(best.rates, abs=2e-3)
    assert found.offsets == pytest.approx(best.offsets, abs=5e-3)
    assert found.objective == pytest.approx(best.objective, abs=5e-6)


def parts(f: np.ndarray, cell: np.ndarray) -> list[Batch]:
    """Return batches as the passes see them."""
    return list(stream(f, cell)())


def started(f: np.ndarray, cell: np.ndarray, rho: float | None = None) -> _State:
    """Return the state at the start of the passes."""
    return _State(parts(f, cell), 0.2, 0.0, rho, np.random.default_rng(1), mean_share=False, lift=0.0)


def test_more_passes_converge_to_the_exact_solution() -> None:
    """Ten passes: the offsets of the exact solution to six digits."""
    f, cell = points(100_000)
    best, state = exact(f, cell, 0.2, 0.0), started(f, cell)
    far = [np.abs(state.t - best.offsets).max()]
    for _ in range(10):
        for batch in _mini(parts(f, cell)):
            state.step(batch)
        state.settle_rho()
    state.newton(state.measured(parts(f, cell)))
    far.append(np.abs(state.t - best.offsets).max())

    assert far[1] < 1e-6 < far[0]


def test_the_stochastic_pass_is_what_finds_it() -> None:
    """After one pass of steps, before the closing passes, the error falls with the number of points like 1/sqrt(n)."""
    errors = []
    for rows in (20_000, 320_000):
        off = []
        for seed in range(6):
            f, cell = points(rows, 2, seed)
            state = started(f, cell, 0.4)
            for batch in _mini(parts(f, cell)):
                state.step(batch)
            off.append(abs(state.t[1] - exact(f, cell, 0.2, 0.0, 0.4).offsets[1]))
        errors.append(np.mean(off))

    assert errors[1] < errors[0] / 2


def test_slack_leaves_cells_alone() -> None:
    """Inside the band an offset stays 0; the means stay in the band; the objective is near the best."""
    f, cell = points(200_000)
    wide = run(f, cell, 0.1, 2.0)
    assert not wide.offsets.any()
    assert wide.off == 0
    some, best = run(f, cell, 0.1, 0.05), exact(f, cell, 0.1, 0.05)
    assert some.off < 1e-3
    assert some.objective == pytest.approx(best.objective, abs=5e-5)


def test_batches_and_repeats_do_not_matter() -> None:
    """Any size of batch gives the same result to rounding, and the same stream the same bits."""
    f, cell = points(30_000)
    results = [
        learn(stream(f, cell, size), 0.1, 0.02, rng=np.random.default_rng(1))
        for size in (10_000, 10_000, 700, 30_000)
    ]

    np.testing.assert_array_equal(results[0].offsets, results[1].offsets)
    for other in results[2:]:
        np.testing.assert_allclose(other.offsets, results[0].offsets, atol=1e-9)


def test_a_file_sorted_by_cell_is_learned_too() -> None:
    """Cells do not wait for one another: one after the other gives nearly what a shuffled file gives."""
    f, cell = points(100_000)
    order = np.argsort(cell, kind="stable")
    found, best = run(f[order], cell[order], 0.1, 0.0), exact(f, cell, 0.1, 0.0)

    assert found.off < 1e-3
    assert found.offsets == pytest.approx(best.offsets, abs=0.01)


def test_weights_are_masses() -> None:
    """Whole weights and repeated points agree up to the sample."""
    f, cell = points(60_000)
    w = np.random.default_rng(2).integers(1, 4, f.size)
    heavy = learn(stream(f, cell, w=w.astype(float)), 0.2, 0.0, rng=np.random.default_rng(1))
    repeated = exact(np.repeat(f, w), np.repeat(cell, w), 0.2, 0.0)

    assert heavy.off < 3e-4
    assert heavy.offsets == pytest.approx(repeated.offsets, abs=5e-3)


def test_uniform_scores_have_a_closed_form() -> None:
    """Scores uniform on an interval of length L: the mean share is (top - t - gamma/2)/L, so t follows from rho."""
    rng = np.random.default_rng(3)
    cell = rng.integers(0, 2, 400_000)
    f = rng.uniform(-1, 1, cell.size) * (1 + cell) / 2 + 0.2 * cell
    found = run(f, cell, 0.1, 0.0, 0.4)

    assert found.offsets == pytest.approx([0.5 - 0.05 - 0.4, 1.2 - 0.05 - 0.8], abs=5e-3)


def test_the_mean_score_as_rate_and_missing_numbers() -> None:
    """The paper's default rate comes from the first pass; numbers of cells without points have no offset."""
    f, cell = points(50_000, 2)
    found = run(f, cell * 2, 0.1, 0.0, mean_share=True)

    assert found.rho == pytest.approx((1 + f.mean()) / 2, abs=1e-12)
    assert np.isnan(found.offsets[1])
    assert np.isfinite(found.offsets[[0, 2]]).all()


def test_small_streams_are_solved_whole() -> None:
    """Fewer points than the sample holds: the start is the exact solution already."""
    f, cell = points(SAMPLE // 2)
    best, state = exact(f, cell, 0.2, 0.0), started(f, cell)

    assert state.t == pytest.approx(best.offsets, abs=1e-12)
    assert state.measured(parts(f, cell)).off < 1e-12


def test_what_has_not_converged_says_so() -> None:
    """Eleven values, a very narrow ramp and many cells: the means are what they are, and the flag follows them."""
    f, cell = points(60_000, 8)
    f = np.round((f + 1) * 5) / 5 - 1
    found = run(f, cell, 1e-3, 0.0)
    q = np.clip((f - found.offsets[cell]) / 1e-3, 0, 1)
    rates = np.bincount(cell, q) / np.bincount(cell)

    assert found.rates == pytest.approx(rates, abs=1e-12)
    assert found.off == pytest.approx(np.ptp(rates) / 2, abs=1e-12)
    assert found.converged == (found.off <= 1e-3)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (None, "no points"),
        (Batch(np.array([np.nan]), np.array([0]), np.ones(1)), "finite"),
        (Batch(np.array([0.1]), np.array([0]), np.array([0.0])), "weight 0"),
    ],
)
def test_bad_streams_are_refused(batch: Batch | None, message: str) -> None:
    """A stream that is learned from is valid."""
    with pytest.raises(ValueError, match=message):
        learn(lambda: [] if batch is None else [batch], 0.1, 0.0, rng=np.random.default_rng(0))
