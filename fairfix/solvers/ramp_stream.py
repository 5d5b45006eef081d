r"""The ramp from a stream: stochastic Newton steps on the multipliers, for data larger than memory.

The problem is that of :mod:`fairfix.solvers.ramp`. In its dual a few points of cell ``k`` give an unbiased gradient
``rho - mean(q)`` of the multiplier ``t_k = lambda_k - mu_k``, and a projected step on both multipliers is

.. math:: t_k \leftarrow S_{\eta d}\left(t_k + \eta\, (\bar q_k - \rho)\right),

``S`` a move of ``eta d`` towards 0 which stops there. With ``eta`` the inverse of the slope of the mean it is a
stochastic Newton step; the paper's algorithm 1 has steps of one size for all groups, starts at 0, and takes the mean
of its iterates (``benchmarks/ramp_algorithm1.py``). A first pass keeps a uniform sample of each cell, whose exact
solution is the start; closing passes measure the means at fixed multipliers, with a full Newton step in between. So the
means that are returned are those of all points. If they are off by more than 1e-3, as among large atoms, those of the
start are measured, and the better of the two is returned. Step size and trials are in docs/methods/ramp.md.

References
----------
I. Alabdulmohsin and M. Lucic, *A near-optimal algorithm for debiasing trained machine learning models* (2021),
the problem. Start, step size, free rate and closing passes are derived here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fairfix.solvers.arrays import Floats, Ints, positive_weights
from fairfix.solvers.ramp import Cell, ramp, solve

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
    """Points of the stream: scores, cell of each (any whole numbers from 0) and weights, shape (n,) each."""

    scores: Floats
    cells: Ints
    weights: Floats

    def part(self, low: int, high: int) -> Batch:
        """Return the points of a range."""
        return Batch(self.scores[low:high], self.cells[low:high], self.weights[low:high])

    def joined(self, more: Batch) -> Batch:
        """Return these points and more."""
        return Batch(
            np.concatenate([self.scores, more.scores]),
            np.concatenate([self.cells, more.cells]),
            np.concatenate([self.weights, more.weights]),
        )

    def by_cell(self, each: Floats, many: int) -> Floats:
        """Return sums over the cells, shape (K,)."""
        return np.bincount(self.cells, each, many).astype(np.float64)


@dataclass(frozen=True, eq=False)
class StreamSolution:
    """Offsets learned from a stream, with their means over all points."""

    offsets: Floats
    """Multiplier per cell number; NaN for numbers without points."""
    rho: float
    """Centre of the band."""
    rates: Floats
    """Mean share per cell at these offsets, over all points."""
    objective: float
    """At these offsets, divided by the total weight."""
    off: float
    """Largest distance of a mean from the band."""
    converged: bool
    """Whether that is at most 1e-3."""
    points: int
    """Number of points in one pass."""
    passes: int
    """Passes over the stream."""


def learn(
    batches: Callable[[], Iterable[Batch]],
    gamma: float,
    slack: float,
    rho: float | None = None,
    *,
    rng: np.random.Generator,
    mean_share: bool = False,
    lift: float = 0.0,
) -> StreamSolution:
    """Return offsets learned from a stream, by one stochastic pass and three or four more around it.

    ``batches``: starts the stream again at each call, with the same points and numbers of cells. ``gamma``: width of
    the ramp, above 0. ``slack``: largest allowed difference between the means of two cells. ``rho``: centre of the
    band, in [0, 1]; None for the best. ``rng``: draws the sample. ``mean_share``: take the mean of ``(1 + score)/2``
    over all points for ``rho``. ``lift``: added to every score, but not to that mean.
    """

    def points() -> Iterator[Batch]:
        return (replace(b, scores=b.scores + lift) for b in batches() if b.scores.size)

    state = _State(points(), gamma, slack, rho, rng, mean_share=mean_share, lift=lift)
    start, start_rho = state.t.copy(), state.rho
    for batch in _mini(points()):
        state.step(batch)
    state.settle_rho()
    first = state.measured(points())
    state.newton(first)
    best = state.measured(points())
    if best.off > first.off:  # an atom was stepped over
        state.t, best = first.offsets, first
    if best.off > PROMISED_RATE:
        after, state.t, state.rho = state.rho, start, start_rho
        at_start = state.measured(points())
        if at_start.off < best.off:
            return replace(at_start, passes=5)
        state.rho = after
    return best


class _State:
    """The state along the stream; one entry per cell number, NaN offsets for numbers without points."""

    def __init__(
        self,
        stream: Iterable[Batch],
        gamma: float,
        slack: float,
        rho: float | None,
        rng: np.random.Generator,
        *,
        mean_share: bool,
        lift: float,
    ) -> None:
        """Solve on a sample of each cell, weighted to the cell's total."""
        sample = _Sample(rng)
        for points in stream:
            sample.add(points)
        if not sample.points:
            raise ValueError("the stream has no points")
        self.gamma, self.d = gamma, slack / 2
        self.free_rho = rho is None and not mean_share
        self.points, self.mass = sample.points, sample.mass
        if mean_share:
            rho = (1 + sample.scores / sample.mass.sum() - lift) / 2
        there = np.flatnonzero(self.mass)
        cells = [sample.cell(int(k)) for k in there]
        best = solve(cells, gamma, slack, rho)
        self.rho = best.rho
        self.t = np.full(self.mass.size, np.nan)
        self.t[there] = best.offsets
        shares = [cell.reached(t, 0.0, gamma)[1] for cell, t in zip(cells, best.offsets, strict=True)]
        self.seen, self.on_ramp = np.zeros(self.mass.size), np.zeros(self.mass.size)
        self.seen[there] = self.mass[there] * np.minimum(1.0, SAMPLE / sample.rows[there])
        self.on_ramp[there] = self.seen[there] * shares

    def slopes(self) -> Floats:
        """Return how fast each mean share falls with its offset."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.maximum(np.nan_to_num(self.on_ramp / self.seen) / self.gamma, FLATTEST))

    def step(self, points: Batch) -> None:
        """Take one projected step with a mini-batch."""
        mass = points.by_cell(points.weights, self.mass.size)
        taken, on_ramp, _ = self._sums(points)
        self.seen += mass
        self.on_ramp += on_ramp
        here = mass > 0
        share = mass[here] / self.seen[here] / self.slopes()[here]
        t = self.t[here] + share * (taken[here] / mass[here] - self.rho)
        self.t[here] = np.sign(t) * np.maximum(np.abs(t) - share * self.d, 0.0)

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

    def newton(self, measured: StreamSolution) -> None:
        """Take a full step from the means of all points, whose weight on the ramp was kept."""
        slope = np.maximum(np.nan_to_num(self.on_ramp / self.gamma / np.maximum(self.mass, 1e-300)), FLATTEST)
        t = self.t + (measured.rates - self.rho) / slope
        self.t = np.where(self.mass > 0, np.sign(t) * np.maximum(np.abs(t) - self.d / slope, 0.0), np.nan)
        self.settle_rho()

    def measured(self, stream: Iterable[Batch]) -> StreamSolution:
        """Return means and objective at the offsets as they are, over all points; keeps the weight on the ramp."""
        many, value = self.mass.size, 0.0
        taken, self.on_ramp, self.seen = np.zeros(many), np.zeros(many), self.mass.copy()
        for points in stream:
            shares, inside, objective = self._sums(points)
            taken, self.on_ramp, value = taken + shares, self.on_ramp + inside, value + objective
        there = self.mass > 0
        rates = np.full(many, np.nan)
        rates[there] = taken[there] / self.mass[there]
        centre = (np.nanmax(rates) + np.nanmin(rates)) / 2 if self.free_rho else self.rho
        off = float(max(np.nanmax(np.abs(rates - centre)) - self.d, 0.0))
        value /= float(self.mass.sum())
        return StreamSolution(
            self.t.copy(), self.rho, rates, value, off, off <= PROMISED_RATE, self.points, passes=4
        )

    def _sums(self, points: Batch) -> tuple[Floats, Floats, float]:
        """Return share and weight on the ramp by cell, and the objective, of some points."""
        q = ramp(points.scores, self.t[points.cells], self.gamma)
        parts = (points.weights * q, points.weights * ((q > 0) & (q < 1)))
        taken, on_ramp = (points.by_cell(part, self.mass.size) for part in parts)
        return taken, on_ramp, float((points.weights * (self.gamma / 2 * q - points.scores) * q).sum())


class _Sample:
    """A uniform sample of each cell: the points of the least random keys."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.points, self.scores = 0, 0.0
        self.mass, self.rows = np.zeros(0), np.zeros(0)
        self.kept: dict[int, tuple[Floats, ...]] = {}

    def add(self, points: Batch) -> None:
        """Count some points and keep those of the least keys."""
        f, code = points.scores, points.cells
        if not np.isfinite(f).all():
            raise ValueError("scores must be finite: drop or fill missing and infinite scores first")
        w = positive_weights(points.weights, f.shape)
        many = max(self.mass.size, int(code.max()) + 1)
        room = (0, many - self.mass.size)
        self.mass = points.by_cell(w, many) + np.pad(self.mass, room)
        self.rows = points.by_cell(np.ones(f.size), many) + np.pad(self.rows, room)
        self.points += f.size
        self.scores += float(w @ f)
        key = self.rng.random(f.size)
        for k in np.unique(code).tolist():
            self._keep(k, key[code == k], f[code == k], w[code == k])

    def _keep(self, k: int, *new: Floats) -> None:
        """Join new points to a cell's sample and cut it to its size."""
        held = self.kept.get(k)
        if held is not None:
            fits = new[0] < (held[0].max() if held[0].size >= SAMPLE else math.inf)
            new = tuple(np.concatenate([old, part[fits]]) for old, part in zip(held, new, strict=True))
        if new[0].size > SAMPLE:
            least = np.argpartition(new[0], SAMPLE)[:SAMPLE]
            new = tuple(part[least] for part in new)
        self.kept[k] = new

    def cell(self, k: int) -> Cell:
        """Return the sample of a cell, its weights scaled to the cell's total."""
        _, f, w = self.kept[k]
        return Cell.of(f, w * (self.mass[k] / w.sum()))


def _mini(stream: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the points in mini-batches, whatever the batches they come in; the rest last."""
    rest: Batch | None = None
    for points in stream:
        whole = points if rest is None else rest.joined(points)
        end = whole.scores.size // MINI * MINI
        for at in range(0, end, MINI):
            yield whole.part(at, at + MINI)
        rest = whole.part(end, whole.scores.size)
    if rest is not None and rest.scores.size:
        yield rest
