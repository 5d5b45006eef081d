r"""Quantiles that intervals need: of the beta, Student's t, the normal and Kolmogorov's distribution. numpy alone.

scipy has them; the audit path does without, so that a small audit starts at once.

Everything works on ``y = logit(x)``: there the Beta density ``f(y) = x^a (1-x)^b / B(a, b)`` is log-concave for all
``a, b > 0``, both tails fall at least exponentially, and neither ``x`` nor ``1-x`` loses digits. A tail is ``f(y)``
times an integral that a fixed Gauss-Legendre rule gets right for every ``a`` and ``b``, so a quantile costs the same
for 30 rows and for a billion; a continued fraction would need ``sqrt(n)`` terms.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Limits: TypeAlias = tuple[Floats, Floats]

_SHIFT = 4  # the integral is taken at a + 4, where its integrand has no long flat tail, and brought back
_DROP = 34.0  # and cut off where the integrand has fallen by e^-34
_POINTS = 28  # the rule's error for exp(-34u) on [0, 1] is below 1e-14 from 25 points on


def _gauss_legendre(points: int) -> Limits:
    """Nodes and weights on [0, 1] (Golub-Welsch; numpy.polynomial costs 7 ms to import)."""
    k = np.arange(1, points)
    beside = k / np.sqrt(4.0 * k * k - 1)
    nodes, vectors = np.linalg.eigh(np.diag(beside, 1) + np.diag(beside, -1))
    return (nodes + 1) / 2, vectors[0] ** 2


_BLOCK = 512  # quantiles found at a time: arrays of 512 x 28 numbers need no fresh pages from the system

_NODES, _WEIGHTS = _gauss_legendre(_POINTS)


def _sigmoid(y: Floats) -> Floats:
    return np.exp(-np.logaddexp(0.0, -y))


def _stirling_error(z: Floats) -> Floats:
    """``log Γ(z)`` minus Stirling's ``(z - 1/2) log z - z + log(2π)/2``, for z > 0."""
    small = z < 10
    far = np.where(small, z + 10, z)
    i = 1 / far**2
    error = (1 / 12 - i * (1 / 360 - i * (1 / 1260 - i * (1 / 1680 - i / 1188)))) / far
    if small.any():  # Γ(z) = Γ(z+10) / (z (z+1) ... (z+9))
        z, far = z[small], far[small]
        error[small] += (far - 0.5) * np.log(far) - (z - 0.5) * np.log(z) - 10
        error[small] -= np.log(z[:, None] + np.arange(10)).sum(axis=1)
    return error


def _log_peak(a: Floats, b: Floats) -> Floats:
    """``log f`` at the mean ``x = a/(a+b)``, its largest value."""
    n = a + b
    bulk = 0.5 * np.log(a / n * b / (2 * math.pi))
    return np.asarray(bulk + _stirling_error(n) - _stirling_error(a) - _stirling_error(b))


def _log_density(y: Floats, a: Floats, b: Floats, peak: Floats) -> Floats:
    """``log f(y)`` as its peak minus the deviance, which keeps its digits for huge ``a``, ``b`` (Loader)."""
    n = a + b
    log_x, log_1x = -np.logaddexp(0.0, -y), -np.logaddexp(0.0, y)
    excess = np.where(y < 0, n * np.exp(log_x) - a, b - n * np.exp(log_1x))  # n x - a
    near = np.abs(excess) < 0.5 * np.minimum(a, b)
    e = np.where(near, excess, 0.0)
    close = -a * np.log1p(e / a) - b * np.log1p(-e / b)
    away = -a * (np.log1p(b / a) + log_x) - b * (np.log1p(a / b) + log_1x)
    return np.asarray(peak - np.where(near, close, away))


def _reach(x: Floats, a: Floats, n: Floats) -> Floats:
    """How far left of ``x`` (in logits) the density has fallen by ``e^-34``, or a little further."""
    slope, bend = a - n * x, n * x * (1 - x)
    reach = 2 * _DROP / (slope + np.sqrt(slope**2 + 2 * _DROP * bend))
    for _ in range(2):  # Newton on a concave function: never short of the root
        ahead = 1 + x * np.expm1(-reach)
        fall = a * reach + n * np.log(ahead)
        reach = reach + (_DROP - fall) / (a - n * x * np.exp(-reach) / ahead)
    return np.asarray(reach)


def _tail_over_density(y: Floats, a: Floats, b: Floats) -> Floats:
    """``R(a, b) = I_x(a, b) / f(y)`` for ``x`` not above ``(a+1) / (a+b+2)``.

    ``R = ∫ exp(a t - (a+b) log(1 + x (e^t - 1))) dt`` over ``t < 0``, at ``a + 4``, then four times
    ``R(a, b) = (1 + x (a+b) R(a+1, b)) / a``. For ``x > 1/2`` the exponent is the same expression in ``b``,
    ``1 - x`` and ``-t``, which does not cancel where ``a`` is huge and ``b`` is not.
    """
    x, n = _sigmoid(y), a + b
    reach = _reach(x, a + _SHIFT, n + _SHIFT)
    right = y > 0
    t = np.where(right, reach, -reach)[:, None] * _NODES
    rise = np.where(right, b, a + _SHIFT)[:, None] * t
    exponent = rise - (n + _SHIFT)[:, None] * np.log1p(_sigmoid(-np.abs(y))[:, None] * np.expm1(t))
    ratio = reach * (np.exp(exponent) @ _WEIGHTS)
    for j in reversed(range(_SHIFT)):
        ratio = (1 + x * (n + j) * ratio) / (a + j)
    return np.asarray(ratio)


def _log_lower_tail(y: Floats, a: Floats, b: Floats, peak: Floats) -> Limits:
    """``log I_x(a, b)`` and its derivative in ``y``; above the mean through the other tail.

    The border is the mean with one more row of each kind: that of a shape near 0 lies on a long plateau,
    which only the shifted integral from that shape's own end takes in its stride.
    """
    above = y > np.log((a + 1) / (b + 1))
    a, b, y = np.where(above, b, a), np.where(above, a, b), np.where(above, -y, y)
    log_density = _log_density(y, a, b, peak)
    log_tail = log_density + np.log(_tail_over_density(y, a, b))
    if above.any():
        tail = np.minimum(np.exp(log_tail), 1 - 1e-16)
        log_tail = np.where(above, np.log1p(-tail), log_tail)
    return log_tail, np.exp(log_density - log_tail)


def _first_guess(tail: Floats, a: Floats, b: Floats) -> Floats:
    """Abramowitz and Stegun 26.5.22 for ``a, b > 1``, else the power law of the nearer end."""
    t = np.sqrt(-2 * np.log(tail))
    z = t - (2.30753 + 0.27061 * t) / (1 + t * (0.99229 + 0.04481 * t))
    with np.errstate(all="ignore"):  # each branch only has to make sense where it is chosen
        i, j = 1 / (2 * a - 1), 1 / (2 * b - 1)
        h, lam = 2 / (i + j), (z * z - 3) / 6
        w = z * np.sqrt(h + lam) / h - (j - i) * (lam + 5 / 6 - 2 / (3 * h))
        middle = np.log(a / b) - 2 * w
        left, right = -a * np.log1p(b / a) - np.log(a), -b * np.log1p(a / b) - np.log(b)
        both = np.logaddexp(left, right)
        log_x = np.minimum((np.log(a) + both + np.log(tail)) / a, -0.01)
        log_1x = np.minimum((np.log(b) + both + np.log1p(-tail)) / b, -0.01)
        below = log_x - np.log(-np.expm1(log_x))
        above = np.log(-np.expm1(log_1x)) - log_1x
        ends = np.where(np.log(tail) < left - both, below, above)
    return np.asarray(np.where((a > 1) & (b > 1), middle, ends))


def _logit_quantile(tail: Floats, a: Floats, b: Floats) -> Floats:
    """The ``y`` with ``I_x(a, b) = tail <= 1/2``.

    Halley's iteration on ``log I``, which is concave in ``y``: from any start the error shrinks, and its cube
    remains once it is small, so two or three rounds do.
    """
    y, peak, log_tail = _first_guess(tail, a, b), _log_peak(a, b), np.log(tail)
    active = np.arange(len(y))
    for _ in range(100):
        p, q, at = a[active], b[active], y[active]
        error, slope = _log_lower_tail(at, p, q, peak[active])
        error = error - log_tail[active]
        bend = p - (p + q) * _sigmoid(at) - slope
        newton = error / slope
        y[active] = at - newton / np.maximum(1 - 0.5 * newton * bend, 0.5)
        active = active[np.abs(error) > 1e-5]
        if not len(active):
            break
    return y


def _logits(tail: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """Quantiles on the logit scale for any tail in (0, 1): above one half, the other tail of Beta(b, a)."""
    p, a, b = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (tail, a, b)))
    flip = p > 0.5
    lower = np.where(flip, 1 - p, p).ravel(), np.where(flip, b, a).ravel(), np.where(flip, a, b).ravel()
    y = np.empty(p.size)
    for start in range(0, p.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        y[block] = _logit_quantile(*(v[block] for v in lower))
    return np.where(flip, -y.reshape(p.shape), y.reshape(p.shape))


def incomplete_beta(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Floats:
    """The regularised incomplete beta function ``I_x(a, b)``, the distribution function of Beta(a, b).

    Parameters
    ----------
    a, b
        Shapes, from 1e-3 to 1e9; real.
    x
        Points of [0, 1].
    """
    a, b, x = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (a, b, x)))
    inside = (x > 0) & (x < 1)
    p, q, at = a[inside], b[inside], x[inside]
    result = np.array(x >= 1, dtype=np.float64)
    result[inside] = np.exp(_log_lower_tail(np.log(at) - np.log1p(-at), p, q, _log_peak(p, q))[0])
    return result


def beta_quantile(tail: ArrayLike, a: ArrayLike, b: ArrayLike, *, upper: bool = False) -> Floats:
    """The point of Beta(a, b) that leaves ``tail`` below it (above it with ``upper``).

    Parameters
    ----------
    tail
        Probabilities in (0, 1).
    a, b
        Shapes, from 1e-3 to 1e9; real. All three broadcast.
    upper
        Measure the tail from 1 downwards; no digits are lost to ``1 - tail``.

    Returns
    -------
    Array with relative accuracy 1e-10 or better; about 1 µs an element.
    """
    return _sigmoid(-_logits(tail, b, a) if upper else _logits(tail, a, b))


def student_quantile(tail: ArrayLike, df: ArrayLike) -> Floats:
    """The ``t >= 0`` that Student's t with ``df`` degrees of freedom exceeds with probability ``tail``.

    For ``tail <= 1/2``. With ``x = df/(df + t²)``, ``P(|T| > t) = I_x(df/2, 1/2)``, and on the logit scale
    ``t² = df (1-x)/x = df e^-y``.
    """
    df = np.minimum(np.asarray(df, dtype=np.float64), 1e9)  # beyond, indistinguishable from the normal
    both = 2 * np.asarray(tail, dtype=np.float64)
    logits = _logits(np.minimum(both, 0.999999), df / 2, 0.5)
    return np.where(both < 0.999999, np.sqrt(df) * np.exp(-logits / 2), 0.0)


def normal_quantile(tail: float) -> float:
    """The point a standard normal exceeds with probability ``tail``."""
    return -NormalDist().inv_cdf(tail)


def kolmogorov_quantile(alpha: float) -> float:
    """``c = sqrt(-ln(α/2)/2)``: the first term of Kolmogorov's series, an upper bound on its quantile."""
    return math.sqrt(-math.log(alpha / 2) / 2)
