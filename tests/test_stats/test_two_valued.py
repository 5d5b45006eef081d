"""Means of rows of two known values: the limits hold whatever the probabilities are, by enumeration and in worlds."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.stats.estimates import Proportions
from fairfix.stats.two_valued import TwoValued, upper_limit
from scipy import optimize


@pytest.mark.parametrize("world", range(16))
def test_the_limit_is_below_the_mean_as_seldom_as_it_says(world: int) -> None:
    """The probability is summed over all outcomes of seven rows: equal values, far apart ones, rare and sure ones."""
    rng = np.random.default_rng(world)
    values = np.exp(rng.normal(0, rng.choice([0.0, 0.5, 3.0]), 7))
    chances = rng.choice([rng.random(7), rng.random(7) ** 6, 0.97 + 0.03 * rng.random(7)])
    if world % 3 == 0:  # little mass on many, all of it on the largest
        chances = np.where(values == values.max(), 0.4, 0.01)
    tail, missed = 0.1, 0.0
    for outcome in product((0, 1), repeat=7):
        seen = np.array(outcome)
        limit = upper_limit(values, np.ones(7), float(values @ seen), tail)
        if limit < values @ chances:
            missed += float(np.prod(np.where(seen, chances, 1 - chances)))
    assert missed <= tail


def test_equal_values_have_the_limits_of_a_rate() -> None:
    """With no hit the exact one, else one a little wider than Clopper and Pearson's."""
    for rows, hits in ((20, 0), (20, 5), (200, 20), (2000, 1), (50, 50)):
        ours = upper_limit(np.ones(1), np.array([float(rows)]), hits, 0.025) / rows
        (exact,) = Proportions(np.array([float(hits)]), np.array([float(rows)])).limits(0.05)[1]
        assert exact - 1e-6 <= ours <= exact + 0.3 / math.sqrt(rows)
        if hits == 0:
            assert ours == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_the_worst_probabilities_are_found(seed: int) -> None:
    """An independent solver finds no probabilities of a larger mean that the bound with the same tilt allows."""
    rng = np.random.default_rng(seed)
    values, tail = np.exp(rng.normal(size=6)), 0.05
    total = float(values @ rng.integers(0, 2, 6))
    ours = upper_limit(values, np.ones(6), total, tail)

    def best(theta: float) -> float:
        c = -np.expm1(-theta * values)
        bound = {
            "type": "ineq",
            "fun": lambda r: theta * total + np.log1p(-np.clip(r, 0, 1 - 1e-9) * c).sum() - math.log(tail),
        }
        found = optimize.minimize(
            lambda r: -values @ r, np.full(6, 0.1), bounds=[(0, 1)] * 6, constraints=[bound], method="SLSQP"
        )
        return float(values @ found.x) if found.success else math.inf

    theirs = min(best(theta) for theta in np.geomspace(0.05, 20, 60) / values.max())
    assert ours == pytest.approx(theirs, rel=0.01)


@pytest.mark.parametrize("weighted", [False, True])
def test_limits_given_the_scores_cover_what_people_with_these_scores_lose(weighted: bool) -> None:
    """Scores are fixed and labels drawn anew: calibrated, shifted, all of one label, wrong."""
    rng = np.random.default_rng(3)
    missed = worlds = 0
    for _ in range(150):
        n = int(rng.choice([2, 8, 20, 60]))
        p = np.clip(rng.beta(*rng.choice([[0.3, 0.3], [2, 2], [0.5, 8]]), n), 1e-6, 1 - 1e-6)
        truth = (p, np.clip(p + 0.2, 0, 1), np.full(n, 0.02), 1 - p)[rng.integers(4)]
        label = rng.random(n) < truth
        of_1, of_0, w = -np.log(p), -np.log1p(-p), rng.gamma(2.0, size=n) if weighted else np.ones(n)
        low, high = np.minimum(of_1, of_0), np.maximum(of_1, of_0)
        larger = (np.where(label, of_1, of_0) == high).astype(float)
        made = TwoValued.of_rows(np.zeros(n, dtype=int), 1, low, high, larger, w if weighted else None)
        (least,), (most,) = made.limits(0.05)
        mean = np.average(truth * of_1 + (1 - truth) * of_0, weights=w)
        seen = np.average(np.where(label, of_1, of_0), weights=w)
        assert least - 1e-12 <= seen <= most + 1e-12 < math.inf
        missed += not least <= mean <= most
        worlds += 1
    assert missed <= 0.05 * worlds


def test_the_rest_are_the_rows_of_the_others() -> None:
    """As if they were counted alone."""
    rng = np.random.default_rng(0)
    group, low = rng.integers(0, 3, 90), rng.random(90)
    high, larger = low + rng.random(90), rng.integers(0, 2, 90).astype(float)
    rest = TwoValued.of_rows(group, 3, low, high, larger).rest
    for g in range(3):
        own = group != g
        alone = TwoValued.of_rows(np.zeros(own.sum(), dtype=int), 1, low[own], high[own], larger[own])
        assert rest.value[g] == pytest.approx(alone.value[0])
        for mine, theirs in zip(rest.limits(0.1), alone.limits(0.1), strict=True):
            assert mine[g] == pytest.approx(theirs[0], rel=0.02)


def audited(frame: pd.DataFrame, **more: Any) -> Any:
    """Return the JSON form of an audit by group."""
    return fairfix.audit(frame, protected="g", **more).to_dict()


def test_small_groups_have_log_losses_with_both_limits() -> None:
    """In an audit: where there is no limit there is one given the scores, also of comparisons; else there is none."""
    rng = np.random.default_rng(1)
    opened = 0
    for trial in range(12):
        sizes = rng.choice([6, 15, 40], 3)
        group = np.repeat(["a", "b", "c"], sizes)
        score = np.clip(rng.beta(0.5, 0.5, group.size), 1e-5, 1 - 1e-5)
        frame = pd.DataFrame(
            {"g": group, "score": score, "label": (rng.random(group.size) < score).astype(int)}
        )
        frame.loc[:1, "label"] = [0, 1]
        scale = ("probability", "percent", "margin", "logit")[trial % 4]
        scores = {"percent": 100 * score, "margin": 2 * score - 1, "logit": np.log(score / (1 - score))}
        content = audited(frame.assign(score=scores.get(scale, score)), score_scale=scale)
        (block,) = content["attributes"]
        losses = [one["metrics"]["log_loss"] for one in block["groups"]]
        losses += [
            one
            for one in block["comparisons"]
            if one["id"].startswith("log_loss.") and "ratio" not in one["id"]
        ]
        for value in losses:
            assert ("given_scores" in value) == (value["high"] is None)
            if value["high"] is None:
                opened += 1
                low, high = value["given_scores"]
                assert low <= value["value"] <= high
        for one in block["groups"]:  # by hand
            if "given_scores" in one["metrics"]["log_loss"]:
                own = frame[frame.g == one["group"]]
                of_1, of_0 = -np.log(own.score), -np.log1p(-own.score)
                ends = np.minimum(of_1, of_0).mean(), np.maximum(of_1, of_0).mean()
                low, high = one["metrics"]["log_loss"]["given_scores"]
                assert ends[0] - 1e-9 <= low <= high <= ends[1] * 1.03
    assert opened > 30


def test_scores_of_0_and_1_leave_no_limit_given_the_scores() -> None:
    """The loss of a person with such a score may be infinite."""
    frame = pd.DataFrame({"g": ["a", "b"] * 8, "score": [0.2, 0.6, 0.8, 0.5] * 4, "label": [0, 1] * 8})
    frame.loc[frame.g == "b", "label"] = [0, 1] * 4
    frame.loc[0, "score"] = 0.0
    groups = {one["group"]: one["metrics"]["log_loss"] for one in audited(frame)["attributes"][0]["groups"]}
    assert "given_scores" not in groups["a"]
    assert groups["a"]["high"] is None
    assert "given_scores" in groups["b"]


def test_a_check_is_not_decided_by_the_interval_given_the_scores() -> None:
    """It is said with the verdict, and in the report."""
    frame = pd.DataFrame({"g": ["a", "b"] * 8, "score": [0.2, 0.4, 0.8, 0.6] * 4, "label": [0, 0, 1, 1] * 4})
    result = fairfix.audit(frame, protected="g", check="log_loss.max<=3")
    (check,) = result.to_dict()["checks"]
    assert check["verdict"] == "undecided"
    assert check["given_scores"][1] < 3
    assert f"{check['given_scores'][1]:.3f}" in check["reason"]
    assert "given scores" in str(result)
