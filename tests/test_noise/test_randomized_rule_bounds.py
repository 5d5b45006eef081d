"""Bounds of drawn decisions behind noise, against linear programs over the masses of levels."""

from __future__ import annotations

import numpy as np
import pytest
from fairfix.noise.randomized_rule_bounds import level_bounds
from fairfix.noise.rates import LABELS

from tests.strategies import examples
from tests.test_noise.programs import Joint


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return joint masses q (J, K, I, 2) and chances F (K, I); some masses are almost nothing, some chances tie."""
    rng = np.random.default_rng(seed)
    groups, noisy, levels = (int(n) for n in rng.integers((2, 2, 1), (5, 4, 5)))
    q = rng.dirichlet(np.full(groups * noisy * levels * 2, rng.choice([0.2, 1.0])))
    return q.reshape(groups, noisy, levels, 2), rng.choice([0.0, 0.3, 0.5, 0.8, 1.0], (noisy, levels))


@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize("rate", list(LABELS))
def test_bounds_are_those_of_linear_programs(rate: str, by_label: bool) -> None:
    """Over all joint masses of all groups, by level and label, with the denominator scaled to 1."""
    for seed in range(examples(12)):
        q, F = drawn(seed)
        n, groups = q.sum(0), len(q)
        C = np.moveaxis(q.sum(2), -1, 0) if by_label else q.sum((2, 3))
        value = np.stack([1 - F if rate == "accuracy" else F, F], -1)
        about = np.isin([0, 1], LABELS[rate])
        lo, hi = level_bounds(n, C, F, rate)
        for j in range(groups):
            np.testing.assert_allclose((lo[j], hi[j]), Joint(n, C).range_of(j, value, about), atol=1e-7)
        truth = (q * value * about).sum((1, 2, 3)) / (q * about).sum((1, 2, 3))
        assert (lo - 1e-12 <= truth).all()
        assert (truth <= hi + 1e-12).all()


def test_replicates_are_what_each_gives_alone_and_nothing_is_no_rate() -> None:
    """Leading axes; a group without mass has NaN."""
    rng = np.random.default_rng(0)
    q = rng.dirichlet(np.ones(48), 3).reshape(3, 2, 2, 6, 2)
    F = rng.random((2, 6))
    for table in (q.sum((3, 4)), np.moveaxis(q.sum(3), -1, 1)):
        lo, hi = level_bounds(q.sum(1), table, F, "true_positive_rate")
        for i in range(3):
            np.testing.assert_allclose(
                (lo[i], hi[i]), level_bounds(q[i].sum(0), table[i], F, "true_positive_rate"), atol=1e-12
            )
    q[0, 1] = 0.0
    lo, hi = level_bounds(q[0].sum(0), q[0].sum((2, 3)), F, "selection_rate")
    assert np.isnan(lo[1])
    assert np.isnan(hi[1])
    assert lo[0] == pytest.approx(hi[0])
