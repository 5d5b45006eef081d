r"""Algorithm 1 of the ramp's paper as printed, beside its bound; Theorem 2 beside the excess.

``python benchmarks/ramp_algorithm1.py [DRAWS]`` prints Markdown. Each group has two multipliers ``x = (lambda, mu)``,
the dual of ``|E[q] - rho| <= d`` (``d = slack / 2``), and the objective

.. math:: F(\lambda, \mu) = E\left[\max_{0 \le q \le 1} (f - \lambda + \mu) q - \tfrac{\gamma}{2} q^2\right]
    + \lambda (\rho + d) - \mu (\rho - d).

Both begin at 0. A step draws one row of the group, goes against the gradient ``(rho + d - q, q - rho + d)`` by ``0.1
sqrt(K / T)`` for ``K`` groups and ``T`` rows in all, and is projected onto nonnegative numbers. The mean of the
iterates is the result. With steps of one size ``a``, a start at 0 and gradients of norm ``G`` at most, ``N = T / K``
steps have an expected excess of at most ``|x*|^2 / (2 a N) + a G^2 / 2`` (M. Zinkevich, 2003): the rate of Proposition
1, with the constants of these data. ``x*`` is the exact solution's.

Theorem 2 bounds the error of the rule above that of the best rule of equal rates, ``h*``, with probability ``1 -
delta`` after ``N`` rows of ``K`` groups, by

.. math:: E|2 \eta - 1 - f| + 2 \gamma + 8 (2 + 1/\gamma) N^{-1/3} + 4 \sqrt{(2 K + 2 \log(2 / \delta)) / N} .

Its factors are quoted from memory (``published.csv``). The rows are the population here: ``eta`` is the isotonic
regression of the labels of a group on its scores, so that ``h*`` and all errors are exact. ``q`` is the least of
``E[gamma/2 q^2 - f q]`` among rules with the rates of ``h*``, which is one of them. So the excess without sampling is
at most ``gamma/2 E[h* - q^2] + E[|2 eta - 1 - f| |h* - q|]``, which is printed beside the bound.

Source: I. Alabdulmohsin and M. Lucic, *A near-optimal algorithm for debiasing trained machine learning models* (2021).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
from fairfix.solvers.monotone import isotonic
from fairfix.solvers.ramp import Cell, ramp, solve

from peers import Rows
from published import row_of
from tabular import scored, sources

Floats = npt.NDArray[np.float64]

ROWS = (100, 1_000, 10_000, 100_000, 1_000_000)
RATE, GAMMA, SLACKS = 0.1, 0.05, (0.0, 0.1)
DRAWS = 10
WIDTHS, DELTA = (0.01, 0.05, 0.2), 0.05
"""Widths of Theorem 2, and one minus its confidence."""
STEP = 1e-9
"""Width of a ramp that is a threshold but for ties."""


def algorithm1(
    groups: Sequence[Floats],
    gamma: float,
    slack: float,
    rho: float,
    rows: int,
    draws: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Return the means of ``lambda`` and of ``mu`` after ``rows`` rows, shape (draws, groups) each.

    ``groups`` are the scores of each group in [-1, 1]; ``draws`` are repetitions with rows of their own.
    """
    many, d = len(groups), slack / 2
    step, steps = RATE * np.sqrt(many / rows), rows // many
    upper, lower = np.zeros((draws, many)), np.zeros((draws, many))
    sums = np.zeros((2, draws, many))
    for begin in range(0, steps, 10_000):
        size = min(10_000, steps - begin)
        drawn = np.stack([f[rng.integers(0, f.size, (size, draws))] for f in groups], axis=2)
        for f in drawn:
            q = np.clip((f - upper + lower) / gamma, 0.0, 1.0)
            upper = np.maximum(upper - step * (rho + d - q), 0.0)
            lower = np.maximum(lower - step * (q - rho + d), 0.0)
            sums[0] += upper
            sums[1] += lower
    return sums[0] / steps, sums[1] / steps


def dual(f: Floats, gamma: float, slack: float, rho: float, upper: float, lower: float) -> float:
    """Return ``F`` of a group at two multipliers."""
    z, d = f - upper + lower, slack / 2
    q = np.clip(z / gamma, 0.0, 1.0)
    return float(np.mean(z * q - gamma / 2 * q**2)) + upper * (rho + d) - lower * (rho - d)


def two_sided(offsets: Floats) -> Floats:
    """Return ``lambda`` and ``mu`` of each offset, of which one is 0, shape (groups, 2)."""
    return np.stack([np.maximum(offsets, 0.0), np.maximum(-offsets, 0.0)], axis=1)


def excess(groups: Sequence[Floats], pairs: Floats, exact: Floats, slack: float, rho: float) -> float:
    """Return the objective of the multipliers (groups, 2) above that of the exact offsets, mean of the groups."""
    values = [
        [dual(f, GAMMA, slack, rho, *pair) for f, pair in zip(groups, each, strict=True)]
        for each in (pairs, two_sided(exact))
    ]
    return float(np.mean(values[0]) - np.mean(values[1]))


def bound(offset: float, slack: float, rho: float, rows: int, groups: int) -> float:
    """Return the largest expected excess of a group whose exact multiplier is ``offset``."""
    d, step, steps = slack / 2, RATE * np.sqrt(groups / rows), rows // groups
    steepest = max((rho + d - q) ** 2 + (q - rho + d) ** 2 for q in (0.0, 1.0))
    return float(offset**2 / (2 * step * steps) + step * steepest / 2)


def gap(groups: Sequence[Floats], offsets: Floats, gamma: float) -> float:
    """Return the largest difference of the mean shares of two groups."""
    rates = [float(np.mean(ramp(f, np.full(f.size, t), gamma))) for f, t in zip(groups, offsets, strict=True)]
    return max(rates) - min(rates)


def least_rows(rest: float, gamma: float, groups: int) -> float:
    """Return the number of rows from which Theorem 2 allows an excess below 1, given its terms without rows."""
    rows, narrow, sure = (
        float(row_of("ramp", "Theorem 2", name)["factor"]) for name in ("rows", "width in rows", "confidence")
    )
    low, high = 1.0, 1e30
    for _ in range(200):
        many = np.sqrt(low * high)
        spread = sure * np.sqrt((2 * groups + 2 * np.log(2 / DELTA)) / many)
        allowed = rest + rows * (narrow + 1 / gamma) / np.cbrt(many) + spread
        low, high = (low, many) if allowed < 1 else (many, high)
    return float(high)


def theorem2(name: str, post: Rows) -> Iterator[str]:
    """Yield a row for each width: the excess without sampling, its bounds, and the rows that the whole bound needs."""
    codes = [np.flatnonzero(post.group == k) for k in range(2)]
    shares = [at.size / post.group.size for at in codes]
    f = [2.0 * post.score[at] - 1.0 for at in codes]
    maps = [isotonic(own, post.label[at]) for own, at in zip(f, codes, strict=True)]
    gain = [2.0 * one.shares[one.block(own)] - 1.0 for one, own in zip(maps, f, strict=True)]

    def mean(values: Sequence[Floats]) -> float:
        return sum(share * float(np.mean(one)) for share, one in zip(shares, values, strict=True))

    def rule(scores: Sequence[Floats], gamma: float, rho: float | None = None) -> list[Floats]:
        offsets = solve([Cell.of(one) for one in scores], gamma, 0.0, rho).offsets
        return [ramp(one, np.full(one.size, t), gamma) for one, t in zip(scores, offsets, strict=True)]

    best = rule(gain, STEP)
    far = [np.abs(one - own) for one, own in zip(gain, f, strict=True)]
    factor = float(row_of("ramp", "Theorem 2", "width")["factor"])
    for gamma in WIDTHS:
        q = rule(f, gamma, mean(best))
        lost = mean([g * (b - own) for g, b, own in zip(gain, best, q, strict=True)])
        rest = mean(far) + factor * gamma
        derived = gamma / 2 * mean([b - own**2 for b, own in zip(best, q, strict=True)])
        derived += mean([d * np.abs(b - own) for d, b, own in zip(far, best, q, strict=True)])
        need = least_rows(rest, gamma, 2)
        assert lost <= derived + STEP, (name, gamma)
        yield f"| {name} | {gamma:g} | {lost:.5f} | {derived:.4f} | {mean(far):.4f} | {rest:.4f} | {need:.1e} |"


def main() -> None:
    """Print the tables."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS
    data, missing = sources()
    print("\n\n".join(["## Algorithm 1 of the paper and its bound", *missing, ""]), end="")
    print(
        f"Logistic regression, rows of the post part by sex, gamma {GAMMA}, rho the mean score; mean of {draws} draws. "
        "*Excess*: the objective of the multipliers above its minimum, mean of the groups; *bound*: what the "
        "convergence of Proposition 1 allows of it. *Gap*: of the selection rates of all rows, at most the slack at "
        f"the optimum. Step size {RATE:g} sqrt(K / T).\n"
    )
    heads = ("data", "slack", "T", "excess", "bound", "gap")
    print(f"| {' | '.join(heads)} |\n|---|---|{'---:|' * (len(heads) - 2)}")
    held = True
    for source in data:
        post = scored(source, "LR", 0).post
        groups = [2.0 * post.score[post.group == k] - 1.0 for k in range(2)]
        rho = float(post.score.mean())
        for slack, rows in product(SLACKS, ROWS):
            rng = np.random.default_rng(rows)
            exact = solve([Cell.of(f) for f in groups], GAMMA, slack, rho).offsets
            pairs = np.stack(algorithm1(groups, GAMMA, slack, rho, rows, draws, rng), axis=2)
            theirs = float(np.mean([excess(groups, each, exact, slack, rho) for each in pairs]))
            allowed = float(np.mean([bound(t, slack, rho, rows, 2) for t in exact]))
            held &= theirs <= allowed
            far = np.mean([gap(groups, each[:, 0] - each[:, 1], GAMMA) for each in pairs])
            cells = f"{theirs:.5f} | {allowed:.4f} | {far:.4f}"
            print(f"| {source.name} | {slack:g} | {rows:,} | {cells} |", flush=True)
    print(f"\nThe bound holds in {'every' if held else '**not every**'} row.\n\n### The bound of Theorem 2\n")
    print(
        "The same rows as the population, slack 0, the rates of the best rule of equal rates. *Excess*: error above "
        "that of the best rule, without sampling; *derived*: gamma/2 E[h* - q^2] + E[|2 eta - 1 - f| |h* - q|]; "
        "*calibration*: E|2 eta - 1 - f|; *without sampling*: the bound of Theorem 2 for any number of rows, "
        "calibration plus 2 gamma; *rows*: the number with which its whole bound falls below 1, at confidence 0.95. "
        "The factors of the theorem are quoted from memory.\n"
    )
    heads = ("data", "gamma", "excess", "derived", "calibration", "without sampling", "rows")
    print(f"| {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) - 1)}")
    for source in data:
        print("\n".join(theorem2(source.name, scored(source, "LR", 0).post)), flush=True)


if __name__ == "__main__":
    main()
