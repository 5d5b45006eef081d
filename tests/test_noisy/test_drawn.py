"""Limits with sampling error under N3, held against all programs of all draws."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from fairfix.noisy import drawn
from fairfix.noisy.comparisons import RateBounds, comparisons_of
from fairfix.noisy.drawn import DrawnBounds, DrawnEnds
from fairfix.noisy.epsilon import sensitivity_bounds
from fairfix.noisy.polytope import Optimum
from fairfix.noisy.rates import RATIOS, Floats, Ratio, quotient

DRAWS = 9
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


def both(
    masses: Floats, tables: Floats, imagined: Floats, eps: float, alpha: float, metrics: Mapping[str, Ratio]
) -> tuple[DrawnBounds, RateBounds]:
    """Return bounds whose draws are solved where limits hang on them, and bounds with all of them solved."""
    rates = sensitivity_bounds(masses[0], tables[0], metrics, max(eps, 0.2), imagined[0])
    draws = zip(masses, tables, imagined, strict=True)
    ends = [sensitivity_bounds(m, C, metrics, eps, row) for m, C, row in draws]
    every = {name: tuple(np.array([one[name][side] for one in ends]) for side in (0, 1)) for name in metrics}
    return (
        DrawnBounds(rates, DrawnEnds(masses, tables, metrics, eps, imagined), alpha),
        RateBounds(rates, every, alpha),  # type: ignore[arg-type]  # pairs
    )


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


@pytest.mark.parametrize("world", WORLDS)
def test_limits_are_those_of_all_programs(world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "SMALL", 0)
    settings, eps = WORLDS[world]
    for seed in range(2):
        drawn_rows = draws_of(seed, **settings)  # type: ignore[arg-type]  # counts and flags
        alpha = (0.05, 0.5)[seed % 2]  # on the two lowest draws, and on the four
        ours, every = both(*drawn_rows, eps, alpha, METRICS)
        for kind, _, rates in comparisons_of(METRICS):
            found, held = (bounds.of_comparison(kind, rates) for bounds in (ours, every))
            for end in ("low", "high", "outer_low", "outer_high"):
                assert getattr(found, end) == pytest.approx(getattr(held, end), abs=1e-7, nan_ok=True), (
                    kind,
                    rates,
                )
        for name in METRICS:
            for found, held in zip(ours.of_groups(name), every.of_groups(name), strict=True):
                assert found.outer_low == pytest.approx(held.outer_low, abs=1e-7, nan_ok=True)
                assert found.outer_high == pytest.approx(held.outer_high, abs=1e-7, nan_ok=True)
        for name in METRICS:  # whoever looks at the draws gets all of them
            np.testing.assert_allclose(ours.draws[name], every.draws[name], atol=1e-7)


@pytest.mark.parametrize("by_label", [False, True])
def test_any_multipliers_bound_the_ends_of_all_draws(by_label: bool) -> None:
    """Also those of no program: they bound badly, and never wrongly."""
    masses, tables, imagined = draws_of(5, 3, 4, by_label=by_label)
    if by_label:
        masses, tables, imagined = masses[..., :2], tables[:, 1], imagined[:, 1]
    tops = np.eye(masses.shape[-1])[:1]
    rows = np.array([[1.0, 1.0, 0.0, 0.0]])[:, : masses.shape[-1]]
    exact, ours = (drawn._Programs(masses, tables, 0.05, tops, rows, imagined) for _ in range(2))
    assert not exact.solve(np.ones_like(exact.low, dtype=bool))
    np.testing.assert_allclose(exact.low, exact.high, atol=1e-9)
    rng = np.random.default_rng(0)
    for scale in (0.0, 0.01, 0.1, 1.0):
        for side in (0, 1):
            u, w = (
                rng.normal(0, scale, masses.shape[1:]),
                rng.exponential(scale, (2, *tables.shape[1:], len(tops[0]))),
            )
            ours._bound(0, side, 1, Optimum(0.0, np.zeros(0), (u,), (w,)))
            assert (ours.low <= exact.low + 1e-7).all()


def test_few_programs_are_solved() -> None:
    masses, tables, imagined = draws_of(2, 5, 5)
    ours = DrawnEnds(masses, tables, {"selection_rate": RATIOS["selection_rate"]}, 0.05, imagined)
    ours.settled_groups("selection_rate", 0.025)
    ours.settled("difference", ["selection_rate"], 0.025, 0.0)
    assert 2 * 2 * 5 <= ours.programs < DRAWS * 2 * 5 * 0.7
