"""Thresholds for groups seen through noise, held against adversaries, cutting planes and enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from fairfix.noise.bounds import table_bounds, vacuous
from fairfix.noise.rates import DEMANDS, LABELS, RATIOS
from fairfix.noise.score_bin_bounds import (
    BoundedDependence,
    ClassConditional,
    KnownTable,
    KnownTableByLabel,
    rate_bounds,
)
from fairfix.noise.thresholds import GAP, solve_noisy
from fairfix.noise.uncertainty_set import Refuted

from tests.strategies import examples
from tests.test_noise.programs import Cut, Joint, least_by_cuts

PARITIES = [name for name in DEMANDS if name != "minimax"]


def draw(seed: int, groups: int, noisy: int, bins: int, *, independent: bool = False) -> np.ndarray:
    """Return true joint masses of true group, noisy group, bin and label, shape (J, K, B, 2)."""
    rng = np.random.default_rng(seed)
    own = rng.dirichlet(np.full(groups * bins, 1.5)).reshape(groups, bins)
    eta = 1 / (1 + np.exp(-rng.normal(0, 1, (groups, 1)) - np.linspace(-3, 3, bins)))
    own = np.stack([own * (1 - eta), own * eta], axis=-1)
    T = rng.dirichlet(np.ones(noisy), groups) + 2 * np.eye(groups, noisy)
    if independent:
        return own[:, None] * (T / T.sum(1, keepdims=True))[:, :, None, None]
    T = T[:, :, None, None] * rng.uniform(0.5, 2, (groups, noisy, bins, 2))
    return own[:, None] * T / T.sum(1, keepdims=True)


def seen(q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return masses by noisy group, table, and table by label."""
    return q.sum(0), q.sum((2, 3)), np.moveaxis(q.sum(2), 2, 0)


def true_excess(q: np.ndarray, F: np.ndarray, parity: str, slack: float) -> float:
    """Return what the true rates miss their limits by."""
    worst = -np.inf
    for rate, sign in DEMANDS[parity]:
        own = q[..., list(LABELS[rate])].sum(-1)
        taken = np.einsum("jkb,kb->j", own, F)
        worst = max(worst, float((sign * (taken.sum() / own.sum() - taken / own.sum((1, 2)))).max()) - slack)
    return worst


def cutting_planes(
    n: np.ndarray,
    table: np.ndarray,
    parity: str,
    slack: float,
    eps: float,
    levels: dict[str, float] | None = None,
) -> float | None:
    """Return the least error, by asking the adversary again and again; with unknown denominators at given levels."""
    joint, groups = Joint(n, table, eps), table.shape[-2]
    own = {rate: n[..., list(LABELS[rate])].sum(-1).ravel() for rate, _ in DEMANDS[parity]}
    overall = {rate: mass / mass.sum() for rate, mass in own.items()}
    fixed = [
        (sign * overall[rate], slack + sign * levels[rate])
        for rate, sign in DEMANDS[parity]
        if levels is not None
    ]

    def cuts(x: np.ndarray) -> Iterator[Cut]:
        for (rate, sign), j in itertools.product(DEMANDS[parity], range(groups)):
            labels, level = list(LABELS[rate]), 0.0 if levels is None else levels[rate]
            price = np.zeros((groups, *n.shape))
            price[j][..., labels] = sign * (x.reshape(n.shape[:2]) - level)[..., None]
            q = joint.least(price)
            assert q is not None
            taken = q[j][..., labels].sum(-1).ravel()
            if levels is None:
                yield sign * (overall[rate] - taken / taken.sum()), slack
            else:
                yield -sign * taken, -sign * level * taken.sum()

    found = least_by_cuts((n[..., 0] - n[..., 1]).ravel(), n.shape[:2], cuts, fixed)
    return None if found is None else float(found.fun + n[..., 1].sum())


@pytest.mark.parametrize("parity", PARITIES)
def test_certified_thresholds_are_what_cutting_planes_find_and_no_adversary_breaks_them(parity):
    costly = 0
    for seed in range(8):
        q = draw(seed, 2 + seed % 2, 2, 4)
        n, _, table = seen(q)
        found = solve_noisy(n, table, parity, 0.05, KnownTableByLabel())
        assert found.feasible
        assert found.error == pytest.approx(cutting_planes(n, table, parity, 0.05, 1.0), abs=1e-6)
        assert (np.diff(found.F, axis=1) >= 0).all()
        assert 0 <= found.F.min() <= found.F.max() <= 1
        worst = -np.inf
        for (rate, sign), j in itertools.product(DEMANDS[parity], range(len(q))):
            price = np.zeros(q.shape)
            price[j][..., list(LABELS[rate])] = sign * found.F[..., None]
            bad = Joint(n, table).least(price)
            np.testing.assert_allclose(bad.sum((2,)), np.moveaxis(table, 0, 2), atol=1e-7)
            worst = max(worst, true_excess(bad, found.F, parity, 0.05))
        assert worst <= 1e-7
        assert worst == pytest.approx(found.violation, abs=1e-7)
        assert true_excess(q, found.F, parity, 0.05) <= 1e-7
        costly += found.error > np.minimum(n[..., 0], n[..., 1]).sum() + 1e-3
    assert costly >= 4


@pytest.mark.parametrize("parity", PARITIES)
@pytest.mark.parametrize("labelled", [True, False])
def test_identified_thresholds_hold_if_noise_depends_on_the_group_only(parity, labelled):
    naive = 0.0
    for seed in range(examples(15)):
        q = draw(seed, 3, 3 + seed % 2, 6, independent=True)
        n, C, by_label = seen(q)
        table = by_label if labelled else C
        found = solve_noisy(n, table, parity, 0.02, ClassConditional())
        assert found.feasible
        assert true_excess(q, found.F, parity, 0.02) <= 1e-7
        assert found.violation == pytest.approx(true_excess(q, found.F, parity, 0.02), abs=1e-7)
        assert found.error <= solve_noisy(n, by_label, parity, 0.02, KnownTableByLabel()).error + 1e-9
        blind = solve_noisy(n, table, parity, 0.02, ClassConditional(), rules=[0] * len(n))
        np.testing.assert_array_equal(blind.F, np.repeat(blind.F[:1], len(blind.F), axis=0))
        assert blind.error >= found.error - 1e-9
        free = (n[..., 1] > n[..., 0]).astype(float)
        naive = max(naive, true_excess(q, np.maximum.accumulate(free, axis=1), parity, 0.02))
    assert naive > 0.05


def test_without_noise_identified_thresholds_are_those_of_known_groups():
    q = draw(3, 3, 3, 5, independent=True)
    q = np.einsum("jbc,jk->jkbc", q.sum(1), np.eye(3))
    n, C, table = seen(q)
    for parity in PARITIES:
        expected = cutting_planes(n, table, parity, 0.03, 1.0)  # a table that leaves nothing open
        assert solve_noisy(n, C, parity, 0.03, ClassConditional()).error == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("parity", PARITIES)
def test_a_margin_holds_is_nearly_optimal_and_always_can_be_had(parity):
    for seed in range(4):
        n, C, table = seen(draw(seed, 3, 3, 8, independent=True))
        errors = [solve_noisy(n, C, parity, 0.02, ClassConditional()).error]
        for z, rows in ((1.0, 20_000), (2.0, 2_000), (3.0, 50)):
            found = solve_noisy(n, C, parity, 0.02, ClassConditional(z, rows))
            assert found.feasible
            assert found.violation <= 1e-7
            assert found.bound - 1e-9 <= found.error <= found.bound + 2 * GAP
            errors.append(found.error)
        assert (np.diff(errors) >= -GAP).all()
        assert errors[-1] > errors[0] + 0.01
        assert errors[-1] <= min(n[..., 0].sum(), n[..., 1].sum()) + 1e-9
        margin = solve_noisy(n, table, parity, 0.02, ClassConditional(2.0, 2_000))
        assert margin.violation <= 1e-7


@pytest.mark.parametrize("parity", PARITIES)
def test_a_margin_costs_what_tangents_of_the_whole_say(parity):
    for seed in range(3):
        n, C, _ = seen(draw(seed, 2, 2, 3, independent=True))
        assumption = ClassConditional(2.0, 1000 + 4000 * seed)
        found = solve_noisy(n, C, parity, 0.03, assumption)

        def excess(
            x: np.ndarray, n: np.ndarray = n, C: np.ndarray = C, a: ClassConditional = assumption
        ) -> np.ndarray:
            F = x.reshape(2, 3)
            out = []
            for rate, sign in DEMANDS[parity]:
                own = n[..., list(LABELS[rate])].sum(-1)
                ends = rate_bounds(n, C, F, rate, a)
                out.append(sign * ((own * F).sum() / own.sum() - ends[0 if sign > 0 else 1]) - 0.03)
            return np.concatenate(out)

        def tangents(x: np.ndarray) -> Iterator[Cut]:
            value = excess(x)
            slope = np.array([(excess(x + h) - excess(x - h)) / 2e-6 for h in 1e-6 * np.eye(6)]).T
            yield from zip(slope, slope @ x - np.where(value <= 1e-6, -np.inf, value), strict=True)

        found_by_cuts = least_by_cuts((n[..., 0] - n[..., 1]).ravel(), (2, 3), tangents)
        least = float(found_by_cuts.fun + n[..., 1].sum())
        assert found.bound <= least + 1e-5
        assert found.error == pytest.approx(least, abs=2 * GAP)


def test_margins_are_standard_errors_of_repeated_samples():
    q = draw(1, 2, 2, 5, independent=True)
    n, C, table = seen(q)
    F = np.array([[0.0, 0.2, 0.5, 1.0, 1.0], [0.0, 0.0, 0.6, 0.7, 1.0]])
    rows, rng = 20_000, np.random.default_rng(0)
    samples = rng.multinomial(rows, n.ravel(), 1000).reshape(-1, *n.shape) / rows
    for rate in LABELS:
        T = C / C.sum(1, keepdims=True)
        masses = np.einsum("jk,rkby->ryjb", np.linalg.inv(T.T), samples)
        counted = {0: 1 - F if rate == "accuracy" else F, 1: F}
        rates = sum(np.einsum("jk,rjb,kb->rj", T, masses[:, y], counted[y]) for y in LABELS[rate])
        rates = rates / masses[:, list(LABELS[rate])].sum((1, 3))
        lo, hi = rate_bounds(n, C, F, rate, ClassConditional(1.0, rows))
        truth = sum(np.einsum("jkb,kb->j", q[..., y], counted[y]) for y in LABELS[rate])
        truth /= q[..., list(LABELS[rate])].sum((1, 2, 3))
        np.testing.assert_allclose((lo + hi) / 2, truth, atol=1e-9)
        np.testing.assert_allclose((hi - lo) / 2, rates.std(0), rtol=0.1)
    plain, _ = rate_bounds(n, table, F, "selection_rate", ClassConditional())
    np.testing.assert_allclose(
        plain, rate_bounds(n, C, F, "selection_rate", ClassConditional())[0], atol=1e-9
    )


@pytest.mark.parametrize("parity", PARITIES)
def test_sensitivity_runs_from_identified_to_certified(parity):
    q = draw(8, 2, 2, 4, independent=True)
    n, C, table = seen(q)
    errors = [
        solve_noisy(n, table, parity, 0.03, BoundedDependence(eps)) for eps in (0.0, 0.03, 0.1, 0.3, 1.0)
    ]
    assert all(e.violation <= 1e-6 for e in errors)
    values = [e.error for e in errors]
    assert (np.diff(values) >= -1e-6).all()
    assert values[0] + 1e-4 < values[2] < values[-1]
    assert values[0] == pytest.approx(solve_noisy(n, table, parity, 0.03, ClassConditional()).error, abs=1e-5)
    assert values[-1] == pytest.approx(
        solve_noisy(n, table, parity, 0.03, KnownTableByLabel()).error, abs=1e-7
    )
    assert values[2] == pytest.approx(cutting_planes(n, table, parity, 0.03, 0.1), abs=1e-6)
    last = solve_noisy(n, C, parity, 0.03, BoundedDependence(1.0)).error
    assert last == pytest.approx(solve_noisy(n, C, parity, 0.03, KnownTable()).error, abs=1e-6)
    if parity == "demographic_parity":
        expected = cutting_planes(n, C, parity, 0.03, 0.1)
        assert solve_noisy(n, C, parity, 0.03, BoundedDependence(0.1)).error == pytest.approx(
            expected, abs=1e-6
        )


def test_a_refuted_assumption_is_refused():
    q = draw(2, 2, 2, 4)
    q[0, 0, 1] += q[0, 1, 1]  # a bin in which nobody looks like the other group
    q[0, 1, 1] = 0
    q[1, 1, 1] += q[1, 0, 1]
    q[1, 0, 1] = 0
    q[0, :, 1] *= 0.01
    q /= q.sum()
    n, _, table = seen(q)
    with pytest.raises(Refuted) as caught:
        solve_noisy(n, table, "equalized_odds", 0.03, BoundedDependence(0.0))
    least = caught.value.smallest_eps
    assert 1e-3 < least < 1
    assert solve_noisy(n, table, "equalized_odds", 0.03, BoundedDependence(least + 1e-5)).feasible
    with pytest.raises(Refuted):
        solve_noisy(n, table, "equalized_odds", 0.03, BoundedDependence(least - 1e-3))
    with pytest.raises(Refuted):
        rate_bounds(n, table, np.ones((2, 4)), "selection_rate", BoundedDependence(least - 1e-3))
    assert Joint(n, table, least - 1e-3).least(np.zeros(q.shape)) is None
    assert Joint(n, table, least + 1e-5).least(np.zeros(q.shape)) is not None
    positives = Joint(n[:, :, [1, 1]] / 2, table[[1, 1]] / 2, least - 1e-3)
    assert positives.least(np.zeros(q.shape)) is not None
    # what is refuted is about label 0, at which equal opportunity does not look
    assert solve_noisy(n, table, "equal_opportunity", 0.03, BoundedDependence(least - 1e-3)).feasible


def test_soft_thresholds_are_the_best_over_all_levels():
    wide = 0
    for seed in range(3):
        q = draw(seed, 2, 2, 3)
        q = np.einsum("jk,jbc->jkbc", np.array([[0.95, 0.05], [0.05, 0.95]]), q.sum(1))
        n, C, _ = seen(q)
        found = solve_noisy(n, C, "one_sided_equal_opportunity", 0.1, KnownTable())
        assert found.violation <= 1e-7
        assert true_excess(q, found.F, "one_sided_equal_opportunity", 0.1) <= 1e-7
        grid = [
            cutting_planes(n, C, "one_sided_equal_opportunity", 0.1, 1.0, {"true_positive_rate": t})
            for t in np.linspace(0, 1, 21)
        ]
        known = np.array([e for e in grid if e is not None])
        assert found.error <= known.min() + 1e-7
        assert known.min() - found.error < 0.02
        level = float((n[..., 1] * found.F).sum() / n[..., 1].sum() - 0.1)
        at = cutting_planes(
            n, C, "one_sided_equal_opportunity", 0.1, 1.0, {"true_positive_rate": max(level, 0.0)}
        )
        assert at == pytest.approx(found.error, abs=1e-6)
        wide += found.error < n[..., 1].sum() * 0.9 - 1e-3
        parity = solve_noisy(n, C, "demographic_parity", 0.05, KnownTable())
        assert parity.error == pytest.approx(cutting_planes(n, C, "demographic_parity", 0.05, 1.0), abs=1e-7)
        for sides in ("one_sided_equalized_odds", "equal_opportunity"):
            both = solve_noisy(n, C, sides, 0.1, KnownTable())
            assert both.violation <= 1e-7
            assert both.error >= found.error - 1e-9
        mirror = solve_noisy(
            n[:, ::-1, ::-1], C, "equalized_odds", 0.1, KnownTable()
        )  # who is refused is accepted
        assert mirror.error == pytest.approx(
            solve_noisy(n, C, "equalized_odds", 0.1, KnownTable()).error, abs=1e-6
        )
    assert wide >= 2


def test_soft_bounds_of_decisions_are_those_of_their_cells():
    q = draw(4, 3, 2, 4)
    n, C, _ = seen(q)
    F = np.array([[0, 0, 1, 1], [0, 1, 1, 1]], dtype=float)
    cells = np.stack([n[..., 1] * F, n[..., 1] * (1 - F), n[..., 0] * F, n[..., 0] * (1 - F)], axis=-1).sum(1)
    for rate in LABELS:
        expected = table_bounds(cells, C, RATIOS[rate])
        np.testing.assert_allclose(rate_bounds(n, C, F, rate, KnownTable()), expected, atol=1e-7)


def test_where_a_group_is_vacuous_hardly_a_positive_can_be_found():
    q = draw(0, 2, 2, 5)
    q[1] *= 0.2  # one group is small
    q[..., 1] *= 0.2  # and so are the positives
    q /= q.sum()
    n, C, _ = seen(q)
    half = n.sum(1) / 2
    assert vacuous(np.stack([half[:, 1], half[:, 1], half[:, 0], half[:, 0]], axis=-1), C).any()
    found = solve_noisy(n, C, "equal_opportunity", 0.05, KnownTable())
    assert (n[..., 1] * found.F).sum() / n[..., 1].sum() <= 0.05 + 1e-7
    assert found.error >= 0.95 * n[..., 1].sum() - 1e-7


@pytest.mark.parametrize(
    "assumption",
    [KnownTableByLabel(), ClassConditional(), ClassConditional(1.0, 5000), BoundedDependence(0.1)],
)
def test_what_cannot_be_had_is_missed_by_the_least(assumption):
    q = draw(7, 2, 2, 4, independent=True)
    n, _, table = seen(q)
    found = solve_noisy(n, table, "equal_opportunity", -0.1, assumption)
    assert not found.feasible
    assert np.isnan(found.bound)
    assert found.violation == pytest.approx(
        0.1, abs=1e-5
    )  # no group can beat the average: all as the average
    assert solve_noisy(n, table, "equal_opportunity", -0.1 + found.violation + 1e-5, assumption).feasible
    assert not solve_noisy(n, table, "equal_opportunity", -1e-3, assumption).feasible


def test_groups_without_a_rate_do_not_bind():
    q = draw(1, 3, 2, 4)
    q[2, ..., 1] = 0
    q /= q.sum()
    n, _, table = seen(q)
    found = solve_noisy(n, table, "equal_opportunity", 0.05, KnownTableByLabel())
    assert np.isnan(found.excess).tolist() == [[False, False, True]] * 2
    assert found.violation <= 1e-7
    without = table[:, :2].copy()
    without[0, 0] += table[0, 2]
    alone = solve_noisy(n, without, "equal_opportunity", 0.05, KnownTableByLabel())
    assert found.error == pytest.approx(alone.error, abs=1e-9)
    with pytest.raises(ValueError, match="rank 2 for 3"):
        solve_noisy(n, table, "equal_opportunity", 0.05, ClassConditional())


def test_what_does_not_fit_is_refused():
    n, C, table = seen(draw(0, 2, 2, 3))
    with pytest.raises(ValueError, match="needs the table by label"):
        solve_noisy(n, C, "equal_opportunity", 0.1, KnownTableByLabel())
    with pytest.raises(ValueError, match="assumption certified"):
        solve_noisy(n, table, "equal_opportunity", 0.1, KnownTable())
    with pytest.raises(ValueError, match="transport"):
        solve_noisy(n, table[::-1], "equal_opportunity", 0.1, KnownTableByLabel())
    with pytest.raises(ValueError, match="no row with a label"):
        solve_noisy(
            n * [1.0, 0.0], C * 0 + (n * [1.0, 0.0]).sum((1, 2)) / 2, "equal_opportunity", 0.1, KnownTable()
        )


SIDES = {
    "demographic_parity": (("SR", 1), ("SR", -1)),
    "equal_opportunity": (("TPR", 1), ("TPR", -1)),
    "predictive_equality": (("FPR", 1), ("FPR", -1)),
    "equalized_odds": (("TPR", 1), ("TPR", -1), ("FPR", 1), ("FPR", -1)),
    "one_sided_demographic_parity": (("SR", 1),),
    "one_sided_equal_opportunity": (("TPR", 1),),
    "one_sided_predictive_equality": (("FPR", -1),),
    "one_sided_equalized_odds": (("TPR", 1), ("FPR", -1)),
}
"""What each name declares, written down apart from the code: 1 where no group may be below, -1 where none above."""


@pytest.mark.parametrize("parity", list(SIDES))
@pytest.mark.parametrize("groups", [2, 4])
def test_what_is_declared_is_held_at_the_least_error_by_another_program(parity, groups):
    """One table or either of two: rates of the lowest and the highest bins, filled by hand, in a program of our own."""
    bins, slack = 7, 0.05
    q = draw(groups, groups, 3, bins)
    n, _, first = seen(q)
    rng = np.random.default_rng(groups)
    second = first * rng.uniform(0.7, 1.3, first.shape)
    second *= (first.sum(1) / second.sum(1))[:, None, :]
    costs = (n[..., 0] - n[..., 1]).ravel()

    def filled(y: int, table: np.ndarray, j: int, sign: int) -> np.ndarray:
        """Return which masses make the lowest (sign 1) or highest rate of a group, shape (K, B)."""
        out = np.zeros((3, bins))
        for k in range(3):
            left = table[y, j, k]
            for b in range(bins)[::sign]:
                out[k, b] = min(left, n[k, b, y])
                left -= out[k, b]
        return out

    def least(tables: list[np.ndarray]) -> float:
        fixed = []
        for (rate, sign), table, j in itertools.product(SIDES[parity], tables, range(groups)):
            labels = {"SR": (0, 1), "TPR": (1,), "FPR": (0,)}[rate]
            everybody = n[..., list(labels)].sum(-1)
            mine = sum(filled(y, table, j, sign) for y in labels)
            fixed.append((sign * (everybody / everybody.sum() - mine / mine.sum()).ravel(), slack))
        return float(least_by_cuts(costs, (3, bins), lambda _: (), fixed).fun + n[..., 1].sum())

    one = solve_noisy(n, first, parity, slack, KnownTableByLabel())
    both = solve_noisy(n, first, parity, slack, KnownTableByLabel(), others=[second])
    assert one.error == pytest.approx(least([first]), abs=1e-7)
    assert both.error == pytest.approx(least([first, second]), abs=1e-7)
    assert both.error >= one.error - 1e-9
    assert both.violation <= 1e-6
