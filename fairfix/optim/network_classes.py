"""A network of one hidden layer of ReLUs and a logit for each class, which listed variants of rows hardly change.

Training is that of :mod:`fairfix.optim.network_fit`, on the mean log loss plus ``rho`` times the mean over rows of the
worst variant's change: the mean over the classes of the squared change of the cut, centred logits. A number that is
added to all logits of a row changes nothing, so logits are centred from the start.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: Sensitive set invariance for enforcing individual fairness*, ICLR 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp, softmax
from threadpoolctl import threadpool_limits

from fairfix.optim.arrays import Floats, Ints, shares_of
from fairfix.optim.invariant_classes import centred
from fairfix.optim.network import CLIP, Candidates, Listed, Variants, Worst, constant_along
from fairfix.optim.network_fit import (
    BATCH,
    CHECK,
    FEWEST,
    HIDDEN,
    MOST_STEPS,
    PATIENCE,
    RATES,
    ROWS_PER_HIDDEN,
    Adam,
)


@dataclass(frozen=True, eq=False)
class ClassNetwork:
    """One hidden layer of ReLUs and a logit for each class."""

    W1: Floats
    b1: Floats
    """``W1`` and ``b1``: of the hidden layer, shape (d, h) and (h,)."""
    W2: Floats
    b2: Floats
    """``W2`` and ``b2``: of the logits, shape (h, K) and (K,)."""

    def sums(self, X: Floats) -> Floats:
        """Return the hidden layer before it is cut at 0, shape (n, h)."""
        return np.asarray(X @ self.W1 + self.b1)

    def rectified(self, sums: Floats) -> tuple[Floats, Floats]:
        """Return the hidden layer, shape (n, h), and the centred logits, shape (n, K)."""
        hidden = np.maximum(sums, 0.0)
        return hidden, centred(hidden @ self.W2 + self.b2)

    def worst(self, listed: Listed, sums: Floats, s: Floats) -> Worst:
        """Return the variant of each row that changes the logits most, from hidden sums and logits of the rows."""
        weights = self.W1[listed.columns]
        which, most = np.full(len(s), -1), np.zeros(len(s))
        for k in range(listed.added.shape[1]):
            moved = change(s, self.rectified(listed.added[:, k] @ weights + sums)[1])
            worse = moved > most
            which[worse], most[worse] = k, moved[worse]
        return Worst(which, most)


def change(s: Floats, other: Floats) -> Floats:
    """Return the mean squared change of cut logits, shape (n, K) each, over the classes, shape (n,)."""
    return np.asarray(((np.clip(s, -CLIP, CLIP) - np.clip(other, -CLIP, CLIP)) ** 2).mean(axis=1))


def class_gradient(
    network: ClassNetwork, X: Floats, y: Ints, share: Floats, listed: Listed, rho: float
) -> tuple[float, tuple[Floats, Floats, Floats, Floats]]:
    """Return the objective on rows and its derivatives in ``W1``, ``b1``, ``W2`` and ``b2``.

    ``X``, ``y``, ``share``: rows, shape (m, d), classes and weights of sum 1, shape (m,) each. ``listed``: their
    variants, of which the worst is held fixed (Danskin). ``rho``: weight of the change.
    """
    sums = network.sums(X)
    hidden, s = network.rectified(sums)
    added = listed.steps(network.worst(listed, sums, s))
    there, s_there = network.rectified(sums + added @ network.W1[listed.columns])
    cut, far = np.clip(s, -CLIP, CLIP), np.clip(s_there, -CLIP, CLIP)
    rows, many = np.arange(len(y)), s.shape[1]
    loss = logsumexp(s, axis=1) - s[rows, y]
    value = float(share @ (loss + rho * ((cut - far) ** 2).mean(axis=1)))
    slope = softmax(s, axis=1)
    slope[rows, y] -= 1.0
    slope *= share[:, None]
    pull = 2.0 * rho / many * share[:, None] * (cut - far)
    slope = centred(slope + np.where(np.abs(s) < CLIP, pull, 0.0))
    pull = centred(np.where(np.abs(s_there) < CLIP, -pull, 0.0))
    back, more = (slope @ network.W2.T) * (hidden > 0), (pull @ network.W2.T) * (there > 0)
    both = back + more
    first = X.T @ both
    first[listed.columns] += added.T @ more
    return value, (first, both.sum(axis=0), hidden.T @ slope + there.T @ pull, (slope + pull).sum(axis=0))


class ClassTrainer:
    """A network of classes in training, on rows drawn with replacement in proportion to their weights.

    Attributes
    ----------
    parameters
        All parameters in one vector.
    """

    def __init__(
        self,
        X: Floats,
        y: Ints,
        share: Floats,
        candidates: Candidates,
        *,
        many: int,
        hidden: int,
        rho: float,
        l2: float,
        batch: int,
        seed: int,
        span: Floats | None = None,
    ) -> None:
        d = X.shape[1]
        self.X, self.y, self.rho, self.l2, self.candidates, self.span = X, y, rho, l2, candidates, span
        self.rng = np.random.default_rng(seed)
        self.weighed = np.flatnonzero(share > 0)
        self.upto = np.cumsum(share[self.weighed])
        self.even = np.full(batch, 1.0 / batch)
        rate = np.clip(np.bincount(y, share, many), 1e-6, None)
        first = self.rng.normal(size=(d, hidden)) * math.sqrt(2.0 / d)
        # nothing goes out of the hidden layer at first: the logits begin as the best constants
        outer = np.zeros(hidden * many)
        self.parameters = np.concatenate([first.ravel(), np.zeros(hidden), outer, centred(np.log(rate))])
        self.shape = d, hidden, many
        kept = np.zeros(hidden), np.ones(outer.size), np.zeros(many)
        self.shrunk = np.concatenate([np.ones(first.size), *kept])

    @property
    def network(self) -> ClassNetwork:
        """The network as it is."""
        d, hidden, many = self.shape
        ends = np.cumsum([d * hidden, hidden, hidden * many])
        first, b1, outer, b2 = np.split(self.parameters, ends)
        return ClassNetwork(
            constant_along(self.span, first.reshape(d, hidden)), b1, outer.reshape(hidden, many), b2
        )

    def run(self, steps: int, adam: Adam) -> None:
        """Go some steps."""
        for _ in range(steps):
            at = np.searchsorted(self.upto, self.rng.random(self.even.size) * self.upto[-1], side="right")
            rows = self.weighed[np.minimum(at, self.weighed.size - 1)]
            listed = self.candidates.take(rows)
            _, gradient = class_gradient(
                self.network, self.X[rows], self.y[rows], self.even, listed, self.rho
            )
            parts = constant_along(self.span, gradient[0]), *gradient[1:]
            whole = np.concatenate([np.ravel(part) for part in parts])
            whole += 2.0 * self.l2 / self.shape[1] * self.shrunk * self.parameters
            self.parameters = self.parameters + adam.step(whole)


@dataclass(frozen=True, eq=False)
class ClassNetworkFit:
    """A network of classes and how its training ended."""

    network: ClassNetwork
    """That of the least objective on the rows that judge."""
    objective: float
    """Mean log loss plus ``rho`` times the worst change on these rows."""
    steps: int
    """Of Adam."""
    converged: bool
    """Whether the objective on these rows stood still at the least rate, before the steps ran out."""


def fit_class_network(
    X: Floats,
    y: Ints,
    many: int,
    weight: Floats | None,
    variants: Variants,
    judged: Ints,
    *,
    rho: float,
    l2: float = 0.0,
    seed: int,
    hidden: int | None = None,
    batch: int = BATCH,
    span: Floats | None = None,
) -> ClassNetworkFit:
    """Return a network that is trained until rows it does not learn from say that it gets no better.

    ``y``: classes, 0 to ``many - 1``, shape (n,); the other parameters are those of
    :func:`fairfix.optim.network_fit.fit_network`.
    """
    if not 0 <= rho < math.inf:
        raise ValueError(f"rho must be finite and not negative: {rho}")
    share = shares_of(weight, len(X))
    learned = np.setdiff1d(np.arange(len(X)), judged) if judged.size else np.arange(len(X))
    judged = judged if judged.size else learned
    own = share[judged] / share[judged].sum()
    rows = np.arange(judged.size)

    def objective(network: ClassNetwork) -> float:
        sums = network.sums(X[judged])
        s = network.rectified(sums)[1]
        value = float(own @ (logsumexp(s, axis=1) - s[rows, y[judged]]))
        return value if rho == 0 else value + rho * float(own @ network.worst(listed, sums, s).change)

    with threadpool_limits(1):
        candidates = Candidates.of(X, variants)
        trainer = ClassTrainer(
            X[learned],
            y[learned],
            share[learned] / share[learned].sum(),
            replace(candidates, own=candidates.own[learned], kind=candidates.kind[learned]),
            many=many,
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
    return ClassNetworkFit(trainer.network, value, steps, steps < MOST_STEPS)
