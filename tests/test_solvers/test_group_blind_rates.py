"""Equal rates by rules that do not see groups, against linear programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.solvers.group_blind_rates import WeightedSample, equal_rates, held_rates
from scipy.optimize import linprog

Floats = npt.NDArray[np.float64]

Groups = list[tuple[Floats, Floats]]


def chances(seed: int, rows: int, sizes: tuple[int, ...]) -> tuple[Floats, Groups]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))

    def softmax(form: Floats) -> Floats:
        out = np.exp(form)
        return np.asarray(out / out.sum(axis=1, keepdims=True))

    groups = [(softmax(x @ rng.normal(size=(3, k))), softmax(x @ rng.normal(size=(3, k)))) for k in sizes]
    return 1 / (1 + np.exp(-x @ [1.0, 0.5, 0.3] + 0.8)), groups


def gaps_by_hand(p: Floats, groups: Groups, share: Floats) -> tuple[Floats, Floats]:
    """Return the gain of accepting each row, and what it adds to each gap, from their definitions."""
    columns = []
    for g1, g0 in groups:
        for q, g in ((p, g1), (1 - p, g0)):
            for k in range(g.shape[1]):
                cell = share * q * g[:, k]
                columns.append(cell / cell.sum() - share * q / (share @ q))
    return 0.5 * share * (p / (share @ p) - (1 - p) / (share @ (1 - p))), np.array(columns)


@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.1, 1.0])
@pytest.mark.parametrize("sizes", [(2,), (2, 3), (4,)])
def test_equal_rates_are_the_linear_program(sizes: tuple[int, ...], tolerance: float) -> None:
    p, groups = chances(1, 2000, sizes)
    weight = np.random.default_rng(0).uniform(0.5, 1.5, 2000)
    found = equal_rates(p, groups, tolerance=tolerance, weight=weight)
    share = weight / weight.sum()
    gain, gaps = gaps_by_hand(p, groups, share)
    room = np.full(2 * len(gaps), tolerance)
    program: Any = linprog(-gain, np.concatenate([gaps, -gaps]), room, bounds=(0, 1), method="highs")
    best = 0.5 - program.fun

    assert found.converged
    assert found.value == pytest.approx(best, abs=1e-6)
    assert found.bound >= best - 1e-9
    assert found.bound == pytest.approx(best, abs=1e-6)
    c = found.score(p, groups)
    assert np.abs(gaps @ (c > 0)).max() <= tolerance + 5e-3  # as many rows as constraints may lie on the edge
    assert 0.5 + gain @ (c > 0) == pytest.approx(best, abs=2e-3)
    assert (found.mu[0][0].shape, found.mu[0][1].shape) == ((sizes[0],), (sizes[0],))
    mu = np.concatenate([part for pair in found.mu for part in pair])
    dual = 0.5 + share @ np.maximum(c, 0) + tolerance * np.abs(mu).sum()
    assert dual == pytest.approx(found.bound, abs=1e-12)


@pytest.mark.parametrize("slack", [0.0, 0.02, 0.1, 1.0])
def test_rates_held_on_rows_are_the_linear_program_over_kinds_of_rows(slack: float) -> None:
    """Where chances are the frequencies of few kinds of rows, none of the kinds do better, and both sides hold."""
    rng = np.random.default_rng(3)
    many = rng.multinomial(900, rng.dirichlet(np.ones(7 * 2 * 3))) + 1
    kind, label, code = (np.repeat(at, many) for at in np.indices((7, 2, 3)).reshape(3, -1))
    counts = many.reshape(7, 2, 3)
    p = (counts[:, 1].sum(1) / counts.sum((1, 2)))[kind]
    groups = [tuple((counts[:, y] / counts[:, y].sum(1, keepdims=True))[kind] for y in (1, 0))]
    known = WeightedSample(label.astype(float), (code,), np.full(code.size, 1 / code.size))
    found = held_rates(equal_rates(p, groups, tolerance=slack), [(p, groups)], known, slack).mixture
    accepted = found.chance(p, groups)

    # a chance for each kind; rates given the label by group, and of everybody
    everybody = counts.sum(2) / counts.sum((0, 2))
    gaps = np.concatenate([(counts[:, y] / counts[:, y].sum(0)).T - everybody[:, y] for y in (1, 0)])
    gain = (everybody[:, 1] - everybody[:, 0]) / 2
    room = np.full(2 * len(gaps), slack)
    best: Any = linprog(-gain, np.concatenate([gaps, -gaps]), room, bounds=(0, 1), method="highs")
    shown = np.array([accepted[kind == k].mean() for k in range(7)])

    assert np.abs(gaps @ shown).max() <= slack + 1e-6
    assert gain @ shown == pytest.approx(-best.fun, abs=1.1e-3)  # a rule without draws may cost a thousandth


def test_without_groups_or_with_room_it_is_the_plain_rule() -> None:
    p, groups = chances(2, 500, (2,))
    plain = equal_rates(p, [], tolerance=0.1)
    loose = equal_rates(p, groups, tolerance=2.0)

    assert plain.mu == ()
    assert ((plain.score(p, []) > 0) == (p > p.mean())).all()
    assert ((loose.score(p, groups) > 0) == (p > p.mean())).all()
    assert plain.value == pytest.approx(loose.value, abs=1e-7)


def test_equal_rates_keep_their_invariances() -> None:
    """Order of rows, scale of weights, names of groups, a group nobody is in."""
    p, groups = chances(3, 800, (3,))
    one = equal_rates(p, groups, tolerance=0.02)
    order = np.random.default_rng(0).permutation(800)
    turned = equal_rates(p[order], [(g[order], h[order]) for g, h in groups], tolerance=0.02)
    renamed = equal_rates(p, [(g[:, ::-1], h[:, ::-1]) for g, h in groups], tolerance=0.02)
    more = [(np.column_stack([g, 0 * p]), np.column_stack([h, 0 * p])) for g, h in groups]
    empty = equal_rates(p, more, tolerance=0.02)

    for other in (turned, renamed, empty, equal_rates(p, groups, tolerance=0.02, weight=np.full(800, 3.0))):
        assert other.value == pytest.approx(one.value, abs=1e-7)
        assert other.bound == pytest.approx(one.bound, abs=1e-7)
    assert one.value < equal_rates(p, groups, tolerance=0.05).value - 1e-3
    assert empty.mu[0][0][3] == pytest.approx(0.0, abs=1e-6)


def test_two_groups_differ_by_what_the_docstring_says() -> None:
    p, groups = chances(4, 3000, (2,))
    found = equal_rates(p, groups, tolerance=0.03)
    accept = found.score(p, groups) > 0
    for q, g in ((p, groups[0][0]), (1 - p, groups[0][1])):
        cells = q @ g
        rates = (q * accept) @ g / cells
        assert abs(rates[0] - rates[1]) <= 0.03 / (cells.max() / cells.sum()) + 5e-3


def test_degenerate_chances() -> None:
    """Few values of x: the randomised decision keeps the tolerance; what has no answer is refused."""
    same = equal_rates(np.full(10, 0.3), [(np.full((10, 2), 0.5),) * 2], tolerance=0.01)
    assert same.converged
    assert same.value == pytest.approx(0.5, abs=1e-8)
    known = np.column_stack([[1.0, 1, 0, 0], [0.0, 0, 1, 1]])
    exact = equal_rates(np.array([0.0, 1.0, 0.0, 1.0]), [(known, known)], tolerance=0.0)
    assert exact.value == pytest.approx(1.0, abs=1e-6)
    two = np.repeat([[0.9, 0.1], [0.2, 0.8]], 50, axis=0)
    tied = equal_rates(np.repeat([0.2, 0.8], 50), [(two, two)], tolerance=0.01)
    assert tied.converged
    assert tied.value == pytest.approx(tied.bound, abs=1e-6)
    with pytest.raises(ValueError, match="all 0"):
        equal_rates(np.zeros(5), [], tolerance=0.1)
    with pytest.raises(ValueError, match="tolerance"):
        equal_rates(np.full(5, 0.5), [], tolerance=-0.1)
