"""Bounds on gaps of a population: their gaps by hand, and what makes a bound larger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fairfix.stats.population import (
    BoundedStatistic,
    CovariancesOfRules,
    DistancesOfRules,
    NumberCovariances,
    RatesOfRules,
    WeightedRates,
)

ALPHA = 0.2
"""Probability that a bound is wrong."""


def gap(one: BoundedStatistic) -> float:
    """Return the largest gap on the rows."""
    return float(one.observed.max())


def bound(one: BoundedStatistic) -> float:
    """Return the bound on the largest gap of the population."""
    return float(one.bounds.max())


def covariances(code: Any, chance: Any, many: int) -> CovariancesOfRules:
    """Return what rows of ``many`` groups show of the covariance of decisions with membership, of one stratum."""
    rows = np.bincount(code, minlength=many)
    rate = np.bincount(code, chance, many) / rows
    names = tuple(map(str, range(many)))
    inside = DistancesOfRules.from_rates(rate[:, None], rows, names=names, rows=rows, alpha=ALPHA)
    return CovariancesOfRules(names=("everybody",), rows=np.array([code.size]), alpha=ALPHA, strata=(inside,))


def test_a_stratum_adds_to_the_bound_and_not_to_what_is_seen() -> None:
    rng = np.random.default_rng(0)
    code = rng.integers(0, 2, 1000)
    one = covariances(code, 0.5 + 0.2 * code, 2)
    (inside,) = one.strata
    two = replace(one, rows=2 * one.rows, strata=(inside, inside))

    assert gap(one) == pytest.approx(abs(np.cov(code, 0.2 * code, bias=True)[0, 1]), abs=1e-12)
    assert gap(two) == gap(one) < bound(one) < bound(two)
    assert one.bound_at(np.array([4000])) < bound(one)  # if the same had been seen on more rows


def test_distributions_are_compared_at_their_largest_distance() -> None:
    """The bound of a pair is that of two rates as far apart as the distributions are anywhere."""
    below = np.array([[0.1, 0.5, 1.0], [0.3, 0.4, 1.0]])
    given: dict[str, Any] = {"names": (*"ab",), "rows": np.array([300, 200]), "alpha": ALPHA}
    given |= {"blocks": np.zeros(2, dtype=int), "variation": np.ones(2)}
    whole, there = (RatesOfRules(**given, rates=rates) for rates in (below, below[:, 0]))

    assert (gap(whole), bound(whole)) == (gap(there), bound(there))
    assert gap(whole) == pytest.approx(0.2)
    apart = RatesOfRules(**{**given, "blocks": np.arange(2)}, rates=below)
    assert (gap(apart), bound(apart)) == (0.0, 0.0)


def trends(x: Any, chance: Any, centre: float) -> NumberCovariances:
    """Return what rows show of a covariance with numbers between -1 and 3.3."""
    return NumberCovariances(
        names=("everybody",),
        rows=np.array([chance.size]),
        alpha=ALPHA,
        chance=chance,
        numbers=x,
        ends=np.array([3.3]),
        centre=centre,
        chance_spread=0.5,
        spread=np.array([0.6]),
    )


def test_a_covariance_does_not_hang_on_where_it_is_counted_from() -> None:
    """Only the bound does; it is larger where centres are far off."""
    rng = np.random.default_rng(2)
    x, q = rng.uniform(-1, 1, (1, 2000)), rng.random(2000)
    near, far = trends(x, q, 0.5), trends(x + 1.0, q, 0.9)

    assert gap(near) == pytest.approx(abs(np.cov(x[0], q, bias=True)[0, 1]), abs=1e-12)
    assert gap(far) == pytest.approx(gap(near), abs=1e-12)
    assert gap(near) < bound(near) < bound(far)
    # where the means of both make up for all of the covariance, products alone show none of it
    steep = trends(x + 1.0, 0.5 + x[0] / 2, 2 / 3)
    assert gap(steep) < bound(steep)


def members(weights: Any, chance: Any, blocks: Any = (0, 0)) -> WeightedRates:
    """Return what rows show of rates by weights."""
    return WeightedRates(
        names=("everybody",),
        rows=np.array([chance.size]),
        alpha=ALPHA,
        chance=chance,
        weights=weights,
        blocks=np.array(blocks),
        spread=np.full(len(weights), 0.2),
    )


def test_whole_members_are_compared_as_groups_are() -> None:
    """In each event alone; who is in no group is looked at by nobody."""
    rng = np.random.default_rng(4)
    code, chance = rng.integers(0, 3, 900), rng.random(900)
    first = np.array([code == 0, code == 1]) * 1.0
    rates = [chance[code == k].mean() for k in range(2)]
    one: BoundedStatistic = members(first, chance)
    four = members(np.concatenate([first, first[::-1]]), chance, (0, 0, 1, 1))
    apart = members(first, chance, (0, 1))

    assert gap(one) == pytest.approx(abs(rates[0] - rates[1]), abs=1e-12)
    assert gap(four) == pytest.approx(gap(one), abs=1e-12)
    assert gap(one) < bound(one) == bound(four)  # the largest difference is one of them, so more cost nothing
    assert gap(apart) == 0.0
