r"""Exponentiated gradient: prices by a repeated game, Algorithms 1 and 2 of the paper on fair regression.

Of models ``f`` with a loss and constraints ``g_k(f) <= 0`` a distribution ``Q`` and prices ``lambda`` are sought with

.. math::
    \min_Q \max_{\lambda \ge 0,\ \lVert\lambda\rVert_1 \le B} L(Q, \lambda), \qquad
    L(Q, \lambda) = E_Q[\mathrm{loss}] + \sum_k \lambda_k E_Q[g_k] .

In round ``t`` the prices are ``lambda_k = B exp(theta_k) / (1 + sum exp(theta))``, a model of low cost at them is the
answer, and ``theta`` grows by ``eta g``. ``Q_t`` and ``lambda_t`` are averages, here of the last half of the rounds,
since the first answers are far off. The game ends once

.. math::
    \nu_t = \max\{L(Q_t, \lambda_t) - \min_f L(f, \lambda_t),\
    \max_\lambda L(Q_t, \lambda) - L(Q_t, \lambda_t)\} \le \nu .

The least over ``f`` is that of the answers, one to ``lambda_t`` among them. Where answers are of least cost for
certain, ``nu_t`` is the paper's, the loss of ``Q_t`` is at most ``2 nu`` above the least within the constraints, and
these are missed by ``(span + 2 nu) / B`` at most, ``span`` the range of the loss. Where they need not be, ``nu_t`` is
smaller than the paper's, and proves nothing.

**Rate.** With ``m`` constraints of at most ``rho`` the averages are within ``2 rho B sqrt(log(m + 1) / T)`` of a saddle
point after ``T`` rounds at the rate ``sqrt(log(m + 1) / T) / rho``, which is the paper's ``nu / (2 rho^2 B)`` once
``T`` is as large as it says. Here it is ``sqrt(log(m + 1) / t) / rho`` in round ``t``, which needs no ``T``, with the
largest constraint seen so far for ``rho``: the paper's 2 is ten times what scores of real data differ by.

References
----------
A. Agarwal, M. Dudik and Z. S. Wu, *Fair regression* (2019), Algorithms 1 and 2; Y. Freund and R. Schapire, *Game
theory, on-line prediction and boosting* (1996).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairfix.solvers.arrays import Floats

Answer = Callable[[Floats], tuple[float, Floats]]
"""Takes prices, shape (m,), and returns the loss of a model of low cost at them, and its constraints, shape (m,)."""


@dataclass(frozen=True)
class Game:
    """Settings of the game."""

    bound: float
    """``B``, the largest sum of prices."""
    nu: float
    """``nu_t`` with which it ends, in units of the loss."""
    rounds: int
    """Most rounds."""


@dataclass(frozen=True, eq=False)
class Saddle:
    """Averages of a game."""

    prices: Floats
    """``lambda_t``, shape (m,)."""
    loss: float
    """Loss of ``Q_t``."""
    excess: float
    """Largest constraint of ``Q_t``; at most 0 where all hold."""
    gap: float
    """``nu_t``."""
    rounds: int
    """Played."""
    answers: int
    """Asked for, those to average prices among them."""


def play(answer: Answer, many: int, game: Game) -> Saddle:
    """Play with ``many`` constraints until ``nu_t`` is at most ``nu``, or to the last round."""
    theta = np.zeros(many)
    asked: list[Floats] = []
    losses: list[float] = []
    table: list[Floats] = []
    rho, answers = 1e-300, 0
    averages = Saddle(theta, math.inf, math.inf, math.inf, 0, 0)
    while len(asked) < game.rounds and averages.gap > game.nu:
        steep = max(theta.max(initial=0.0), 0.0)
        grown = np.exp(theta - steep)
        asked.append(game.bound * grown / (math.exp(-steep) + grown.sum()))
        loss, own = answer(asked[-1])
        losses.append(loss)
        table.append(own)
        answers, t = answers + 1, len(asked)
        rho = max(rho, float(np.abs(own).max(initial=0.0)))
        theta = theta + math.sqrt(math.log(many + 1) / t) / rho * own
        if t % (1 + t // 50) and t < game.rounds:  # looking at all answers takes longer than some of them do
            continue
        averages = _averages(asked, losses, table, game.bound, answers)
        if averages.gap <= game.nu:  # by the answers so far; now by the answer to these very prices
            loss, own = answer(averages.prices)
            more = loss + float(own @ averages.prices)
            answers += 1
            averages = _averages(asked, losses, table, game.bound, answers, more)
    return averages


def _averages(
    asked: list[Floats],
    losses: list[float],
    table: list[Floats],
    bound: float,
    answers: int,
    least: float = math.inf,
) -> Saddle:
    """Return the averages of the last half of the rounds; ``least``: cost of one more answer at their prices."""
    late = len(asked) // 2
    prices, loss, over = (np.mean(part[late:], axis=0) for part in (asked, losses, table))
    value = float(loss + prices @ over)
    least = min(least, float((np.array(losses) + np.array(table) @ prices).min()))
    most = float(loss) + bound * max(float(over.max(initial=0.0)), 0.0)
    gap = max(value - least, most - value)
    return Saddle(prices, float(loss), float(over.max(initial=-np.inf)), gap, len(asked), answers)
