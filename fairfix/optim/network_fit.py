"""Training of a network of little loss whose logit hardly changes under variants of rows and small steps after them.

Adam takes steps on the mean log loss plus ``rho`` times the mean squared change of the cut logit between a row and its
worst variant, as :mod:`fairfix.optim.network_plan` moves it on where steps are free. By Danskin's theorem the gradient
is that with the worst rows held fixed. Rows that are not learned from say when it gets no better.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: Sensitive set invariance for enforcing individual fairness*, ICLR 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

from fairfix.optim.arrays import Floats, Ints, shares_of
from fairfix.optim.network import CLIP, Candidates, Listed, Network, Variants, change, constant_along
from fairfix.optim.network_plan import Ascent

CHECK, PATIENCE = 50, 10
"""Steps between two looks at the rows that judge, and looks without a gain after which a rate is done."""

RATES = (1e-3, 1e-4)
"""Lengths of Adam's steps, one after the other: the second settles what the first leaves jumping."""

MOST_STEPS = 20_000
"""Steps after which training is given up as not converged; Adult takes two to five thousand."""

BATCH = 1000
"""Rows drawn for a step, at most."""

HIDDEN, ROWS_PER_HIDDEN, FEWEST = 100, 10, 4
"""ReLUs at most, rows that each of them takes, and ReLUs at least: 56 rows do not carry a hundred."""

Gradient = tuple[Floats, Floats, Floats, float]
"""Derivatives in ``W1``, ``b1``, ``w2`` and ``b2``."""


def network_gradient(
    network: Network, X: Floats, y: Floats, share: Floats, moved: Floats, rho: float
) -> tuple[float, Gradient]:
    """Return value and gradient of the mean log loss plus ``rho`` times the mean squared change of the cut logits.

    ``network``: where. ``X``, ``y``, ``share``: rows, shape (m, d), labels and weights of sum 1, shape (m,) each.
    ``moved``: the rows they are compared with, shape (m, d), held fixed. ``rho``: weight of the change.
    """
    (hidden, s), (there, s_there) = network.forward(X), network.forward(moved)
    value, slope, pull = _slopes(s, s_there, y, share, rho)
    back, more = _back(network, hidden, slope), _back(network, there, pull)
    first = X.T @ back + moved.T @ more
    outer = slope @ hidden + pull @ there
    return value, (first, (back + more).sum(axis=0), outer, float(slope.sum() + pull.sum()))


def _variant_gradient(
    network: Network, X: Floats, y: Floats, share: Floats, listed: Listed, rho: float
) -> Gradient:
    """Return the gradient where rows are compared with their worst variants.

    That of :func:`network_gradient`, to rounding, in two thirds of its time (4.5 against 6.7 ms for 1,000 rows of 60
    columns): a variant changes few columns, so that its hidden sums are those of its row and a little more.
    """
    sums = network.sums(X)
    hidden, s = network.rectified(sums.copy())
    added = listed.steps(listed.worst(network, sums, s))
    sums += added @ network.W1[listed.columns]
    there, s_there = network.rectified(sums)
    _, slope, pull = _slopes(s, s_there, y, share, rho)
    back, more = _back(network, hidden, slope), _back(network, there, pull)
    back += more
    first = X.T @ back
    first[listed.columns] += added.T @ more
    return first, back.sum(axis=0), slope @ hidden + pull @ there, float(slope.sum() + pull.sum())


def _slopes(s: Floats, there: Floats, y: Floats, share: Floats, rho: float) -> tuple[float, Floats, Floats]:
    """Return the objective and its derivatives in the logits of the rows, and in those they are compared with."""
    cut, far = np.clip(s, -CLIP, CLIP), np.clip(there, -CLIP, CLIP)
    value = float(share @ (np.logaddexp(0.0, s) - y * s + rho * (cut - far) ** 2))
    pull = 2.0 * rho * share * (cut - far)
    slope = share * (expit(s) - y) + np.where(np.abs(s) < CLIP, pull, 0.0)
    return value, slope, np.where(np.abs(there) < CLIP, -pull, 0.0)


def _back(network: Network, hidden: Floats, slope: Floats) -> Floats:
    """Return derivatives in the sums of the hidden layer, shape (n, h), from those in the logits."""
    back = slope[:, None] * network.w2
    back *= hidden > 0
    return np.asarray(back)


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
        All parameters in one vector.
    """

    def __init__(
        self,
        X: Floats,
        y: Floats,
        share: Floats,
        candidates: Candidates,
        ascent: Ascent,
        *,
        hidden: int,
        rho: float,
        l2: float,
        batch: int,
        seed: int,
        span: Floats | None = None,
    ) -> None:
        d = X.shape[1]
        self.X, self.y, self.rho, self.l2, self.ascent = X, y, rho, l2, ascent
        self.candidates, self.span = candidates, span
        self.rng = np.random.default_rng(seed)
        self.weighed = np.flatnonzero(share > 0)
        self.upto = np.cumsum(share[self.weighed])
        self.even = np.full(batch, 1.0 / batch)
        rate = float(np.clip(share @ y, 1e-6, 1.0 - 1e-6))
        first = self.rng.normal(size=(d, hidden)) * math.sqrt(2.0 / d)
        # nothing goes out of the hidden layer at first: the logit begins as the best constant
        start = (first.ravel(), np.zeros(hidden), np.zeros(hidden), [math.log(rate / (1.0 - rate))])
        self.parameters = np.concatenate(start)
        self.shape = d, hidden
        self.shrunk = np.concatenate([np.ones(first.size), np.zeros(hidden), np.ones(hidden), [0.0]])

    @property
    def network(self) -> Network:
        """The network as it is."""
        d, hidden = self.shape
        first, b1, w2, b2 = np.split(self.parameters, np.cumsum([d * hidden, hidden, hidden]))
        return Network(constant_along(self.span, first.reshape(d, hidden)), b1, w2, float(b2[0]))

    def draw(self) -> Ints:
        """Return the numbers of the rows of a step."""
        at = np.searchsorted(self.upto, self.rng.random(self.even.size) * self.upto[-1], side="right")
        return np.asarray(self.weighed[np.minimum(at, self.weighed.size - 1)])

    def run(self, steps: int, adam: Adam) -> None:
        """Go some steps."""
        for _ in range(steps):
            rows, network = self.draw(), self.network
            X, y, listed = self.X[rows], self.y[rows], self.candidates.take(rows)
            if self.ascent.eps > 0 and self.rho > 0:
                moved = self.ascent.moved(network, X, listed, self.even)
                _, gradient = network_gradient(network, X, y, self.even, moved, self.rho)
            else:
                gradient = _variant_gradient(network, X, y, self.even, listed, self.rho)
            parts = constant_along(self.span, gradient[0]), *gradient[1:]
            whole = np.concatenate([np.ravel(part) for part in parts])
            whole += 2.0 * self.l2 / self.shape[1] * self.shrunk * self.parameters
            self.parameters = self.parameters + adam.step(whole)


@dataclass(frozen=True, eq=False)
class NetworkFit:
    """A network and how its training ended."""

    network: Network
    """That of the least objective on the rows that judge."""
    objective: float
    """Mean log loss plus ``rho R`` on these rows, ``R`` of the variants and of the steps that training tries."""
    steps: int
    """Of Adam."""
    converged: bool
    """Whether the objective on these rows stood still at the least rate, before the steps ran out."""


def fit_network(
    X: Floats,
    y: Floats,
    weight: Floats | None,
    variants: Variants,
    judged: Ints,
    *,
    rho: float,
    eps: float = 0.0,
    l2: float = 0.0,
    seed: int,
    bounds: Floats | None = None,
    metric_inverse: Floats | None = None,
    hidden: int | None = None,
    batch: int = BATCH,
    span: Floats | None = None,
) -> NetworkFit:
    """Return a network that is trained until rows it does not learn from say that it gets no better.

    Parameters
    ----------
    X, y, weight
        Rows, shape (n, d), their labels, 0 or 1, and weights, shape (n,) each; None for weights of 1.
    variants
        Listed variants of these rows.
    judged
        Numbers of the rows that judge and are not learned from, shape (m,); none for all rows to do both.
    rho
        Weight of ``R``.
    eps
        Mean cost of the steps beyond the variants; 0 for none.
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
        Number of ReLUs; None for one in so many rows, within limits.
    batch
        Rows drawn for a step, at most.
    span
        Orthonormal basis of directions along which the logit is constant, shape (d, r); None for none.
    """
    if not 0 <= rho < math.inf:
        raise ValueError(f"rho must be finite and not negative: {rho}")
    share, ascent = shares_of(weight, len(X)), Ascent.of(X, eps, bounds, metric_inverse)
    learned = np.setdiff1d(np.arange(len(X)), judged) if judged.size else np.arange(len(X))
    judged = judged if judged.size else learned
    own = share[judged] / share[judged].sum()

    def objective(network: Network) -> float:
        sums = network.sums(X[judged])
        s = network.rectified(sums.copy())[1]
        value = float(own @ (np.logaddexp(0.0, s) - y[judged] * s))
        if rho == 0:
            return value
        if eps > 0:
            moved = ascent.moved(network, X[judged], listed, own)
            return value + rho * float(own @ change(s, network.forward(moved)[1]))
        return value + rho * float(own @ listed.worst(network, sums, s).change)

    with threadpool_limits(1):
        candidates = Candidates.of(X, variants)
        trainer = Trainer(
            X[learned],
            y[learned],
            share[learned] / share[learned].sum(),
            replace(candidates, own=candidates.own[learned], kind=candidates.kind[learned]),
            ascent,
            hidden=hidden or int(np.clip(learned.size // ROWS_PER_HIDDEN, FEWEST, HIDDEN)),
            rho=rho,
            l2=l2,
            batch=min(batch, learned.size),
            seed=seed,
            span=span,
        )
        listed = candidates.take(judged)
        best, value, steps = trainer.parameters, objective(trainer.network), 0
        for rate in RATES:
            trainer.parameters, adam, still = best, Adam(rate, best.size), 0
            while still < PATIENCE and steps < MOST_STEPS:
                trainer.run(CHECK, adam)
                steps += CHECK
                now, still = objective(trainer.network), still + 1
                if now < value:
                    best, value, still = trainer.parameters, now, 0
    trainer.parameters = best
    return NetworkFit(trainer.network, value, steps, steps < MOST_STEPS)
