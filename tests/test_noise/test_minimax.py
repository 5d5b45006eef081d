"""Minimax: the least largest error rate of a true group, against a cutting plane over whole joint distributions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.noise.score_bin_bounds import (
    Assumption,
    BoundedDependence,
    ClassConditional,
    KnownMembership,
    KnownTable,
    KnownTableByLabel,
    TotalVariation,
    rate_bounds,
)
from fairfix.noise.thresholds import solve_noisy

from tests.test_noise.programs import Cut, Joint, least_by_cuts
from tests.test_noise.test_thresholds import draw, seen

Floats = npt.NDArray[np.float64]


def least_largest_error(n: Floats, table: Floats) -> float:
    """Return the least largest error over nondecreasing F, by cuts at the worst joint masses of every group."""
    joint, size = Joint(n, table), table.sum(-1) if table.ndim == 2 else table.sum((0, 2))

    def cuts(x: Floats) -> Iterator[Cut]:
        F = x[:-1].reshape(n.shape[:2])
        for j in range(len(size)):
            cost = np.zeros((len(size), *n.shape))
            cost[j] = -np.stack([F, 1.0 - F], -1)
            worst = joint.least(cost)
            assert worst is not None
            q = worst[j] / size[j]
            yield np.append((q[..., 0] - q[..., 1]).ravel(), -1.0), -float(q[..., 1].sum())

    goal = np.append(np.zeros(n[..., 0].size), 1.0)
    return float(least_by_cuts(goal, (n.shape[0], n.shape[1]), cuts).fun)


@pytest.mark.parametrize("seed", range(6))
def test_the_largest_error_is_the_least_there_is(seed: int) -> None:
    """By the table, by label or not: what is found is what a cutting plane over all joint distributions finds."""
    n, _, by_label = seen(draw(seed, 2, 3, 4))
    cases: list[tuple[Floats, Assumption]] = [
        (by_label, KnownTableByLabel()),
        (by_label.sum(0), KnownTable()),
        (by_label, BoundedDependence(1.0)),
    ]
    for table, assumption in cases:
        found = solve_noisy(n, table, "minimax", 0.0, assumption)
        least = least_largest_error(n, table)

        assert found.largest_error == pytest.approx(least, abs=1e-6)
        assert found.least_largest_error == pytest.approx(least, abs=1e-6)
        assert found.violation <= 1e-6
        assert found.converged


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("blind", [True, False])
def test_what_is_found_holds_under_every_assumption(seed: int, blind: bool) -> None:
    """Worst rates of the rule are the errors that are told; weaker assumptions and fewer rules make them larger."""
    n, _, by_label = seen(draw(seed, 3, 3, 5))
    rules = [0, 0, 0] if blind else None
    cases: list[tuple[Floats, Assumption]] = [
        (np.full(3, 0.1), TotalVariation()),
        (by_label.sum(0), KnownTable()),
        (by_label, KnownTableByLabel()),
        (by_label, BoundedDependence(0.6)),
        (by_label, ClassConditional(0.0)),
        (by_label, ClassConditional(1.0, 2000.0)),
    ]
    errors = []
    for table, assumption in cases:
        found = solve_noisy(n, table, "minimax", 0.0, assumption, rules=rules)
        low, _ = rate_bounds(n, table, found.F, "accuracy", assumption)
        free = solve_noisy(n, table, "minimax", 0.0, assumption)
        errors.append(found.largest_error)

        assert 1.0 - low.min() == pytest.approx(found.largest_error, abs=2e-6)
        assert (np.diff(found.F, axis=1) >= 0).all()
        assert found.largest_error >= free.largest_error - 1e-6
        if blind:
            assert (found.F[0] == found.F).all()
    soft, certified, eps = errors[1:4]
    assert soft >= certified - 1e-6
    assert certified >= eps - 1e-6
    assert errors[5] >= errors[4] - 1e-6  # a margin costs


@pytest.mark.parametrize("seed", range(3))
def test_without_noise_it_is_the_minimax_of_the_recorded_groups(seed: int) -> None:
    """Where recorded groups are true, all assumptions come to the program of known groups."""
    n, *_ = seen(draw(seed, 1, 3, 6))
    diagonal = np.stack([np.diag(n[:, :, y].sum(1)) for y in (0, 1)])
    least = least_largest_error(n, diagonal)
    cases: list[tuple[Any, Assumption]] = [
        (diagonal, KnownTableByLabel()),
        (diagonal.sum(0), KnownTable()),
        (np.zeros(3), TotalVariation()),
        (diagonal, ClassConditional(0.0)),
        (diagonal.sum(0), ClassConditional(0.0)),
        (np.stack([np.eye(3)[:, :, None, None] * n] * 2), KnownMembership(0.0)),
    ]
    for table, assumption in cases:
        assert solve_noisy(n, table, "minimax", 0.0, assumption).largest_error == pytest.approx(
            least, abs=1e-6
        )


def test_of_all_rules_of_least_largest_error_the_least_error_is_taken() -> None:
    """A group that is far from the largest error is decided as well as it can be."""
    n = np.zeros((2, 2, 2))
    n[0] = [[0.15, 0.1], [0.1, 0.15]]  # hard to tell
    n[1] = [[0.25, 0.0], [0.0, 0.25]]  # easy
    found = solve_noisy(
        n, np.stack([np.diag(n[:, :, y].sum(1)) for y in (0, 1)]), "minimax", 0.0, KnownTableByLabel()
    )

    assert found.largest_error == pytest.approx(0.4)
    assert found.error == pytest.approx(0.2, abs=1e-6)
    np.testing.assert_allclose(found.F[1], [0.0, 1.0], atol=1e-6)
