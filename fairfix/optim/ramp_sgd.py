r"""The ramp from a stream: projected stochastic gradient steps on the multipliers, for data larger than memory.

The problem is that of :mod:`fairfix.optim.ramp`. Its dual, divided by the total weight, is a sum over points,

.. math::
    \min_t\; \sum_k p_k \left( E_k[-\psi(f - t_k)] + \rho\, t_k + d\, |t_k| \right),
    \qquad \frac{\partial}{\partial t_k} E_k[-\psi(f - t_k)] = -E_k[q],
    \quad p_k = W_k / W,

so a few points of cell ``k`` give an unbiased gradient ``rho - mean(q)``. The paper keeps two multipliers,
``lambda_k`` and ``mu_k``, takes a step and cuts both at 0; with ``t = lambda - mu`` that is a step on ``t``
followed by a move of ``step * d`` towards 0 which stops there:

.. math:: t_k \leftarrow S_{\eta d}\left(t_k + \eta\, (\bar q_k - \rho)\right).

**Start.** A first pass keeps a uniform sample of each cell; the exact solution on the samples is within
``1/sqrt(sample)``.

**Step size.** ``eta = m_k / (n_k h_k)``, with ``m_k`` the weight of the mini-batch in the cell, ``n_k`` what has
been seen and ``h_k`` a running mean of the weight on the ramp divided by ``gamma``, which is the slope of the
mean share: a stochastic Newton step, whose error falls like ``1/sqrt(n)`` with the best constant and no number to
tune. Cells do not wait for one another, so the order of the rows between cells (a file sorted by group) does not
matter; order inside a cell does.

**The free rate.** ``rho`` stays as it is during a pass. At its end, the derivative of the value, ``sum_k p_k
t_k(rho)``, falls by ``1/h_k`` per unit in each cell that is at its band's edge: one Newton step moves ``rho`` and
the multipliers with it.

**Close.** Two passes more measure the means at fixed multipliers, with a full Newton step in between. So the
means that are returned are those of all points, not an estimate, and where the scores have no large atoms they
are off by the square of what the stochastic passes left. Among large atoms (scores of few values, a narrow ramp)
stochastic steps wander over the flat pieces between them; if the means are off by more than 1e-3 in the end,
those of the start are measured, and the better of the two is returned. In trials with 2 and 10 cells, the
smallest of 1 %, the means of 2 million points were off by 2e-4 or less after one stochastic pass, and the
objective by 4e-6; with 20,000 points by 5e-3 and 5e-5.

=====================  ==========================  =========================
paper                  here                        meaning
=====================  ==========================  =========================
``lambda_k - mu_k``    ``offsets[k]``              multiplier ``t_k``
``T`` steps            rows / ``MINI`` x passes    mini-batches
=====================  ==========================  =========================

References
----------
I. Alabdulmohsin and M. Lucic, *A near-optimal algorithm for debiasing trained machine learning models* (2021),
algorithm 1. Step size, free rate and closing passes are derived above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fairfix.optim.arrays import Floats, Ints
from fairfix.optim.ramp import Cell, ramp, solve

MINI = 1024
"""Points of a mini-batch; batches are cut up and joined to this size."""

SAMPLE = 4096
"""Points of each cell that the start is solved on."""

FLATTEST = 0.05
"""Least slope of a mean share that a step assumes, per unit of score: between atoms it can be 0."""

PROMISED_RATE = 1e-3
"""Distance from the band up to which the solution counts as converged."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Some points: scores, cell of each (any whole numbers from 0), weights or None; shape (n,) each."""

    scores: Floats
    cells: Ints
    weights: Floats | None = None


@dataclass(frozen=True, eq=False)
class StreamSolution:
    """What the passes came to.

    Attributes
    ----------
    offsets
        Multiplier per cell number; NaN for numbers without points.
    rho
        Centre of the band.
    rates
        Mean share per cell at these offsets, over all points.
    objective
        At these offsets, divided by the total weight.
    off
        Largest distance of a mean from the band.
    converged
        Whether that is at most 1e-3.
    points
        Number of points in one pass.
    passes
        Passes over the stream.
    """

    offsets: Floats
    rho: float
    rates: Floats
    objective: float
    off: float
    converged: bool
    points: int
    passes: int


def learn(
    batches: Callable[[], Iterable[Batch]],
    gamma: float,
    slack: float,
    rho: float | None = None,
    *,
    rng: np.random.Generator,
    passes: int = 1,
    mean_share: bool = False,
    lift: float = 0.0,
) -> StreamSolution:
    """Return offsets learned from a stream.

    Parameters
    ----------
    batches
        Starts the stream again at each call, with the same points and numbers of cells.
    gamma
        Width of the ramp, above 0.
    slack
        Largest allowed difference between the means of two cells.
    rho
        Centre of the band, in [0, 1]; None for the best.
    rng
        Draws the sample.
    passes
        Stochastic passes; there are three more around them.
    mean_share
        Take the mean of ``(1 + score)/2`` over all points for ``rho``.
    lift
        Added to every score, but not to that mean.

    Raises
    ------
    ValueError
        If the stream is empty, a score is not finite, a weight is not positive, or a number is out of its range.
    """
    if passes < 0:
        raise ValueError(f"passes must be 0 or more, got {passes!r}")

    def lifted() -> Iterator[Batch]:
        return (Batch(b.scores + lift, b.cells, b.weights) if lift else b for b in batches())

    state = _State.start(lifted(), gamma, slack, rho, rng, mean_share=mean_share, lift=lift)
    start, start_rho = state.t.copy(), state.rho
    for _ in range(passes):
        for batch in _mini(lifted()):
            state.step(batch)
        state.settle_rho()
    found = _measured(state, lifted())
    state.newton(found)
    again = _measured(state, lifted())
    if again.off > found.off:  # an atom was stepped over
        state.t, again = found.offsets, found
    if again.off > PROMISED_RATE and passes:
        after, state.t, state.rho = state.rho, start, start_rho
        first = _measured(state, lifted())
        if first.off < again.off:
            return _solution(state, first, passes + 4)
        state.rho = after
    return _solution(state, again, passes + 3)


@dataclass(frozen=True, eq=False)
class _Measured:
    """Means and slopes at fixed offsets, over all points."""

    offsets: Floats
    rates: Floats
    slopes: Floats
    objective: float
    off: float


class _State:
    """What is carried along the stream; one entry per cell number, NaN offsets for numbers without points."""

    def __init__(self, gamma: float, slack: float) -> None:
        self.gamma, self.d = gamma, slack / 2
        self.free_rho = False
        self.rho = 0.0
        self.points = 0
        self.mass = np.zeros(0)
        self.t = np.zeros(0)
        self.seen = np.zeros(0)
        self.on_ramp = np.zeros(0)

    @classmethod
    def start(
        cls,
        batches: Iterable[Batch],
        gamma: float,
        slack: float,
        rho: float | None,
        rng: np.random.Generator,
        *,
        mean_share: bool = False,
        lift: float = 0.0,
    ) -> _State:
        """Solve on a sample of each cell, weighted to the cell's total."""
        sample = _Sample(rng)
        for batch in batches:
            sample.add(batch)
        if not sample.points:
            raise ValueError("the stream has no points")
        state = cls(gamma, slack)
        state.free_rho = rho is None and not mean_share
        state.points, state.mass = sample.points, sample.mass
        if mean_share:
            rho = (1 + sample.scores / sample.mass.sum() - lift) / 2
        there = np.flatnonzero(state.mass)
        cells = [sample.cell(int(k)) for k in there]
        best = solve(cells, gamma, slack, rho)
        state.rho = best.rho
        state.t = np.full(state.mass.size, np.nan)
        state.t[there] = best.offsets
        shares = [cell.reached(t, 0.0, gamma)[1] for cell, t in zip(cells, best.offsets, strict=True)]
        state.seen = np.zeros(state.mass.size)
        state.seen[there] = state.mass[there] * np.minimum(1.0, SAMPLE / sample.rows[there])
        state.on_ramp = np.zeros(state.mass.size)
        state.on_ramp[there] = state.seen[there] * shares
        return state

    def slopes(self) -> Floats:
        """Return how fast each mean share falls with its offset."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.maximum(np.nan_to_num(self.on_ramp / self.seen) / self.gamma, FLATTEST))

    def step(self, batch: Batch) -> None:
        """Take one projected step with a mini-batch."""
        mass, taken, on_ramp, _ = self._sums(batch)
        self.seen += mass
        self.on_ramp += on_ramp
        some = mass > 0
        share = mass[some] / self.seen[some] / self.slopes()[some]
        t = self.t[some] + share * (taken[some] / mass[some] - self.rho)
        self.t[some] = np.sign(t) * np.maximum(np.abs(t) - share * self.d, 0.0)

    def settle_rho(self) -> None:
        """Move a free rho to where the pull of all cells is zero, and the offsets at a band's edge with it."""
        there, moves = self.mass > 0, (self.mass > 0) & (self.t != 0)
        if not self.free_rho or not moves.any():
            return
        pull = float(self.mass[there] @ self.t[there])
        ease = self.mass[moves] / self.slopes()[moves]
        change = float(np.clip(pull / ease.sum(), -self.rho, 1 - self.rho))
        self.rho += change
        self.t[moves] -= change / self.slopes()[moves]

    def newton(self, found: _Measured) -> None:
        """Take a full step from the means and slopes of all points."""
        there = self.mass > 0
        slope = np.maximum(found.slopes, FLATTEST)
        t = self.t + (found.rates - self.rho) / slope
        self.t = np.where(there, np.sign(t) * np.maximum(np.abs(t) - self.d / slope, 0.0), np.nan)
        self.seen, self.on_ramp = self.mass.copy(), self.mass * found.slopes * self.gamma
        self.settle_rho()

    def _sums(self, batch: Batch) -> tuple[Floats, Floats, Floats, float]:
        """Return weight, share and weight on the ramp by cell, and the objective, of a batch."""
        w = np.ones(batch.scores.size) if batch.weights is None else batch.weights
        q = ramp(batch.scores, self.t[batch.cells], self.gamma)
        many = self.mass.size
        inside = w * ((q > 0) & (q < 1))
        sums = (np.bincount(batch.cells, part, many).astype(np.float64) for part in (w, w * q, inside))
        mass, taken, on_ramp = sums
        return mass, taken, on_ramp, float((w * (self.gamma / 2 * q - batch.scores) * q).sum())


class _Sample:
    """A uniform sample of each cell: the points of the least random keys."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.points = 0
        self.scores = 0.0
        self.mass = np.zeros(0)
        self.rows = np.zeros(0)
        self.kept: dict[int, tuple[Floats, Floats, Floats]] = {}

    def add(self, batch: Batch) -> None:
        """Count a batch and keep what its keys say."""
        f, code = batch.scores, batch.cells
        if not f.size:
            return
        w = np.ones(f.size) if batch.weights is None else batch.weights
        if not np.isfinite(f).all():
            raise ValueError("scores must be finite: drop or fill missing and infinite scores first")
        if not (w.min() > 0 and math.isfinite(w.max())):
            raise ValueError("weights must be positive and finite: leave out points of weight 0")
        many = max(self.mass.size, int(code.max()) + 1)
        self.mass = np.bincount(code, w, many).astype(np.float64) + np.pad(
            self.mass, (0, many - self.mass.size)
        )
        self.rows = np.bincount(code, minlength=many).astype(np.float64) + np.pad(
            self.rows, (0, many - self.rows.size)
        )
        self.points += f.size
        self.scores += float(w @ f)
        key = self.rng.random(f.size)
        for k in np.flatnonzero(np.bincount(code)):
            self._keep(int(k), key[code == k], f[code == k], w[code == k])

    def _keep(self, k: int, *new: Floats) -> None:
        """Join new points to a cell's sample and cut it to its size."""
        held = self.kept.get(k)
        if held is not None:
            fits = new[0] < (held[0].max() if held[0].size >= SAMPLE else math.inf)
            new = tuple(np.concatenate([old, part[fits]]) for old, part in zip(held, new, strict=True))
        if new[0].size > SAMPLE:
            least = np.argpartition(new[0], SAMPLE)[:SAMPLE]
            new = tuple(part[least] for part in new)
        self.kept[k] = new  # type: ignore[assignment]  # three parts in, three parts out

    def cell(self, k: int) -> Cell:
        """Return the sample of a cell, its weights scaled to the cell's total."""
        _, f, w = self.kept[k]
        return Cell.of(f, w * (self.mass[k] / w.sum()))


def _mini(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the points in mini-batches, whatever the batches they come in; the rest last."""
    rest = Batch(np.zeros(0), np.zeros(0, dtype=np.int64))
    for batch in batches:
        rest = _joined(rest, batch) if rest.scores.size else batch
        whole = rest.scores.size // MINI * MINI
        for at in range(0, whole, MINI):
            yield _part(rest, at, at + MINI)
        rest = _part(rest, whole, rest.scores.size)
    if rest.scores.size:
        yield rest


def _part(batch: Batch, low: int, high: int) -> Batch:
    w = None if batch.weights is None else batch.weights[low:high]
    return Batch(batch.scores[low:high], batch.cells[low:high], w)


def _joined(one: Batch, other: Batch) -> Batch:
    weights = [np.ones(b.scores.size) if b.weights is None else b.weights for b in (one, other)]
    plain = one.weights is None and other.weights is None
    return Batch(
        np.concatenate([one.scores, other.scores]),
        np.concatenate([one.cells, other.cells]),
        None if plain else np.concatenate(weights),
    )


def _measured(state: _State, batches: Iterable[Batch]) -> _Measured:
    """Return means, slopes and objective at the offsets as they are."""
    taken, on_ramp, value = np.zeros(state.mass.size), np.zeros(state.mass.size), 0.0
    for batch in batches:
        _, shares, inside, objective = state._sums(batch)
        taken, on_ramp, value = taken + shares, on_ramp + inside, value + objective
    there = state.mass > 0
    rates, slopes = np.full(state.mass.size, np.nan), np.zeros(state.mass.size)
    rates[there] = taken[there] / state.mass[there]
    slopes[there] = on_ramp[there] / state.mass[there] / state.gamma
    return _Measured(state.t.copy(), rates, slopes, value / state.mass.sum(), _outside(rates[there], state))


def _outside(rates: Floats, state: _State) -> float:
    """Return how far the means are from a band: around rho if it was given, around their middle if it is free."""
    centre = (rates.max() + rates.min()) / 2 if state.free_rho else state.rho
    return float(max(np.abs(rates - centre).max() - state.d, 0.0))


def _solution(state: _State, found: _Measured, passes: int) -> StreamSolution:
    return StreamSolution(
        offsets=found.offsets,
        rho=state.rho,
        rates=found.rates,
        objective=found.objective,
        off=found.off,
        converged=found.off <= PROMISED_RATE,
        points=state.points,
        passes=passes,
    )
