r"""Linear logits of several classes that listed moves of rows hardly change.

Rows ``x`` of a class ``y`` of K and weight ``w_i`` (of sum 1), logits ``s = W'x + b``, listed moves ``delta_k``:

.. math::
    \min_{W, b}\; E\, \ell(y, s(x)) + \rho R + \mathrm{l2}\, |W|^2, \qquad
    R = E \max_k \frac{1}{K} | C W' \delta_k |^2, \quad C = I - \tfrac{1}{K} 1 1' .

``R`` is the mean over the classes of the squared change of the centred logits, at the worst move. A number that is
added to all logits of a row changes neither the chances nor ``R``. The greatest of several moves is made smooth,

.. math:: \max_k a_k \le \mu \log \sum_k e^{a_k / \mu} \le \max_k a_k + \mu \log m ,

for m moves and smaller and smaller ``mu``, and each smooth problem is solved by Newton's method, whose steps are found
by conjugate gradients. How the objective is bounded from below is in docs/methods/sensei.md.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: Sensitive set invariance for enforcing individual fairness*, ICLR 2021.
J. Nocedal and S. Wright, *Numerical optimization* (2006), section 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, softmax
from threadpoolctl import threadpool_limits

from fairfix.optim.arrays import Floats, Ints, shares_of
from fairfix.optim.invariant_linear import FREE, Patterns, complement
from fairfix.optim.network import Variants
from fairfix.optim.newton import descend

SMOOTH = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""By how much ``rho R`` may be too great for its smoothing, one after the other: the last is the error that is left,
below what a report shows; from one to the next Newton's method finds its way."""

TURNS = 500
"""Steps of the conjugate gradients at most; of rows of 100 columns, some 50 do."""

CLOSE = 1e-5
"""Distance from the least objective, beyond which the fit has not converged."""


@dataclass(frozen=True, eq=False)
class ClassesFit:
    """Linear logits of least loss and variation."""

    coef: Floats
    intercept: Floats
    """Shapes (d, K) and (K,); each row of them sums to 0 over the classes."""
    objective: float
    """Mean log loss, plus ``rho R``, plus ``l2 |coef|^2``."""
    gap: float
    """Bound on the distance of the objective from the least."""
    steps: int
    """Newton steps."""
    converged: bool
    """Whether the gap is small."""


def centred(s: Floats) -> Floats:
    """Return logits, shape (..., K), less their mean over the classes."""
    return np.asarray(s - s.mean(axis=-1, keepdims=True))


def classes_regularizer(patterns: Patterns, coef: Floats) -> float:
    """Return ``R`` of linear logits, in squared logits."""
    moved = centred(patterns.deltas @ coef)
    return float(patterns.shares @ (moved**2).mean(axis=2).max(axis=1, initial=0.0))


def fit_linear_classes(
    X: Floats,
    y: Ints,
    many: int,
    weight: Floats | None,
    variants: Variants,
    span: Floats | None = None,
    *,
    rho: float,
    l2: float = 0.0,
) -> ClassesFit:
    """Return the linear logits that minimise mean log loss, ``rho R`` and ``l2 |coef|^2``.

    Parameters
    ----------
    X, y, weight
        Rows, shape (n, d), their classes, 0 to ``many - 1``, and weights, shape (n,) each; None for weights of 1.
    many
        K, at least 2.
    variants
        Listed variants of these rows, each a move.
    span
        Directions along which moves are free, shape (r, d): logits are constant along them. None for none.
    rho
        Weight of ``R``; infinite for logits that no listed move changes, by projection.
    l2
        Weight of ``|coef|^2``.
    """
    n, d = X.shape
    if math.isnan(rho) or rho < 0 or not 0 <= l2 < math.inf:
        raise ValueError(f"rho and l2 must not be negative, and l2 finite: {rho}, {l2}")
    share = shares_of(weight, n)
    patterns = Patterns.of(X, variants, share)
    free = np.zeros((0, d)) if span is None else np.asarray(span, dtype=float).reshape(-1, d)
    if math.isinf(rho):
        free = np.concatenate([free, np.unique(patterns.deltas.reshape(-1, d), axis=0)])
    if rho in (0.0, math.inf):
        rho, patterns = 0.0, Patterns(np.zeros((0, 0, d)), np.zeros(0))
    basis = complement(free, d) if len(free) else np.eye(d)
    patterns = Patterns(patterns.deltas @ basis, patterns.shares)
    with threadpool_limits(1):
        problem = _Smooth(np.column_stack([X @ basis, np.ones(n)]), y, many, share, patterns, rho, l2)
        x, steps, bound = _solved(problem)
    own, intercept = x[:-1], x[-1]
    objective = problem.loss(x) + l2 * float((own**2).sum())
    objective += rho * classes_regularizer(patterns, own) if rho else 0.0
    gap = max(objective - bound, 0.0)
    return ClassesFit(basis @ own, intercept, objective, gap, steps, gap <= CLOSE)


@dataclass(eq=False)
class _Smooth:
    """The smooth objective of coefficients and intercepts, shape (d + 1, K), which solvers see as one vector."""

    X: Floats
    y: Ints
    many: int
    share: Floats
    patterns: Patterns
    rho: float
    l2: float
    mu: float = 1.0

    def __post_init__(self) -> None:
        truth = self.y[:, None] == np.arange(self.many)
        self.xy = self.X.T @ (self.share[:, None] * truth)
        ridge = np.full(self.X.shape[1], 2.0 * self.l2 + FREE)
        ridge[-1] = FREE
        self.ridge = ridge[:, None]
        self.squares = self.X**2

    @property
    def moves(self) -> int:
        """Number of listed moves of a row."""
        return int(self.patterns.deltas.shape[1]) if self.rho and len(self.patterns.shares) else 0

    def shaped(self, x: Floats) -> Floats:
        """Return a vector in the shape (d + 1, K)."""
        return x.reshape(-1, self.many)

    def loss(self, x: Floats) -> float:
        """Return the mean log loss."""
        return float(self.share @ logsumexp(self.X @ x, axis=1) - (self.xy * x).sum())

    def moved(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the change of the centred logits by each move, (G, m, K), and its mean square, (G, m)."""
        change = centred(self.patterns.deltas @ x[:-1])
        return change, (change**2).mean(axis=2)

    def value(self, flat: Floats) -> float:
        """Return the smooth objective."""
        x = self.shaped(flat)
        out = self.loss(x) + 0.5 * float((self.ridge * x**2).sum())
        if self.moves:
            soft = self.mu * logsumexp(self.moved(x)[1] / self.mu, axis=1)
            out += self.rho * float(self.patterns.shares @ soft)
        return out

    def direction(self, flat: Floats) -> tuple[Floats, float]:
        """Return the Newton step, up to a residual that shrinks with the gradient, and its decrement."""
        x = self.shaped(flat)
        chance = softmax(self.X @ x, axis=1)
        gradient = self.X.T @ (self.share[:, None] * chance) - self.xy + self.ridge * x
        spread = self.squares.T @ (self.share[:, None] * chance * (1.0 - chance)) + self.ridge
        shares, deltas = self.patterns.shares, self.patterns.deltas
        change, picked = np.zeros((0, 0, self.many)), np.zeros((0, 0))
        if self.moves:
            change, square = self.moved(x)
            picked = self.rho * shares[:, None] * softmax(square / self.mu, axis=1)
            pull = 2.0 / self.many * np.einsum("gm,gmd,gmk->dk", picked, deltas, change, optimize=True)
            gradient[:-1] += pull
            spread[:-1] += 2.0 / self.many * np.einsum("gm,gmd->d", picked, deltas**2)[:, None]

        def curved(v: Floats) -> Floats:
            s = self.X @ v
            inner = chance * (s - (chance * s).sum(axis=1, keepdims=True))
            out = self.X.T @ (self.share[:, None] * inner) + self.ridge * v
            if self.moves:
                turn = centred(deltas @ v[:-1])
                rise = 2.0 * (change * turn).mean(axis=2)
                mean = (picked * rise).sum(axis=1, keepdims=True) / (self.rho * shares[:, None])
                both = picked[:, :, None] * turn + (picked * (rise - mean) / self.mu)[:, :, None] * change
                moves = both.reshape(-1, self.many)
                out[:-1] += 2.0 / self.many * deltas.reshape(-1, deltas.shape[2]).T @ moves
            return np.asarray(out)

        size = float(np.abs(gradient).max())
        step = _conjugate(curved, gradient, spread, min(0.1, math.sqrt(size)))
        return step.ravel(), -0.5 * float((gradient * step).sum())

    def below(self, flat: Floats) -> float:
        """Return a lower bound of the objective: by the gradient, the ridge and what smoothing adds at most."""
        x = self.shaped(flat)
        gradient = self.X.T @ (self.share[:, None] * softmax(self.X @ x, axis=1)) - self.xy + self.ridge * x
        if self.moves:
            change, square = self.moved(x)
            picked = self.rho * self.patterns.shares[:, None] * softmax(square / self.mu, axis=1)
            pull = np.einsum("gm,gmd,gmk->dk", picked, self.patterns.deltas, change, optimize=True)
            gradient[:-1] += 2.0 / self.many * pull
        added = self.rho * self.mu * math.log(self.moves) * self.patterns.shares.sum() if self.moves else 0.0
        least = self.value(flat) - 0.5 * float((gradient**2 / self.ridge).sum())
        return least - added - 0.5 * FREE * float((x**2).sum())


def _conjugate(
    curved: Callable[[Floats], Floats], gradient: Floats, spread: Floats, tolerance: float
) -> Floats:
    """Return the step ``-H^-1 g`` by conjugate gradients, preconditioned by the diagonal of ``H``, (d + 1, K)."""
    step, residual = np.zeros_like(gradient), -gradient
    near = residual / spread
    along, fall = near, float((residual * near).sum())
    goal = tolerance**2 * fall
    for _ in range(TURNS):
        if fall <= goal or fall <= 0:
            break
        bent = curved(along)
        length = fall / float((along * bent).sum())
        step = step + length * along
        residual = residual - length * bent
        near = residual / spread
        before, fall = fall, float((residual * near).sum())
        along = near + fall / before * along
    return step


def _solved(problem: _Smooth) -> tuple[Floats, int, float]:
    """Return the optimum, shape (d + 1, K), Newton steps and a lower bound of the objective."""
    rate = np.clip(problem.xy[-1], 1e-6, None)
    x = np.zeros((problem.X.shape[1], problem.many))
    x[-1] = centred(np.log(rate))
    flat, steps = x.ravel(), 0
    single = problem.moves < 2  # one move is smooth as it is
    for error in (0.0,) if single else SMOOTH:
        if not single:
            problem.mu = error / (problem.rho * math.log(problem.moves))
        final = single or error == SMOOTH[-1]
        end = descend(
            flat,
            problem.value,
            problem.direction,
            tolerance=1e-20 if final else 0.1 * error,
            rough=1e-13 if final else 0.0,
        )
        flat, steps = end.x, steps + end.steps
    x = problem.shaped(flat)
    return x, steps, problem.below(flat)
