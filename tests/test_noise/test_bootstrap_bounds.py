"""Limits with sampling error under N3, held against all programs of all draws."""

from __future__ import annotations

import numpy as np
import pytest
from fairfix.noise.added_rows import LOWER, UPPER, with_row
from fairfix.noise.bootstrap_bounds import Draws
from fairfix.noise.bounds import table_bounds
from fairfix.noise.comparisons import quantile
from fairfix.noise.epsilon import sensitivity_bounds
from fairfix.noise.rates import RATIOS, Floats, quotient

DRAWS = 41
LEVEL = 0.05
METRICS = {
    name: RATIOS[name] for name in ("selection_rate", "true_positive_rate", "positive_predictive_value")
}


def draws_of(
    seed: int, groups: int, noisy: int, *, rows: int = 3000, by_label: bool = False, mixed: float = 0.02
) -> tuple[Floats, Floats, Floats]:
    """Return masses, tables and imagined rows of some samples of one world: (R, K, 4), (R, J, K) and (R, K).

    By label tables have shape (R, 2, J, K), and imagined rows (R, 2, K); they are in the columns of tables besides.
    """
    rng = np.random.default_rng(seed)
    cells = rng.dirichlet(np.ones(4), groups) * rng.dirichlet(np.full(groups, 2.0))[:, None]
    recorded = np.array(
        [np.roll(np.append(0.8, np.full(noisy - 1, 0.2 / (noisy - 1))), j) for j in range(groups)]
    )
    off = mixed * rng.uniform(-1, 1, (groups, noisy, 4))
    q = np.maximum(cells[:, None] * (recorded[:, :, None] + off - off.mean(1, keepdims=True)), 0.0)
    q = rng.multinomial(rows, q.ravel() / q.sum(), DRAWS).reshape(DRAWS, *q.shape) / rows
    by = np.stack([q[..., 2:].sum(-1), q[..., :2].sum(-1)], 1)
    tables = by if by_label else q.sum(-1)
    columns = tables.sum(-2)
    imagined = rng.exponential(1.0 / rows, columns.shape) * (columns > 0)
    return q.sum(1), tables * quotient(columns + imagined, columns, 0.0)[..., None, :], imagined


WORLDS = {
    "square": ({"groups": 3, "noisy": 3}, 0.05),
    "more recorded than true groups": ({"groups": 3, "noisy": 4}, 0.05),
    "more true than recorded groups": ({"groups": 4, "noisy": 3}, 0.1),
    "few rows, some draws refuted and some groups empty": ({"groups": 3, "noisy": 3, "rows": 40}, 0.1),
    "groups far apart": ({"groups": 3, "noisy": 3, "rows": 100_000, "mixed": 0.0}, 0.01),
    "by label": ({"groups": 4, "noisy": 4, "by_label": True}, 0.05),
    "by label, few rows": ({"groups": 3, "noisy": 3, "rows": 40, "by_label": True}, 0.2),
    "any noise": ({"groups": 3, "noisy": 3}, 1.0),
}


def data_and_draws(
    seed: int, **settings: float
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats, Floats]]:
    """Return the first sample as the data, without its imagined rows, and the others."""
    masses, tables, imagined = draws_of(seed, **settings)  # type: ignore[arg-type]  # counts and flags
    columns = tables[0].sum(-2)
    table = tables[0] * quotient(columns - imagined[0], columns, 0.0)[..., None, :]
    return (masses[0], table), (masses[1:], tables[1:], imagined[1:])


def low_quantiles(ends: tuple[Floats, Floats]) -> Floats:
    """Return how far out both limits of each group are, shape (2, J): the further, the lower."""
    return np.array([quantile(ends[0], LEVEL), quantile(-ends[1], LEVEL)])


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_limits_are_nearly_those_of_all_programs(world: str) -> None:
    """Where rows are few, the first order is off, but the limits keep to what any noise allows."""
    settings, eps = WORLDS[world]
    data, draws = data_and_draws(1, **settings)
    ours = Draws(data, *draws, eps).ends(METRICS, LEVEL)
    every = [sensitivity_bounds(m, C, METRICS, eps, row) for m, C, row in zip(*draws, strict=True)]
    for name, ratio in METRICS.items():
        found = low_quantiles(ours[name])
        exact = low_quantiles(
            (np.array([one[name][0] for one in every]), np.array([one[name][1] for one in every]))
        )
        rows = settings.get("rows", 3000)
        np.testing.assert_allclose(found, exact, atol=5.0 / np.sqrt(rows) if rows < 3000 else 0.05, rtol=0)
        for side in (LOWER, UPPER):
            cells = with_row(draws[0], draws[2], ratio, side, by_label=draws[1].ndim == 4)
            widest = table_bounds(cells, draws[1], ratio)[side]
            sign = 1.0 if side == LOWER else -1.0
            assert (sign * (ours[name][side] - widest) >= -1e-12)[~np.isnan(widest)].all()


@pytest.mark.parametrize("by_label", [False, True])
def test_influences_are_derivatives(by_label: bool) -> None:
    """Between data and a sample next to it, an end moves as the influence of masses, table and noise says."""
    (mass, table), (masses, tables, _) = data_and_draws(2, groups=3, noisy=3, rows=100_000, by_label=by_label)
    for step, off in ((1e-2, 2e-4), (1e-3, 2e-6)):
        near = mass + step * (masses - mass), table + step * (tables - table)
        columns = (
            near[0].sum(-1)
            if not by_label
            else np.stack([near[0][..., c].sum(-1) for c in ([2, 3], [0, 1])], 1)
        )
        fitted = near[1] * (columns / near[1].sum(-2))[..., None, :]
        none = np.zeros(columns.shape)
        ours = Draws((mass, table), near[0], fitted, none, 0.05).ends(METRICS, LEVEL)
        for draw in range(3):
            exact = sensitivity_bounds(near[0][draw], fitted[draw], METRICS, 0.05)
            for name in METRICS:
                for side in (LOWER, UPPER):
                    np.testing.assert_allclose(ours[name][side][draw], exact[name][side], atol=off)


def test_groups_alike_have_limits_of_some_width() -> None:
    """All rows of each recorded group are accepted, and yet the next one may not be."""
    mass = np.array([[0.3, 0.0, 0.2, 0.0], [0.25, 0.0, 0.25, 0.0]])
    table = np.array([[0.45, 0.05], [0.05, 0.45]])
    imagined = np.full((200, 2), 0.01)
    whole = mass.sum(1) + 0.01
    draws = (
        np.broadcast_to(mass, (200, 2, 4)),
        np.broadcast_to(table * whole / mass.sum(1), (200, 2, 2)),
        imagined,
    )
    low, high = Draws((mass, table), *draws, 0.05).ends({"s": RATIOS["selection_rate"]}, LEVEL)["s"]
    assert (low < 1.0 - 0.01).all()
    assert (high == 1.0).all()
