"""Rates of groups seen through noise, held against linear programs over all joint distributions and the truth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fairfix.noise import uncertainty_set
from fairfix.noise.bounds import (
    conditional_radius,
    table_bounds,
    tv_bounds,
    vacuous,
    valid_radius,
)
from fairfix.noise.confusion_matrix_inversion import invert, standard_error
from fairfix.noise.epsilon import End, EpsCurve, least_eps, sensitivity_bounds, sensitivity_ends
from fairfix.noise.label_shift import smallest_shares, total_variation, transport_columns, transport_rows
from fairfix.noise.observed_groups import Recorded
from fairfix.noise.rates import RATIOS, Ratio
from scipy.optimize import linprog

from tests.strategies import examples
from tests.test_noise.programs import CELLS, Joint, near

TPR, FPR, SR = RATIOS["true_positive_rate"], RATIOS["false_positive_rate"], RATIOS["selection_rate"]
LABEL_0, LABEL_1 = [2, 3], [0, 1]


def draw(seed: int, *, square: bool = False, empty: float = 0.3) -> np.ndarray:
    """Return true joint masses q of true group, noisy group and cell, shape (J, K, 4): sparse, of total 1."""
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(2, 5))
    noisy = groups if square else int(rng.integers(2, 6))
    q = rng.dirichlet(np.full(groups * noisy * 4, 0.5)).reshape(groups, noisy, 4)
    q *= rng.random(q.shape) > empty
    q[0, 0] += 0.01
    return q / q.sum()


def seen(q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return masses, table, and table by label."""
    by_label = np.stack([q[..., LABEL_0].sum(-1), q[..., LABEL_1].sum(-1)])
    return q.sum(0), q.sum(2), by_label


def by_program(m: np.ndarray, C: np.ndarray, ratio: Ratio, eps: float, group: int) -> tuple[float, float]:
    """Return the range of one group's rate by a program of its own, over joint masses without their totals."""
    a, rows = (np.array(mask, dtype=float)[CELLS] for mask in (ratio.a, ratio.rows))
    return Joint(m[:, CELLS], C, eps).range_of(group, a, rows)


@pytest.mark.parametrize("name", RATIOS)
def test_both_knapsacks_are_the_linear_program_of_all_groups(name):
    ratio, undefined, many = RATIOS[name], 0, examples(60)
    for seed in range(many):
        q = draw(seed, empty=0.5 if seed % 2 else 0.85)
        m, *tables = seen(q)
        j = seed % len(q)
        for table in tables:
            found = by_program(m, table, ratio, 1.0, j)
            ours = [end[j] for end in table_bounds(m, table, ratio)]
            np.testing.assert_allclose(ours, found, atol=1e-7, err_msg=str(seed))
        undefined += np.isnan(found[0])
    assert undefined < many / 2 or name in ("selection_rate", "accuracy")


def adversary(q: np.ndarray) -> np.ndarray:
    """Return the same true groups with noise that takes their true positives first."""
    out = np.zeros_like(q)
    groups = len(q)
    own = q.sum(1)
    for j in range(groups):
        flips = 0.2 * own[j].sum()
        for c in (0, 2, 1, 3):
            moved = min(flips, own[j, c])
            out[j, (j + 1) % groups, c] += moved
            out[j, j, c] += own[j, c] - moved
            flips -= moved
    return out


@pytest.mark.parametrize("name", RATIOS)
def test_balls_are_their_linear_program(name):
    ratio = RATIOS[name]
    a, rows = (np.array(mask)[CELLS] for mask in (ratio.a, ratio.rows))
    rng = np.random.default_rng(3)
    exceptions = 0
    for seed in range(100):
        m = draw(seed, square=True, empty=0.6).sum(0)
        gone = np.array([ratio.a, ratio.b][seed % 2])  # in every third instance nobody has these cells
        m[:, gone] *= seed % 3 > 0
        m = m[m.sum(1) > 0] / m.sum()
        gamma = rng.choice([0.0, 0.05, 0.3, 0.9])
        lo, hi = tv_bounds(m, gamma, ratio)
        j = int(rng.integers(len(m)))
        found = [near(m[:, CELLS], j, gamma, a, rows, sign) for sign in (1.0, -1.0)]
        ends = [np.nan if one is None else (one * a).sum() for one in found]
        np.testing.assert_allclose((lo[j], hi[j]), ends, atol=1e-7, err_msg=str(seed))
        in_a, in_b = ratio.masses(m.sum(0))
        exceptions += int((in_a == 0) != (in_b == 0))
    assert exceptions > 0


def test_an_empty_noisy_group_allows_every_distribution():
    m = np.array([[0.2, 0.2, 0.3, 0.3], [0.0, 0.0, 0.0, 0.0]])
    lo, hi = tv_bounds(m, 0.0, TPR)
    assert (lo[0], hi[0]) == (0.5, 0.5)
    assert (lo[1], hi[1]) == (0.0, 1.0)


def test_the_conditional_radius_fails_where_marginals_differ_and_only_there():
    escaped = outside = 0
    for seed in range(600):
        q = draw(seed, square=True)
        m, C, _ = seen(q)
        true, noisy = q.sum(1), m
        far = np.array(
            [
                total_variation(t, n) if t.sum() > 0 and n.sum() > 0 else 0.0
                for t, n in zip(true, noisy, strict=True)
            ]
        )
        assert (far <= valid_radius(C) + 1e-12).all()
        escaped += int((far > conditional_radius(C) + 1e-9).sum())
        truth, (lo, hi) = TPR.of(true), tv_bounds(m, conditional_radius(C), TPR)
        outside += int(((truth < lo - 1e-9) | (truth > hi + 1e-9)).sum())
        same = np.isclose(C.sum(0), C.sum(1))
        np.testing.assert_allclose(valid_radius(C)[same], conditional_radius(C)[same])
    assert escaped > 20
    assert outside > 10
    rng = np.random.default_rng(0)
    C = np.array([[0.4, 0.1], [0.1, 0.4]])  # equal marginals
    for _ in range(100):
        q = C[..., None] * rng.dirichlet(np.ones(4), (2, 2))
        assert (total_variation(q.sum(1), q.sum(0)) <= conditional_radius(C) + 1e-12).all()


def leads(lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """Return the largest lead of each group over each other, as bounds of both allow it."""
    return hi[:, None] - lo[None, :]


def test_gaps_with_fixed_denominators_are_sharp_and_others_hold():
    for seed in range(examples(40)):
        q = draw(seed, empty=0.2)
        m, C, by_label = seen(q)
        truth = TPR.of(q.sum(1))
        outer = leads(*table_bounds(m, C, TPR))
        assert not (outer < truth[:, None] - truth[None, :] - 1e-12).any()
        for ratio, table in ((SR, C), (TPR, by_label)):
            mass = q.sum(1) @ np.array(ratio.rows)
            if not (mass[:2] > 0).all():
                continue
            gaps = leads(*table_bounds(m, table, ratio))
            top = np.zeros((*q.shape[:2], 2, 2))
            top[:2] = (
                np.array(ratio.a)[CELLS]
                / mass[:2, None, None, None]
                * np.array([1.0, -1.0])[:, None, None, None]
            )
            found = Joint(m[:, CELLS], table).ends(top, np.ones(top.shape))
            assert (-gaps[1, 0], gaps[0, 1]) == pytest.approx(found, abs=1e-7)


def independent(seed: int, groups: int, noisy: int) -> tuple[np.ndarray, np.ndarray]:
    """Return true joint masses with noise that depends on the group only, and the noise."""
    rng = np.random.default_rng(seed)
    T = rng.dirichlet(np.ones(noisy), groups) + 0.5 * np.eye(groups, noisy)
    T /= T.sum(1, keepdims=True)
    own = rng.dirichlet(np.ones(groups * 4)).reshape(groups, 4)
    return T[:, :, None] * own[:, None, :], T


@pytest.mark.parametrize(("groups", "noisy"), [(2, 2), (3, 3), (2, 4), (3, 5)])
def test_inversion_is_exact_if_noise_depends_on_the_group_only(groups, noisy):
    for seed in range(examples(20)):
        q, _ = independent(seed, groups, noisy)
        m, C, _ = seen(q)
        for ratio in RATIOS.values():
            found = invert(m, C)
            np.testing.assert_allclose(ratio.of(found.masses), ratio.of(q.sum(1)), atol=1e-8)
            np.testing.assert_allclose(found.residual, 0.0, atol=1e-12)
    q, _ = independent(5, groups, noisy)
    crooked = adversary(q) if groups == noisy else q * np.random.default_rng(1).random(q.shape)
    m, C, _ = seen(crooked / crooked.sum())
    found = invert(m, C)
    assert np.abs(TPR.of(found.masses) - TPR.of(crooked.sum(1))).max() > 1e-3
    assert (np.abs(found.residual).max() > 1e-5) == (noisy > groups)


def test_inversion_refuses_fewer_noisy_groups_and_noise_that_tells_nothing():
    q, _ = independent(0, 3, 2)
    with pytest.raises(ValueError, match="rank 2 for 3 true groups"):
        invert(*seen(q)[:2])
    C = np.outer([0.3, 0.7], [0.4, 0.6])
    m = C.sum(0)[:, None] * np.full((2, 4), 0.25)
    with pytest.raises(ValueError, match="rank 1"):
        invert(m, C)
    good, _ = independent(0, 2, 2)
    batch = invert(np.stack([good.sum(0), m]), np.stack([good.sum(2), C]))
    assert np.isnan(TPR.of(batch.masses)).tolist() == [[False, False], [True, True]]


def test_rules_that_use_the_noisy_group_need_their_own_inversion():
    rng = np.random.default_rng(5)
    groups = 3
    T = 0.7 * np.eye(groups) + 0.1
    scored = rng.dirichlet(np.ones(groups * 6)).reshape(groups, 2, 3)  # true group, label, bin
    accept = np.array([[0.0, 0.5, 1.0], [0.3, 0.6, 0.6], [0.9, 1.0, 1.0]])  # noisy group, bin

    def cells(share: np.ndarray) -> np.ndarray:
        taken, left = scored @ share, scored @ (1 - share)
        return np.stack([taken[:, 1], left[:, 1], taken[:, 0], left[:, 0]], axis=-1)

    by_rule = np.stack([cells(a) for a in accept])  # rule, true group, cell
    truth = TPR.of(np.einsum("jk,kjc->jc", T, by_rule))
    C = T * scored.sum((1, 2))[:, None]
    m = np.einsum("jk,rjc->rkc", T, by_rule)
    own = np.stack([m[k, k] for k in range(groups)])
    np.testing.assert_allclose(TPR.of(invert(own, C, m).masses), truth, atol=1e-10)
    assert np.abs(TPR.of(invert(own, C).masses) - truth).max() > 0.01


def test_standard_errors_are_those_of_repeated_samples():
    T = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
    cells = np.array([[0.1, 0.1, 0.1, 0.2], [0.06, 0.02, 0.03, 0.14], [0.08, 0.02, 0.05, 0.1]])
    q = T[:, :, None] * cells[:, None, :]
    m, C, _ = seen(q)
    rows, many = 20_000, 2000
    rng = np.random.default_rng(0)
    counts = rng.multinomial(rows, q.ravel(), many).reshape(many, *q.shape).sum(1) / rows
    for name in ("true_positive_rate", "selection_rate", "positive_predictive_value"):
        ratio = RATIOS[name]
        sampled = ratio.of(np.linalg.inv(T.T) @ counts)
        se = standard_error(m, invert(m, C), ratio, rows)
        np.testing.assert_allclose(sampled.std(0), se, rtol=0.08)


def test_noise_that_depends_on_the_label_is_inverted_by_label():
    T = np.array([[[0.8, 0.2], [0.1, 0.9]], [[0.6, 0.4], [0.3, 0.7]]])  # label, true, noisy
    cells = np.array([[0.12, 0.08, 0.1, 0.2], [0.1, 0.02, 0.08, 0.3]])
    q = np.stack([T[1], T[1], T[0], T[0]], axis=-1) * cells[:, None, :]
    m, C, by_label = seen(q)
    rows, rng = 20_000, np.random.default_rng(0)
    counts = rng.multinomial(rows, m.ravel(), 2000).reshape(-1, 2, 4) / rows
    inverse = np.linalg.inv(np.swapaxes(T, 1, 2))
    sampled = np.concatenate([inverse[1] @ counts[..., LABEL_1], inverse[0] @ counts[..., LABEL_0]], axis=-1)
    for name, ratio in RATIOS.items():
        found = invert(m, by_label, by_label=True)
        rates = ratio.of(found.masses)
        np.testing.assert_allclose(rates, ratio.of(cells), atol=1e-10)
        np.testing.assert_allclose(found.residual, 0, atol=1e-12)
        np.testing.assert_allclose(standard_error(m, found, ratio, rows), ratio.of(sampled).std(0), rtol=0.08)
        lo, hi = sensitive(m, by_label, ratio, 0.0)
        np.testing.assert_allclose((lo, hi), (rates, rates), atol=1e-5, err_msg=name)
    assert np.abs(TPR.of(invert(m, C).masses) - TPR.of(cells)).max() > 0.01
    flat = by_label.copy()
    flat[1] = np.outer(by_label[1].sum(1), by_label[1].sum(0)) / by_label[1].sum()
    with pytest.raises(ValueError, match="rank 1"):
        invert(m, flat, by_label=True)


def sensitive(m, C, ratio, eps):
    return sensitivity_bounds(m, C, {"rate": ratio}, eps)["rate"]


def test_sensitivity_runs_from_the_inversion_to_the_bounds():
    for seed in range(examples(12)):
        q, _ = independent(seed, 2 + seed % 2, 2 + seed % 2)
        m, C, _ = seen(q)
        for ratio in (TPR, SR, RATIOS["positive_predictive_value"]):
            rates = ratio.of(invert(m, C).masses)
            np.testing.assert_allclose(sensitive(m, C, ratio, 0.0), (rates, rates), atol=1e-5)
        curve = [sensitive(m, C, TPR, eps) for eps in (0.0, 0.02, 0.05, 0.2)]
        assert all((a[0] >= b[0] - 1e-7).all() for a, b in itertools.pairwise(curve))
        assert all((a[1] <= b[1] + 1e-7).all() for a, b in itertools.pairwise(curve))
        assert (curve[1][1] - curve[1][0])[0] > 1e-4


def test_a_refuted_assumption_gives_the_smallest_eps():
    # Noisy group 1 has 0.3 of its 0.5 mass in one cell that the other hardly has; each true group shows as both alike.
    m = np.array([[0.2, 0.1, 0.1, 0.1], [0.4, 0.05, 0.025, 0.025]])
    C = np.array([[0.25, 0.25], [0.25, 0.25]])
    T = 0.5
    assert np.isnan(sensitive(m, C, TPR, 0.01)).all()
    # P(noisy = 1 | cell) is an average of the groups' own: the worst cell is 0.4/0.6 against T = 0.5, and 0.025/0.125
    least = least_eps(m, C)
    assert least == pytest.approx(T - 0.025 / 0.125, abs=1e-5)
    assert np.isfinite(sensitive(m, C, TPR, least + 1e-5)).all()
    assert np.isnan(sensitive(m, C, TPR, least - 1e-3)).all()


def test_a_rate_without_a_denominator_is_not_a_refutation():
    m = np.array([[0.0, 0.0, 0.25, 0.25], [0.0, 0.0, 0.25, 0.25]])
    C = np.array([[0.4, 0.1], [0.1, 0.4]])
    assert least_eps(m, C) == 0.0
    for bounds in (table_bounds(m, C, TPR), tv_bounds(m, 0.1, TPR), sensitive(m, C, TPR, 0.1)):
        assert np.isnan(bounds).all()


def test_breakdown_is_where_the_curve_meets_the_limit():
    q, _ = independent(4, 2, 2)
    m, C, _ = seen(q)
    curve = EpsCurve(Recorded("x", ("a", "b"), m, 1e4, {"tpr": TPR}), C)
    rates = TPR.of(invert(m, C).masses)
    limit = float(rates.min()) - 0.05
    assert curve.least < 1e-5
    eps = curve.largest(lambda low, _: low >= limit, "min", ("tpr",))
    assert 0 < eps < 1
    assert sensitive(m, C, TPR, eps)[0].min() >= limit - 2e-7
    assert sensitive(m, C, TPR, eps + 1e-4)[0].min() < limit
    lo, hi = table_bounds(m, C, TPR)
    assert curve.largest(lambda low, _: low >= lo.min() - 1e-9, "min", ("tpr",)) == 1.0
    assert np.isnan(curve.largest(lambda _, high: high <= rates.max() - 0.05, "max", ("tpr",)))
    gap = float(np.max([hi[0] - lo[1], hi[1] - lo[0]]))
    wide = curve.largest(lambda _, high: high <= 0.99 * gap, "difference", ("tpr",))
    tight = curve.largest(lambda _, high: high <= np.ptp(rates) + 0.02, "difference", ("tpr",))
    assert 0 <= tight < wide <= 1


def test_vacuity_is_a_bound_of_nothing_for_every_rule_and_only_then():
    rng = np.random.default_rng(0)
    seen_both = set()
    for _ in range(60):
        groups = int(rng.integers(2, 4))
        C = rng.dirichlet(np.full(groups * groups, 0.7)).reshape(groups, groups)
        positives = C.sum(0) * rng.uniform(0.05, 0.7, groups)
        base = np.stack([positives, C.sum(0) - positives], axis=-1)
        rules = rng.uniform(0.05, 0.95, (50, groups, 2))
        taken, left = base * rules, base * (1 - rules)
        m = np.stack([taken[..., 0], left[..., 0], taken[..., 1], left[..., 1]], axis=-1)
        lo, hi = table_bounds(m, np.broadcast_to(C, (50, groups, groups)), TPR)
        flags = vacuous(m[0], C)
        assert (lo[:, flags] == 0).all()
        assert (hi[:, flags] == 1).all()
        near = base[:, 0, None] * np.array([1 - 1e-6, 1e-6]), base[:, 1, None] * np.array([0.5, 0.5])
        lo, _ = table_bounds(np.concatenate(near, axis=-1), C, TPR)
        assert (lo[~flags] > 0).all()
        seen_both |= set(flags.tolist())
    assert seen_both == {True, False}


def test_replicates_are_what_each_gives_alone():
    rng = np.random.default_rng(2)
    q = rng.dirichlet(np.ones(3 * 3 * 4), 5).reshape(5, 3, 3, 4)
    m, C = q.sum(1), q.sum(3)
    by_label = np.stack([q[..., LABEL_0].sum(-1), q[..., LABEL_1].sum(-1)], axis=1)
    for ratio in RATIOS.values():
        radius = valid_radius(C)
        whole = [
            *table_bounds(m, C, ratio),
            *table_bounds(m, by_label, ratio),
            *tv_bounds(m, radius, ratio),
            ratio.of(invert(m, C).masses),
            standard_error(m, invert(m, C), ratio, 100),
        ]
        for r in range(5):
            alone = invert(m[r], C[r])
            one = [
                *table_bounds(m[r], C[r], ratio),
                *table_bounds(m[r], by_label[r], ratio),
                *tv_bounds(m[r], radius[r], ratio),
                ratio.of(alone.masses),
                standard_error(m[r], alone, ratio, 100),
            ]
            for a, b in zip(whole, one, strict=True):
                np.testing.assert_allclose(a[r], b, rtol=1e-9)


def test_transports_keep_what_they_say():
    rng = np.random.default_rng(1)
    T = rng.dirichlet(np.ones(3), 3) + np.eye(3)
    T /= T.sum(1, keepdims=True)
    table = T * np.array([0.2, 0.3, 0.5])[:, None]
    prior = np.array([0.5, 0.4, 0.1])
    noisy = T.T @ prior
    columns, rows = transport_columns(table, noisy), transport_rows(table, noisy)
    for moved in (columns, rows):
        np.testing.assert_allclose(moved.sum(0), noisy)
    np.testing.assert_allclose(columns / columns.sum(0), table / table.sum(0))
    np.testing.assert_allclose(rows, T * prior[:, None], atol=1e-12)
    assert np.abs(columns.sum(1) - prior).max() > 0.02
    far = np.array([0.98, 0.01, 0.01])  # no prior gives these
    np.testing.assert_allclose(transport_rows(table, far).sum(0), far)
    batch = transport_rows(np.stack([table, table]), np.stack([noisy, far]))
    np.testing.assert_allclose(batch[0], rows)
    np.testing.assert_allclose(batch[1], transport_rows(table, far))
    assert total_variation(table.sum(0), noisy) == pytest.approx(0.5 * np.abs(table.sum(0) - noisy).sum())
    table[:, 0] = 0
    with pytest.raises(ValueError, match="lacks a noisy group"):
        transport_columns(table, noisy)


def test_tables_that_do_not_fit_are_refused():
    q = draw(0, square=True)
    m, C, by_label = seen(q)
    with pytest.raises(ValueError, match="transport"):
        table_bounds(m, C * 1.01, TPR)
    with pytest.raises(ValueError, match="transport"):
        table_bounds(m, by_label[::-1] + 0.01, TPR)
    with pytest.raises(ValueError, match="shape"):
        table_bounds(m, C[:, :-1], TPR)
    with pytest.raises(ValueError, match="0 or more"):
        table_bounds(-m, C, TPR)


@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize(
    ("groups", "noisy", "empty"), [(2, 2, []), (3, 3, []), (2, 4, [1, 3]), (4, 3, [0]), (2, 3, [0, 2])]
)
def test_ends_of_all_groups_at_once_are_those_of_a_program_each(groups, noisy, empty, by_label):
    """Also of a group without rows, or without some cells: precision is 1 or 0 as soon as somebody is left."""
    rng = np.random.default_rng([groups, noisy, len(empty)])
    q = rng.dirichlet(np.full(groups * noisy * 4, 0.5)).reshape(groups, noisy, 4)
    q[0][:, empty] = 0.0
    q[2:3] *= groups != 3  # the third of three has no rows
    m, C, labelled = seen(q / q.sum())
    table = labelled if by_label else C
    ends = [End(r, j, sign) for r in RATIOS.values() for j in range(groups) for sign in (1.0, -1.0)]
    least = least_eps(m, table)
    found = sensitivity_ends(m, table, least + 0.05, ends)
    for end, value in zip(ends, found, strict=True):
        one = by_program(m, table, end.ratio, least + 0.05, end.group)
        np.testing.assert_allclose(value, one[0 if end.sign > 0 else 1], atol=1e-7)
    assert np.isnan(found[4::6]).all() == (groups == 3)
    np.testing.assert_allclose(
        sensitivity_ends(m, table, 1.0, ends), sensitivity_ends(m, table, 1.0 - 1e-9, ends), atol=1e-6
    )
    assert least < 0.02 or np.isnan(sensitivity_ends(m, table, least - 0.01, ends)).all()
    assert sensitivity_ends(m, table, least + 0.05, []).size == 0
    assert groups < 3 or len(ends) * groups * noisy * 4 > 2 * uncertainty_set.WIDE


def test_where_the_solver_gives_up_the_end_is_that_of_any_noise(monkeypatch):
    """A status that says nothing, of both ways of solving: what is told still holds."""
    rng = np.random.default_rng(5)
    q = rng.dirichlet(np.full(24, 1.0)).reshape(2, 3, 4)
    m, C = q.sum(0), q.sum(-1)
    solve = uncertainty_set.milp

    def gives_up(*given, **more):
        found = solve(*given, **more)
        found.status = 4
        return found

    monkeypatch.setattr(uncertainty_set, "milp", gives_up)
    lo, hi = sensitive(m, C, TPR, least_eps(m, C) + 0.05)
    np.testing.assert_allclose((lo, hi), table_bounds(m, C, TPR), atol=1e-12)


@pytest.mark.parametrize(("groups", "noisy"), [(3, 2), (4, 2), (4, 3)])
def test_the_smallest_shares_hold_the_worst_case_of_all_shares_that_may_be(groups: int, noisy: int) -> None:
    """Each group is as small as a linear program makes it, and bounds at other shares lie inside."""
    rng = np.random.default_rng([groups, noisy])
    T = rng.dirichlet(np.ones(noisy), groups)
    share = rng.dirichlet(np.ones(groups))
    cells = rng.dirichlet(np.ones(4), noisy) * (share @ T)[:, None]
    tables = smallest_shares(T, cells.sum(1))
    fits = {"A_eq": T.T, "b_eq": cells.sum(1), "bounds": (0, 1), "method": "highs"}
    known = [linprog(np.eye(groups)[j], **fits).fun for j in range(groups)]

    assert tables.shape == (groups, groups, noisy)
    np.testing.assert_allclose(tables.sum(1), np.broadcast_to(cells.sum(1), (groups, noisy)), atol=1e-12)
    np.testing.assert_allclose([tables[j].sum(1)[j] for j in range(groups)], known, atol=1e-8)
    for ratio in RATIOS.values():
        ends = [table_bounds(cells, table, ratio) for table in tables]
        low, high = np.fmin.reduce([e[0] for e in ends]), np.fmax.reduce([e[1] for e in ends])
        for _ in range(20):
            other = linprog(rng.normal(size=groups), **fits).x * 0.5 + 0.5 * share
            lo, hi = table_bounds(cells, T * other[:, None], ratio)
            assert (low <= lo + 1e-8).all()
            assert (hi <= high + 1e-8).all()
    many = smallest_shares(np.stack([T, T[::-1]]), cells.sum(1))
    np.testing.assert_allclose(many[:, 0], tables, atol=1e-9)
