r"""Bounds, from both sides, on the change of a network's logit under listed variants and small steps after them.

A plan moves each row to one of its variants, at no cost, and then by a step ``u`` at the cost ``u' Sigma u``, of mean
at most ``eps``, within the bounds of the columns. ``R`` is the greatest mean squared change of the cut logit. A plan
that is found bounds it from below. How it is found is in docs/methods/sensei.md.

**In training** a step costs a few passes through the network: of four places for each row (its worst variant, the
best step for linearised logits, and steps of two lengths along the slope) rows get the best for the exact multiplier.

**Above.** With hidden sums ``z_j`` of a variant, a step of length ``r`` changes them by at most ``a_j r``, ``a_j =
sqrt(W_j' Sigma^+ W_j)``, and a ReLU is off its slope by at most ``(a_j r - |z_j|)_+`` and never below it. So the
logit rises by at most ``|g| r + sum_j (w_j)_+ (a_j r - |z_j|)_+``, falls by at most the like with ``(-w_j)_+``, and
either by at most ``L r``. ``L`` is the greatest slope over all patterns of ReLUs, a quadratic program over signs,
bounded by the dual of its semidefinite relaxation. Lengths between two of a grid count as the longer one and cost as
the shorter one.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: Sensitive set invariance for enforcing individual fairness*, ICLR 2021.
A. Raghunathan, J. Steinhardt and P. Liang, *Certified defenses against adversarial examples*, ICLR 2018.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from fairfix.solvers.arrays import Floats, Ints, shares_of
from fairfix.solvers.network import CLIP, Listed, Network, RowVariants, Variants, change
from fairfix.solvers.newton import falling_root
from fairfix.solvers.transport import regularizer_empirical

LENGTHS = (3.0, 10.0)
"""Lengths, in roots of the radius, of the steps along the slope that training tries with the best linearised step.

A plan moves few rows far. With 3 alone a network becomes steep farther out, and a longer search finds six times
as much there.
"""

RADII = 2.0 ** (np.arange(-3, 9) / 2.0)
"""Lengths of the steps that the search for a plan tries, in roots of the radius: a plan may move few rows far."""

TURNS = 3
"""Steps that the search takes at each length, each along the slope where the last one led."""

SHORT = 1e-2
"""Share of a step's squared length above which what the bounds cut off goes to other columns."""

TIE = 1e-9
"""Relative distance from the exact multiplier at which rows take their places: ties go either way."""

SWEEPS, SETTLED = 60, 1e-7
"""Most rounds of the relaxation of the slope's bound, and its relative gain below which it ends; what is left then is
in the bound."""

SPACING, REACH = 1.05, 100.0
"""Ratio of the lengths at which rows are bounded, and the greatest in roots of the radius; one over it is the least."""

ROUNDING = 1e-12
"""Room for the rounding of sums over hidden units."""

MOST_LISTED = 16
"""Variants that are bounded one by one; of more, all by the greatest slope."""


def times(rows: Floats, matrix: Floats) -> Floats:
    """Return rows, shape (m, d), times a symmetric matrix, shape (d, d), or a diagonal one, shape (d,)."""
    return np.asarray(rows * matrix if matrix.ndim == 1 else rows @ matrix)


def free_steps(delta: Floats, slopes: Floats, metric_inverse: Floats, share: Floats, eps: float) -> Floats:
    """Return the steps after the worst variants that change linearised logits most, shape (m, d).

    They maximise ``E (D_i + g_i'u_i)^2`` over steps whose ``u' Sigma u`` is ``eps`` on average.

    ``delta``: ``D``, change of the logit by the variant, shape (m,). ``slopes``: ``g``, slope of the logit at the
    variant, shape (m, d). ``metric_inverse``: ``Sigma^+``, as :func:`times` takes it. ``share``: weights of the rows,
    of sum 1, shape (m,). ``eps``: mean cost.
    """
    pull = times(slopes, metric_inverse)
    q = np.einsum("ij,ij->i", slopes, pull)
    top = int(np.argmax(np.where(share > 0, q, -1.0)))
    most, mean = float(q[top]), float(share @ (q * delta**2))
    if eps <= 0 or most <= 0:
        return np.zeros_like(slopes)
    back = most - np.minimum(q, most)

    def cost(above: float) -> Floats:
        return np.asarray(share * q * (delta / (above + back)) ** 2)

    low, high = 1e-9 * most, math.sqrt(mean / eps)
    if high <= low or cost(low).sum() <= eps:
        # lambda is the greatest q: the steepest row spends what is left
        spent = cost(low)
        spent[top] = 0.0
        steps = (delta / (low + back))[:, None] * pull
        length = math.sqrt(max(eps - float(spent.sum()), 0.0) / (float(share[top]) * most))
        steps[top] = (length if delta[top] >= 0 else -length) * pull[top]
        return np.asarray(steps)

    def over(above: float) -> tuple[float, float]:
        spent = cost(above)
        return float(spent.sum()) - eps, float((2.0 * spent / (above + back)).sum())

    return np.asarray((delta / (falling_root(over, low, high) + back))[:, None] * pull)


@dataclass(frozen=True, eq=False)
class Ascent:
    """Steps within a radius: its square, the metric, its inverse, and the bounds of the columns, shape (2, d).

    The metric and its inverse are as :func:`times` takes them.
    """

    eps: float
    metric: Floats
    inverse: Floats
    bounds: Floats

    @classmethod
    def of(cls, X: Floats, eps: float, bounds: Floats | None, metric_inverse: Floats | None) -> Ascent:
        """Return the steps of rows; a column that is 0 in the metric's inverse stays as it is."""
        if not 0 <= eps < math.inf:
            raise ValueError(f"eps must be finite and not negative: {eps}")
        limits = (
            np.array([X.min(axis=0), X.max(axis=0)]) if bounds is None else np.asarray(bounds, dtype=float)
        )
        inverse = np.eye(X.shape[1]) if metric_inverse is None else metric_inverse
        diagonal = np.diag(inverse)
        if (inverse == np.diag(diagonal)).all():
            metric = np.divide(1.0, diagonal, out=np.zeros(diagonal.size), where=diagonal > 0)
            return cls(eps, metric, diagonal, limits)
        return cls(
            eps, np.asarray(np.linalg.pinv(inverse, hermitian=True), dtype=np.float64), inverse, limits
        )

    def cost(self, steps: Floats) -> Floats:
        """Return ``u' Sigma u`` of each row."""
        if self.metric.ndim == 1:
            return np.asarray(np.square(steps) @ self.metric)
        return np.asarray(np.einsum("ij,ij->i", steps @ self.metric, steps))

    def inside(self, starts: Floats, steps: Floats) -> Floats:
        """Return the rows with their steps, cut at the bounds; what does not move stays to the bit."""
        rows = starts + steps
        np.maximum(rows, self.bounds[0], out=rows)
        np.minimum(rows, self.bounds[1], out=rows)
        np.copyto(rows, starts, where=steps == 0.0)
        return np.asarray(rows)

    def moved(
        self, network: Network, X: Floats, sums: Floats, s: Floats, listed: Listed, share: Floats
    ) -> Floats:
        """Return rows moved so that the logits change most, as far as three to five steps find it.

        Of all places that were visited, the bare variants among them, rows get the best for the exact multiplier of
        the radius over them. ``sums`` and ``s``: hidden sums and logits of the rows, shape (n, h) and (n,).
        """
        worst = listed.worst(network, sums, s[:, None])
        starts, visited = listed.rows(X, worst), Visited(s, self)
        there, slopes = network.slopes_at(sums + listed.steps(worst) @ network.W1[listed.columns])
        visited.add(starts, starts, there)
        steepest = times(slopes, self.inverse)
        pull = np.where(there >= s, 1.0, -1.0)[:, None] * steepest
        places = [self.linear(starts, there - s, slopes, share)]
        gain = np.sqrt(self.eps * np.einsum("ij,ij->i", steepest, slopes))
        # where variants change less than a step does, the other way may change more
        either = np.flatnonzero(np.abs(there - s) < gain)
        lengths = math.sqrt(self.eps) * np.array(LENGTHS)
        places += self.stretched(starts, pull, lengths)
        if either.size:
            for back in self.stretched(starts[either], -pull[either], lengths):
                places.append(starts.copy())
                places[-1][either] = back
        for rows in places:
            visited.add(starts, rows, network.logit(rows))
        return visited.plan(share).near

    def linear(self, starts: Floats, delta: Floats, slopes: Floats, share: Floats) -> Floats:
        """Return where the best steps for linearised logits lead, with what :func:`free_steps` takes."""
        return self.inside(starts, free_steps(delta, slopes, self.inverse, share, self.eps))

    def along(
        self, network: Network, visited: Visited, starts: Floats, sign: Floats, lengths: Floats, turns: int
    ) -> None:
        """Visit where steps of some lengths lead along the slope, up or down, each from where the last one led."""
        here = starts
        for length in lengths * math.sqrt(self.eps):
            for _ in range(turns):
                pull = times(sign[:, None] * network.slopes(here)[1], self.inverse)
                (here,) = self.stretched(starts, pull, [length])
                visited.add(starts, here, network.logit(here))

    def stretched(self, starts: Floats, pull: Floats, lengths: Iterable[float]) -> list[Floats]:
        """Return rows steps of some lengths along a direction: what the bounds cut off, other columns take over."""
        low, high = self.bounds
        free = np.where(np.where(pull > 0, starts < high, starts > low), pull, 0.0)
        steepest, out = self.cost(free), []
        for length in lengths:
            scale = length / np.sqrt(np.where(steepest > 0, steepest, np.inf))
            rows, short = self.inside(starts, scale[:, None] * free), np.arange(len(starts))
            for _ in range(2):
                gone = rows[short] - starts[short]
                left = length**2 - self.cost(gone)
                far = left > SHORT * length**2
                short, gone, left = short[far], gone[far], left[far]
                here, way = rows[short], free[short]
                way[(here <= low) | (here >= high)] = 0.0
                both = np.einsum("ij,ij->i", times(gone, self.metric), way)
                reach = both + np.sqrt(both**2 + self.cost(way) * left)
                scale = left / np.where(reach > 0, reach, np.inf)
                rows[short] = self.inside(here, scale[:, None] * way)
            out.append(rows)
        return out


@dataclass(frozen=True, eq=False)
class TransportPlan:
    """A transport of rows: of each, a share goes to one place and the rest to another."""

    near: Floats
    far: Floats
    """``near`` and ``far``: the places, shape (n, d); the same for all rows but those at a tie."""
    mixed: float
    """Share that goes far."""
    value: float
    cost: float
    """``value`` and ``cost``: mean squared change of the cut logits, and mean cost."""


class Visited:
    """Places of rows whose logits are ``s``, with the squared change of the logit and the cost; the first are free."""

    def __init__(self, s: Floats, ascent: Ascent) -> None:
        self.s, self.ascent = s, ascent
        self.rows: list[Floats] = []
        self.gains: list[Floats] = []
        self.costs: list[Floats] = []

    def add(self, starts: Floats, rows: Floats, there: Floats) -> None:
        """Add a place for each row, which lies a step from its free start, and whose logit is ``there``."""
        self.rows.append(rows)
        self.gains.append(change(self.s, there))
        self.costs.append(self.ascent.cost(rows - starts))

    def plan(self, share: Floats) -> TransportPlan:
        """Return the best plan over all places: the exact multiplier's, two places for rows at a tie."""
        gains, costs = np.stack(self.gains, axis=1), np.stack(self.costs, axis=1)
        every, ends = np.arange(len(gains)), []
        price = _transport(gains, costs, self.ascent.eps, share)[1]
        for factor in (1.0 + TIE, 1.0 - TIE):
            best = np.argmax(gains - price * factor * costs, axis=1)
            ends.append((best, float(share @ costs[every, best])))
        (near, low), (far, high) = ends
        mixed = float(np.clip((self.ascent.eps - low) / (high - low), 0.0, 1.0)) if high > low else 0.0
        value = float(share @ ((1.0 - mixed) * gains[every, near] + mixed * gains[every, far]))
        cost = (1.0 - mixed) * low + mixed * high
        return TransportPlan(self.taken(near), self.taken(far), mixed, value, cost)

    def taken(self, which: Ints) -> Floats:
        """Return one place of each row, by its number, shape (n,)."""
        out = self.rows[0].copy()
        for number, rows in enumerate(self.rows):
            here = which == number
            out[here] = rows[here]
        return out


def _transport(gains: Floats, costs: Floats, eps: float, share: Floats) -> tuple[float, float]:
    """Return the greatest gain over places of each row, shape (n, M), and the multiplier of the radius."""
    n, many = gains.shape
    rows = np.repeat(np.arange(n), many)
    return regularizer_empirical(rows, gains.ravel(), costs.ravel(), eps, many=n, weight=share)


@dataclass(frozen=True, eq=False)
class NetworkRegularizer:
    """``R`` of a network on some rows, from both sides."""

    plan: TransportPlan
    """A plan that keeps the radius; its value is a lower bound."""
    upper: float
    """Bound on the value of every plan within the bounds of the columns."""
    trained: float
    """The value that the steps reach which training takes."""
    slope: float
    """Bound on every slope of the logit, ``sqrt(g' Sigma^+ g)``."""


def network_regularizer(
    network: Network,
    X: Floats,
    variants: Variants,
    *,
    eps: float,
    bounds: Floats,
    weight: Floats | None = None,
    metric_inverse: Floats | None = None,
) -> NetworkRegularizer:
    """Return a plan that moves the logits of rows much, and a bound that holds for all plans.

    ``network``, ``X``, ``variants``: the model, the rows, shape (n, d), and their variants. ``eps``: mean cost of the
    steps after the variants. ``bounds``: least and greatest value of each column, shape (2, d). ``weight``: of rows,
    shape (n,); None for 1 each. ``metric_inverse``: ``Sigma^+``, shape (d, d); None for the identity.
    """
    share, ascent = shares_of(weight, len(X)), Ascent.of(X, eps, bounds, metric_inverse)
    root = _root(ascent.inverse)
    rows = np.arange(len(X))
    listed = [X, *(variants.variant(k, rows) for k in range(variants.many))]
    with threadpool_limits(1):
        logits = np.stack([network.logit(one) for one in listed])
        plan = _searched(network, listed, logits, ascent, share)
        there = ascent.moved(
            network, X, network.sums(X), logits[0], RowVariants.of(X, variants).take(rows), share
        )
        trained = float(share @ change(logits[0], network.logit(there)))
        slope = _steepest(root @ network.W1 * network.W2[:, 0]) if eps > 0 else 0.0
        upper = _bounded(network, listed, logits, root, slope, eps, share)
    return NetworkRegularizer(plan, max(upper, plan.value), trained, slope)


def _searched(
    network: Network, listed: Sequence[Floats], logits: Floats, ascent: Ascent, share: Floats
) -> TransportPlan:
    """Return the best plan over steps of many lengths, up from the highest variant and down from the lowest."""
    visited, rows = Visited(logits[0], ascent), np.arange(share.size)
    every = np.stack(listed)
    for sign, which in ((1.0, logits.argmax(axis=0)), (-1.0, logits.argmin(axis=0))):
        starts = every[which, rows]
        there, slopes = network.slopes(starts)
        visited.add(starts, starts, there)
        if ascent.eps > 0:
            best = ascent.linear(starts, there - logits[0], slopes, share)
            visited.add(starts, best, network.logit(best))
            ascent.along(network, visited, starts, np.full(share.size, sign), RADII, TURNS)
    return visited.plan(share)


def _bounded(
    network: Network,
    listed: Sequence[Floats],
    logits: Floats,
    root: Floats,
    slope: float,
    eps: float,
    share: Floats,
) -> float:
    """Return a bound on the value of every plan."""
    own = np.clip(logits[0], -CLIP, CLIP)
    top, bottom = logits.max(axis=0), logits.min(axis=0)
    bare = float(share @ np.maximum(change(own, top), change(own, bottom)))
    if eps == 0:
        return bare
    grid = _lengths(eps)
    high, low = _limits(network, listed, logits, root, slope, grid)
    most = np.maximum(np.clip(high, -CLIP, CLIP) - own[:, None], own[:, None] - np.clip(low, -CLIP, CLIP))
    gains = np.column_stack([most, CLIP + np.abs(own)]) ** 2
    costs = np.tile(np.concatenate([[0.0], grid]) ** 2, (own.size, 1))
    closed = (math.sqrt(bare) + slope * math.sqrt(eps)) ** 2
    return min(_transport(gains, costs, eps, share)[0], closed) * (1.0 + 1e-9)  # room for rounding


def network_crossings(
    network: Network,
    X: Floats,
    variants: Variants,
    *,
    level: float,
    eps: float,
    metric_inverse: Floats,
) -> Floats:
    """Return a lower bound of the cost of a step after which the logit is on the other side of a level, shape (n,).

    A step may begin at the row or at each of its variants, and goes anywhere: bounds of columns only hinder. A logit at
    the level is above it. ``eps``: the radius, around which steps are bounded most sharply.
    """
    root, rows = _root(metric_inverse), np.arange(len(X))
    listed = [X, *(variants.variant(k, rows) for k in range(variants.many))]
    with threadpool_limits(1):
        logits = np.stack([network.logit(one) for one in listed])
        slope = _steepest(root @ network.W1 * network.W2[:, 0])
        grid = _lengths(eps)
        high, low = _limits(network, listed, logits, root, slope, grid)
    above = logits[0] >= level
    out = np.where(above[:, None], low < level, high >= level)
    longest = np.concatenate([[0.0], grid])[np.where(out.any(axis=1), out.argmax(axis=1), grid.size)]
    near = np.abs(logits - level).min(axis=0) / slope if slope > 0 else np.full(len(X), np.inf)
    across = ((logits >= level) != above).any(axis=0)
    return np.asarray(np.where(across, 0.0, np.maximum(longest, near) ** 2))


def _root(inverse: Floats) -> Floats:
    """Return a root ``r`` of a matrix, ``r' r``, shape (d, d)."""
    if inverse.ndim == 1:
        return np.diag(np.sqrt(inverse))
    roots, vectors = np.linalg.eigh(inverse)
    return np.asarray((vectors * np.sqrt(np.maximum(roots, 0.0))).T)


def _lengths(eps: float) -> Floats:
    """Return the lengths of steps at which logits are bounded, increasing."""
    many = 1 + math.ceil(2.0 * math.log(REACH) / math.log(SPACING))
    return np.asarray(math.sqrt(eps) / REACH * SPACING ** np.arange(many))


def _limits(
    network: Network,
    listed: Sequence[Floats],
    logits: Floats,
    root: Floats,
    slope: float,
    grid: Floats,
) -> tuple[Floats, Floats]:
    """Return the highest and the lowest logit after a step of each length from a row or a variant, (n, G) each."""
    top, bottom = logits.max(axis=0), logits.min(axis=0)
    high, low = top[:, None] + slope * grid, bottom[:, None] - slope * grid
    if len(listed) <= MOST_LISTED:
        weights, near_high, near_low = (
            root @ network.W1,
            np.full_like(high, -np.inf),
            np.full_like(low, np.inf),
        )
        reach, out = np.linalg.norm(weights, axis=0), network.W2[:, 0]
        for one, logit in zip(listed, logits, strict=True):
            sums = network.sums(one)
            steep = np.linalg.norm(((sums > 0) * out) @ weights.T, axis=1)
            steps = logit[:, None], steep[:, None] * grid
            up, down = _bends(np.abs(sums), reach, out, grid)
            np.maximum(near_high, steps[0] + steps[1] + up, out=near_high)
            np.minimum(near_low, steps[0] - steps[1] - down, out=near_low)
        high, low = np.minimum(high, near_high), np.maximum(low, near_low)
    return high, low


def _bends(away: Floats, reach: Floats, out: Floats, grid: Floats) -> tuple[Floats, Floats]:
    """Return how far ReLUs can raise and lower a logit off its slope, by steps of each length, (n, G) each.

    The sums over hidden units of ``|w_j| (a_j r - |z_j|)_+``, for ``w_j`` above and below 0: a unit takes part from the
    first length on that reaches its bend. ``away``: ``|z|``, shape (n, h). ``reach``: ``a``, shape (h,). ``out``:
    ``w``, shape (h,).
    """
    n, many = len(away), grid.size
    first = np.full(away.shape, np.inf)
    np.divide(away, reach, out=first, where=reach > 0)
    at = np.searchsorted(grid, first, side="right") + (many + 1) * (np.arange(n)[:, None] + n * (out < 0))
    size = np.abs(out)
    rise, back = (
        np.cumsum(np.bincount(at.ravel(), each.ravel(), 2 * n * (many + 1)).reshape(2, n, -1), axis=2)[
            ..., :many
        ]
        for each in (np.broadcast_to(size * reach, away.shape), size * away)
    )
    up, down = np.maximum(grid * rise - back, 0.0) + ROUNDING * grid * rise
    return up, down


def _steepest(V: Floats) -> float:
    """Return an upper bound of ``|V s|`` over ``s`` in ``[0, 1]^h``: by the semidefinite relaxation over signs.

    With signs ``t`` it is ``|H t|`` for the matrix ``H`` of half the sum and halves of the columns. Prices ``p > 0`` of
    the signs prove ``|H t|^2 <= sum p`` times the largest eigenvalue of ``H diag(1 / p) H'``.
    """
    half = 0.5 * np.column_stack([V.sum(axis=1), V])
    size, n = (half**2).sum(axis=0), half.shape[1]
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(math.ceil(math.sqrt(2.0 * n)) + 1, n))
    Z /= np.linalg.norm(Z, axis=0)
    value = 0.0
    for _ in range(SWEEPS):
        whole = Z @ half.T
        last, value = value, float((whole**2).sum())
        if value <= last * (1.0 + SETTLED):
            break
        for i in range(n):
            column = half[:, i]
            g = whole @ column - size[i] * Z[:, i]
            length = math.sqrt(float(g @ g))
            if length > 0:
                g /= length
                whole += np.outer(g - Z[:, i], column)
                Z[:, i] = g
    prices = size + np.linalg.norm(Z @ half.T @ half - size * Z, axis=0)
    half, prices = half[:, prices > 0], prices[prices > 0]
    if not prices.size:
        return 0.0
    top = float(np.linalg.eigvalsh((half / prices) @ half.T)[-1])
    return math.sqrt(max(top, 0.0) * float(prices.sum())) * (1.0 + 1e-9)
