"""The ideal algorithm of the paper on noisy groups, played: what its theorems bound, and where the game stands.

``python benchmarks/noisy_ideal.py`` prints Markdown. One player answers multipliers with the rule of a small class that
has the least error plus multipliers times worst cases. The other ascends the multipliers by that rule's worst cases
and stays in the ball of radius ``B``. The mean of the answers is the result. With ``G`` the largest norm of the worst
cases of a rule and steps of ``B / (G sqrt T)`` the second player regrets at most ``B G / sqrt T`` on average over T
rounds, whatever is played (M. Zinkevich, 2003). So the error is above the optimum by that at most, and the violation of
a constraint is no larger than ``(optimum - least error of all rules + B G / sqrt T) / B``: the optimality and
feasibility that the paper's theorems on its ideal algorithms state, with their constants. The optimum is that of
``--solver ideal``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from fairfix.noise.bounds import valid_radius
from fairfix.noise.enumerated_rules import solve_ideal
from fairfix.noise.rates import Parity, cells_of
from fairfix.noise.training import Adversary, TableInterval, TotalVariationBalls, excess_of
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from noisy_repair import FILES, Data, load, noisy, tables
from tabular import present

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BINS = 12
ROUNDS = (10, 100, 1_000, 10_000, 100_000)
BALL = 5.0
"""Radius of the multipliers: the error never is above 1, and worst cases cost more than that beyond."""


def masses(data: Data, score: Floats, recorded: Ints) -> Floats:
    """Return masses by recorded group, bin of the score and label, shape (K, B, 2): quantiles of the positives."""
    edges = np.quantile(score[data.y == 1], np.arange(1, BINS) / BINS)
    out = np.zeros((len(data.names), BINS, 2))
    np.add.at(out, (recorded, np.searchsorted(edges, score, side="right"), data.y), 1.0)
    return out / out.sum()


def class_of(n: Floats, adversary: Adversary, parity: Parity, slack: float) -> tuple[Floats, Floats]:
    """Return error and worst cases of every rule, shapes (R,) and (R, M): a cut per recorded group."""
    groups, bins, _ = n.shape
    cuts = np.indices((bins + 1,) * groups).reshape(groups, -1)
    below = np.concatenate([np.zeros_like(n[:, :1]), np.cumsum(n, axis=1)], axis=1)
    left = np.stack([below[k, cut] for k, cut in enumerate(cuts)], axis=1)
    cells = cells_of(np.maximum(below[:, -1] - left, 0.0), left)
    worst = excess_of(cells, adversary, parity, slack).reshape(cuts.shape[1], -1)
    return cells[..., 1:3].sum((1, 2)), np.nan_to_num(worst, nan=0.0)


def played(errors: Floats, worst: Floats, rounds: int, ball: float) -> tuple[float, float]:
    """Return error and largest violation of the mean answer of a game."""
    size = float(np.linalg.norm(worst, axis=1).max())
    step, multipliers = ball / (size * np.sqrt(rounds)), np.zeros(worst.shape[1])
    answers = np.zeros(errors.size)
    for _ in range(rounds):
        at = int(np.argmin(errors + worst @ multipliers))
        answers[at] += 1.0 / rounds
        multipliers = np.maximum(multipliers + step * worst[at], 0.0)
        multipliers *= min(1.0, ball / max(float(np.linalg.norm(multipliers)), 1e-300))
    return float(answers @ errors), float((answers @ worst).max())


def games(data: Data) -> Iterator[tuple[str, float, Adversary, Floats]]:
    """Yield what the adversary is, the share of wrong groups, the adversary, and the data's masses."""
    with warnings.catch_warnings(action="ignore"):
        score = LogisticRegression(max_iter=200).fit(data.X, data.y).predict_proba(data.X)[:, 1]
    for name, gamma in (("DRO (N0)", 0.02), ("soft (N1)", 0.02), ("soft, by label (N2)", 0.1)):
        recorded = noisy(data, gamma, np.random.default_rng(0), None)
        joint = tables(data, recorded)[1].entries
        joint = joint / joint.sum()
        by_label = tables(data, recorded)[0].entries
        adversary: Adversary = TableInterval(joint)
        if "DRO" in name:
            adversary = TotalVariationBalls(valid_radius(joint), np.arange(len(joint)))
        elif "label" in name:
            adversary = TableInterval(by_label / by_label.sum())
        yield name, gamma, adversary, masses(data, score, recorded)


def main() -> None:
    """Print the table."""
    names, missing = present(FILES)
    print("\n\n".join(["## The ideal algorithm, played", *missing, ""]), end="")
    print(
        f"A cut per recorded group between {BINS} bins of a score, {(BINS + 1) ** 3:,} rules, all rows of the data, "
        f"multipliers in a ball of radius {BALL:g}. Error of the mean answer minus the optimum, and its largest "
        "violation; behind each what the theorems allow.\n"
    )
    heads = " | ".join(f"{rounds:,} rounds" for rounds in ROUNDS)
    print(f"| data, adversary, gamma | optimum | {heads} |\n|---|---|{'---|' * len(ROUNDS)}")
    held = True
    with threadpool_limits(1):
        for name in names:
            data = load(name)
            for title, gamma, adversary, n in games(data):
                errors, worst = class_of(n, adversary, data.constraint, data.slack)
                known = solve_ideal(n, adversary, data.constraint, data.slack).error
                cells = []
                for rounds in ROUNDS:
                    error, violation = played(errors, worst, rounds, BALL)
                    regret = BALL * float(np.linalg.norm(worst, axis=1).max()) / np.sqrt(rounds)
                    allowed = (known - errors.min() + regret) / BALL
                    held &= error - known <= regret + 1e-12 and violation <= allowed + 1e-12
                    cells.append(f"{error - known:+.4f} (≤ {regret:.3f}), {violation:+.4f} (≤ {allowed:.3f})")
                print(f"| {name}, {title}, {gamma:g} | {known:.4f} | {' | '.join(cells)} |", flush=True)
    print(f"\nThe bounds hold in {'every' if held else '**not every**'} cell.")


if __name__ == "__main__":
    main()
