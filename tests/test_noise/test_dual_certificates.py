"""Prices of rows against the sharp bounds of the same rows, and against any masses that a table of a box allows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fairfix.methods.robust.histogram import range_of
from fairfix.noise.bounds import tv_bounds
from fairfix.noise.dual_certificates import (
    AllowedGroups,
    ClassConditionalProof,
    KnownMembershipProof,
    RateHypothesis,
    RecordedGivenTrue,
    RuledRows,
    TotalVariationProof,
    TrueGivenRecorded,
)
from fairfix.noise.randomized_rule_bounds import level_bounds
from fairfix.noise.rates import RATIOS, cells_of
from scipy import stats

GROUPS = 3
LEVELS = np.array([[0.0, 0.3, 1.0], [0.1, 0.6, 0.6], [0.0, 0.5, 0.9]])
"""Chance of each recorded group at each level of the score."""


def masses(seed: int, *, by_label: bool = False) -> Any:
    """Return joint masses of true and recorded groups, levels and labels, (J, K, I, 2): recording as a table says."""
    rng = np.random.default_rng(seed)
    own = rng.dirichlet(np.ones(GROUPS * LEVELS.shape[1] * 2)).reshape(GROUPS, LEVELS.shape[1], 2)
    recording = rng.dirichlet(np.ones(GROUPS), (2, GROUPS)) * 0.4 + 0.6 * np.eye(GROUPS)
    if not by_label:
        recording[1] = recording[0]
    return np.einsum("jiy,yjk->jkiy", own, recording)


def rows_of(whole: Any) -> RuledRows:
    """Return the rows of masses by recorded group, level and label."""
    k, i, y = (one.ravel() for one in np.indices(whole.shape[1:]))
    return RuledRows(k, y, LEVELS[:, i].T, whole.sum(0).ravel(), np.zeros((k.size, 0)))


def least_limit(allowed: AllowedGroups, rows: RuledRows, rate: str, group: int, side: float) -> float:
    """Return the limit nearest to be broken that the rows allow."""
    low, high = 0.0, 1.0
    for _ in range(24):
        middle = (low + high) / 2
        limit = middle if side > 0 else 1.0 - middle
        prices, _, least, most = allowed.dual_values(RateHypothesis(rate, group, side, limit), rows, rows)
        assert least - 1e-12 <= prices.min() <= prices.max() <= most + 1e-12
        low, high = (low, middle) if rows.mass @ prices <= 0 else (middle, high)
    return high if side > 0 else 1.0 - high


def shares(whole: Any, axis: int, *, by_label: bool) -> Any:
    """Return P(true | recorded) for axis -2, P(recorded | true) for -1, by label or not."""
    joint = np.moveaxis(whole.sum(2), 2, 0) if by_label else whole.sum((2, 3))
    return joint / joint.sum(axis, keepdims=True)


@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize("rate", ["selection_rate", "true_positive_rate", "false_positive_rate"])
def test_multipliers_of_the_rows_themselves_give_their_sharp_bounds(rate: str, by_label: bool) -> None:
    for seed in range(2):
        whole = masses(seed, by_label=by_label)
        joint = np.moveaxis(whole.sum(2), 2, 0) if by_label else whole.sum((2, 3))
        sharp = level_bounds(whole.sum(0), joint, LEVELS, rate)
        columns, table = (shares(whole, axis, by_label=by_label) for axis in (-2, -1))
        for allowed in (TrueGivenRecorded(columns, columns), RecordedGivenTrue(table, table, table)):
            for group in range(GROUPS):
                ends = [least_limit(allowed, rows_of(whole), rate, group, side) for side in (-1.0, 1.0)]
                np.testing.assert_allclose(ends, [sharp[0][group], sharp[1][group]], atol=1e-5)


@pytest.mark.parametrize("by_label", [False, True])
def test_recording_that_hangs_on_nothing_else_is_undone(by_label: bool) -> None:
    whole = masses(4, by_label=by_label)
    table = shares(whole, -1, by_label=by_label)
    own = np.moveaxis(whole, 2, 0)  # I, J, K, 2
    for rate, labels in (("selection_rate", [0, 1]), ("true_positive_rate", [1])):
        for group in range(GROUPS):
            mass = own[:, group][..., labels].sum(-1)
            truth = float((mass * LEVELS.T).sum() / mass.sum())
            for side in (1.0, -1.0):
                got = least_limit(
                    ClassConditionalProof(table, table, table), rows_of(whole), rate, group, side
                )
                assert got == pytest.approx(truth, abs=1e-5)


@pytest.mark.parametrize("rate", ["selection_rate", "true_positive_rate", "false_positive_rate"])
def test_probabilities_that_hang_on_the_recorded_group_allow_what_their_table_allows(rate: str) -> None:
    """And where all else is independent of the true group, rates are weighted by them."""
    whole = masses(5)
    columns = shares(whole, -2, by_label=False)
    rows = rows_of(whole)
    rows = replace(rows, member=columns[:, rows.group].T)
    about = rows.mass * rows.inside[rate]
    for group in range(GROUPS):
        weight = about * rows.member[:, group]
        for side in (1.0, -1.0):
            got = [
                least_limit(one, rows, rate, group, side)
                for one in (KnownMembershipProof(False), TrueGivenRecorded(columns, columns))
            ]
            assert got[0] == pytest.approx(got[1], abs=1e-6)
            known = least_limit(KnownMembershipProof(True), rows, rate, group, side)
            assert known == pytest.approx(float(weight @ rows.own / weight.sum()), abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_prices_by_probabilities_are_above_what_any_members_of_that_share_are_worth(seed: int) -> None:
    """Thresholds are of other rows, whose probabilities are others; members are the worst there are of each kind."""
    rng = np.random.default_rng(seed)

    def drawn(kinds: int) -> tuple[RuledRows, Any]:
        kind, label = rng.integers(0, kinds, 400), rng.integers(0, 2, 400)
        vectors = rng.dirichlet(np.ones(2) * 0.5, kinds)
        chance = rng.random((400, 1))
        return RuledRows(np.zeros(400, int), label, chance, np.full(400, 1 / 400), vectors[kind]), kind

    (fit, _), (rows, kind) = drawn(5), drawn(60)
    for _ in range(10):
        asked = RateHypothesis(
            str(rng.choice(["selection_rate", "true_positive_rate"])),
            int(rng.integers(2)),
            float(rng.choice([-1, 1])),
            rng.random(),
        )
        v, prices = (
            asked.violation(rows, rows.own),
            KnownMembershipProof(False).dual_values(asked, fit, rows)[1],
        )
        for one in np.unique(kind):
            own = np.sort(v[kind == one])[::-1]
            share = rows.member[kind == one][0, asked.group] * own.size
            taken = np.clip(share - np.arange(own.size), 0, 1)
            assert taken @ own <= prices[kind == one].sum() + 1e-9


@pytest.mark.parametrize("rate", ["selection_rate", "true_positive_rate"])
def test_balls_give_their_sharp_bounds(rate: str) -> None:
    """Of decisions that are not drawn, for which they are known in closed form."""
    whole = masses(2)
    rows = rows_of(whole)
    rows = replace(rows, chance=np.round(rows.chance))
    accepted = (whole.sum(0) * np.round(LEVELS)[:, :, None]).sum(1)
    cells = cells_of(accepted, whole.sum((0, 2)) - accepted)
    radii = np.array([0.05, 0.2, 0.0])
    low, high = tv_bounds(cells, radii, RATIOS[rate])
    for group in range(GROUPS):
        ends = [
            least_limit(TotalVariationProof(radii, np.arange(radii.size)), rows, rate, group, side)
            for side in (-1.0, 1.0)
        ]
        np.testing.assert_allclose(ends, [low[group], high[group]], atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_prices_of_any_rows_are_above_what_any_table_of_the_box_allows(seed: int) -> None:
    """Multipliers of other rows, and a table at an end of the box: weak duality, just within the worst case."""
    rng = np.random.default_rng(seed)
    fit = rows_of(masses(seed + 20))
    for _ in range(10):
        whole = masses(int(rng.integers(1000)))
        rows, joint = rows_of(whole), whole.sum((2, 3))
        for axis, kind in ((-2, TrueGivenRecorded), (-1, RecordedGivenTrue), (-1, ClassConditionalProof)):
            table = shares(whole, axis, by_label=False)
            low = np.where(rng.random(table.shape) < 0.5, table, 0.8 * table)
            high = np.where(low < table, table, 1.2 * table)
            middle = (low + high) / (low + high).sum(axis, keepdims=True)
            allowed = kind(low, high) if kind is TrueGivenRecorded else kind(low, high, middle)
            for rate, labels in (("selection_rate", [0, 1]), ("true_positive_rate", [1])):
                group, side = int(rng.integers(GROUPS)), float(rng.choice([-1, 1]))
                worst = level_bounds(rows.mass.reshape(whole.shape[1:]), joint, LEVELS, rate)[side > 0][group]
                if kind is ClassConditionalProof:
                    own = whole[group][..., labels].sum(-1)
                    worst = (own * LEVELS).sum() / own.sum()
                asked = RateHypothesis(rate, group, side, float(worst) - side * 1e-6)
                assert rows.mass @ allowed.dual_values(asked, fit, rows)[1] > 0


def test_limits_of_a_survey_hold_all_shares_at_once_as_often_as_said() -> None:
    rng = np.random.default_rng(0)
    share, missed = np.array([[0.9, 0.08, 0.02], [0.05, 0.95, 0.0]]), 0
    for _ in range(1000):
        counts = np.stack([rng.multinomial(n, p) for n, p in zip((40, 300), share, strict=True)])
        found = range_of(counts.astype(float), "noisy-given-true", 0.9)
        low, high = found.low, found.high
        assert (low <= high).all()
        missed += not ((low <= share) & (share <= high)).all()
    assert stats.binom.sf(missed - 1, 1000, 0.1) > 1e-6
    found = range_of(np.zeros((1, 2)), "noisy-given-true", 0.9)
    low, high = found.low, found.high
    np.testing.assert_array_equal([low, high], [[[0, 0]], [[1, 1]]])
