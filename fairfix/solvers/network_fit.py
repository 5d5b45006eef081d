"""Training of a network of little loss whose logits hardly change under variants of rows and small steps after them.

Adam takes steps on the mean log loss plus ``rho`` times the mean squared change of the cut logits between a row and its
worst variant, as :mod:`fairfix.solvers.relu_change_bounds` moves it on where steps are free. By Danskin's theorem the
gradient is that with the worst rows held fixed. Rows that are not learned from say when it gets no better.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: Sensitive set invariance for enforcing individual fairness*, ICLR 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logsumexp, softmax
from threadpoolctl import threadpool_limits

from fairfix.solvers.arrays import Floats, Ints, shares_of
from fairfix.solvers.network import (
    CLIP,
    Listed,
    Network,
    RowVariants,
    Variants,
    centred,
    change,
    constant_along,
)
from fairfix.solvers.relu_change_bounds import Ascent

CHECK, PATIENCE = 50, 10
"""Steps between two looks at the rows that judge, and looks without a gain after which a rate is done."""

RATES = (1e-3, 1e-4)
"""Lengths of Adam's steps, one after the other: the second settles what the first leaves jumping."""

FREE_RATES = (5e-3, 5e-4)
"""The same where steps are free, whose objective falls slowly: shorter ones take half as many again on Adult."""

MOST_STEPS = 20_000
"""Steps after which training is given up as not converged; Adult takes two to five thousand."""

BATCH = 1000
"""Rows drawn for a step, at most."""

HIDDEN, ROWS_PER_HIDDEN, FEWEST = 100, 10, 4
"""ReLUs at most, rows that each of them takes, and ReLUs at least: 56 rows do not carry a hundred."""


@dataclass(frozen=True, eq=False)
class Moved:
    """Rows ``X`` through a network, and where they are moved by what is ``added`` to some ``columns``.

    ``hidden``, ``there``: the hidden layers, shape (n, h); ``s``, ``s_there``: the logits, shape (n, K).
    """

    network: Network
    X: Floats
    columns: Ints | slice
    added: Floats
    hidden: Floats
    s: Floats
    there: Floats
    s_there: Floats

    @classmethod
    def of(cls, network: Network, X: Floats, share: Floats, listed: Listed, ascent: Ascent | None) -> Moved:
        """Return rows moved to their worst variants, and on from there by an ascent; None for no such steps.

        A variant changes few columns, so that its hidden sums are those of its row and a little more.
        """
        sums = network.sums(X)
        hidden, s = network.rectified(sums.copy())
        if ascent is None:
            columns, added = listed.columns, listed.steps(listed.worst(network, sums, s))
            sums += added @ network.W1[columns]
            return cls(network, X, columns, added, hidden, s, *network.rectified(sums))
        moved = ascent.moved(network, X, sums, s[:, 0], listed, share)
        return cls(network, X, slice(None), moved - X, hidden, s, *network.forward(moved))

    def value(self, y: Ints, share: Floats, rho: float) -> float:
        """Return the mean log loss plus ``rho`` times the mean squared change of the cut logits.

        ``y``, ``share``: labels and weights of sum 1, shape (n,) each.
        """
        return float(share @ (log_loss(self.s, y) + rho * change(self.s, self.s_there).mean(axis=1)))

    def gradient(self, y: Ints, share: Floats, rho: float) -> Network:
        """Return the derivatives of :meth:`value` in the weights of the network; the moves are held fixed (Danskin)."""
        s, there, K = self.s, self.s_there, self.s.shape[1]
        pull = 2.0 * rho / K * share[:, None] * (np.clip(s, -CLIP, CLIP) - np.clip(there, -CLIP, CLIP))
        slope = loss_slope(s, y, share) + np.where(np.abs(s) < CLIP, pull, 0.0)
        slope, pull = centred(slope), centred(np.where(np.abs(there) < CLIP, -pull, 0.0))
        back, more = slope @ self.network.W2.T, pull @ self.network.W2.T
        back *= self.hidden > 0
        more *= self.there > 0
        back += more
        first = self.X.T @ back
        first[self.columns] += self.added.T @ more
        outer = self.hidden.T @ slope + self.there.T @ pull
        return Network(first, back.sum(axis=0), outer, slope.sum(axis=0) + pull.sum(axis=0))


def log_loss(s: Floats, y: Ints) -> Floats:
    """Return the log loss of each row, shape (n,), by its logits, shape (n, K)."""
    if s.shape[1] == 1:
        return np.asarray(np.logaddexp(0.0, s[:, 0]) - y * s[:, 0])
    return np.asarray(logsumexp(s, axis=1) - s[np.arange(len(y)), y])


def loss_slope(s: Floats, y: Ints, share: Floats) -> Floats:
    """Return the derivatives of the mean log loss in the logits, shape (n, K)."""
    K = s.shape[1]
    chance = expit(s) if K == 1 else softmax(s, axis=1)
    return np.asarray(share[:, None] * (chance - (y[:, None] == (np.arange(K) if K > 1 else 1))))


class Adam:
    """The moments of Adam (Kingma and Ba, 2015), of all parameters in one vector."""

    def __init__(self, rate: float, size: int) -> None:
        self.rate, self.count = rate, 0
        self.first, self.second = np.zeros(size), np.zeros(size)

    def step(self, gradient: Floats) -> Floats:
        """Return the step."""
        self.count += 1
        self.first += 0.1 * (gradient - self.first)
        self.second += 0.001 * (gradient**2 - self.second)
        scale = math.sqrt(1.0 - 0.999**self.count) / (1.0 - 0.9**self.count)
        return -self.rate * scale * self.first / (np.sqrt(self.second) + 1e-8)


class Trainer:
    """A network in training, on rows drawn with replacement in proportion to their weights.

    Attributes
    ----------
    parameters
        All weights in one vector.
    """

    def __init__(
        self,
        X: Floats,
        y: Ints,
        share: Floats,
        candidates: RowVariants,
        ascent: Ascent | None,
        *,
        logits: int = 1,
        hidden: int,
        rho: float,
        l2: float,
        batch: int,
        seed: int,
        span: Floats | None = None,
    ) -> None:
        d = X.shape[1]
        self.X, self.y, self.rho, self.l2, self.ascent = X, y, rho, l2, ascent
        self.candidates, self.span, self.shape = candidates, span, (d, hidden, logits)
        self.rng = np.random.default_rng(seed)
        self.weighed = np.flatnonzero(share > 0)
        self.upto = np.cumsum(share[self.weighed])
        self.even = np.full(batch, 1.0 / batch)
        rate = np.clip(np.bincount(y, share, max(logits, 2)), 1e-6, 1.0 - 1e-6)
        level = centred(np.log(rate)) if logits > 1 else np.log(rate[1:] / rate[:1])
        first = self.rng.normal(size=(d, hidden)) * math.sqrt(2.0 / d)
        outer = np.zeros((hidden, logits))
        # nothing goes out of the hidden layer at first: the logits begin as the best constants
        self.parameters = Network(first, np.zeros(hidden), outer, level).vector
        self.shrunk = Network(np.ones(first.shape), np.zeros(hidden), outer + 1.0, np.zeros(logits)).vector

    @property
    def network(self) -> Network:
        """The network as it is."""
        network = Network.of(self.parameters, self.shape)
        return replace(network, W1=constant_along(self.span, network.W1))

    def draw(self) -> Ints:
        """Return the numbers of the rows of a step."""
        at = np.searchsorted(self.upto, self.rng.random(self.even.size) * self.upto[-1], side="right")
        return np.asarray(self.weighed[np.minimum(at, self.weighed.size - 1)])

    def run(self, steps: int, adam: Adam) -> None:
        """Go some steps."""
        for _ in range(steps):
            rows = self.draw()
            moved = Moved.of(self.network, self.X[rows], self.even, self.candidates.take(rows), self.ascent)
            slope = moved.gradient(self.y[rows], self.even, self.rho)
            whole = replace(slope, W1=constant_along(self.span, slope.W1)).vector
            whole += 2.0 * self.l2 / self.shape[1] * self.shrunk * self.parameters
            self.parameters = self.parameters + adam.step(whole)


@dataclass(frozen=True, eq=False)
class NetworkFit:
    """A network and how its training ended."""

    network: Network
    """Network of the least objective on the rows that judge."""
    objective: float
    """Mean log loss plus ``rho R`` on these rows, ``R`` of the variants and of the steps that training tries."""
    steps: int
    """Steps of Adam."""
    converged: bool
    """Whether the objective on these rows stood still at the least rate, before the steps ran out."""


def fit_network(
    X: Floats,
    y: Floats | Ints,
    weight: Floats | None,
    variants: Variants,
    judged: Ints,
    *,
    logits: int = 1,
    rho: float,
    eps: float = 0.0,
    l2: float = 0.0,
    seed: int,
    bounds: Floats | None = None,
    metric_inverse: Floats | None = None,
    hidden: int | None = None,
    batch: int = BATCH,
    span: Floats | None = None,
    start: Network | None = None,
) -> NetworkFit:
    """Return a network that is trained until rows it does not learn from say that it gets no better.

    Parameters
    ----------
    X, y, weight
        Rows, shape (n, d), their labels, 0 or 1, or classes, 0 to K - 1, and weights, shape (n,) each; None for weights
        of 1.
    variants
        Listed variants of these rows.
    judged
        Numbers of the rows that judge and are not learned from, shape (m,); none for all rows to do both.
    logits
        K: 1 for that of label 1, else one for each class.
    rho
        Weight of ``R``.
    eps
        Mean cost of the steps beyond the variants; 0 for none, as for several logits.
    l2
        Weight of the squared weights of both layers, without their intercepts: their mean over the ReLUs. The sum would
        cost Adult, at the 0.001 that suits a linear model, .0035 of log loss.
    seed
        Of the first weights and of the draws.
    bounds
        Least and greatest value of each column, shape (2, d), for the free steps; None for those of ``X``.
    metric_inverse
        ``Sigma^+`` of the free steps, shape (d, d); None for the identity.
    hidden
        Number of ReLUs; None for a fixed fraction of the rows, within limits.
    batch
        Rows drawn for a step, at most.
    span
        Orthonormal basis of directions along which the logits are constant, shape (d, r); None for none.
    start
        The network to begin with, that of another ``rho`` with a hidden layer of the same size, and shorter steps; None
        for a random one.
    """
    if not 0 <= rho < math.inf:
        raise ValueError(f"rho must be finite and not negative: {rho}")
    if logits > 1 and eps > 0:
        raise ValueError("steps of several logits are not bounded: set eps to 0")
    share, codes = shares_of(weight, len(X)), y.astype(np.int64)
    ascent = Ascent.of(X, eps, bounds, metric_inverse)
    steps_on = ascent if eps > 0 and rho > 0 else None
    learned = np.setdiff1d(np.arange(len(X)), judged) if judged.size else np.arange(len(X))
    judged = judged if judged.size else learned
    own = share[judged] / share[judged].sum()

    def objective(network: Network) -> float:
        return Moved.of(network, X[judged], own, listed, steps_on).value(codes[judged], own, rho)

    with threadpool_limits(1):
        candidates = RowVariants.of(X, variants)
        trainer = Trainer(
            X[learned],
            codes[learned],
            share[learned] / share[learned].sum(),
            replace(candidates, own=candidates.own[learned], kind=candidates.kind[learned]),
            steps_on,
            logits=logits,
            hidden=hidden or int(np.clip(learned.size // ROWS_PER_HIDDEN, FEWEST, HIDDEN)),
            rho=rho,
            l2=l2,
            batch=min(batch, learned.size),
            seed=seed,
            span=span,
        )
        listed = candidates.take(judged)
        if start is not None:
            trainer.parameters = start.vector
        best, value, steps = trainer.parameters, objective(trainer.network), 0
        rates = FREE_RATES if steps_on else RATES
        # longer steps would lead away from a start that is near the end
        for rate in rates if start is None else rates[1:]:
            trainer.parameters, adam, still = best, Adam(rate, best.size), 0
            while still < PATIENCE and steps < MOST_STEPS:
                trainer.run(CHECK, adam)
                steps += CHECK
                now, still = objective(trainer.network), still + 1
                if now < value:
                    best, value, still = trainer.parameters, now, 0
    trainer.parameters = best
    return NetworkFit(trainer.network, value, steps, steps < MOST_STEPS)
