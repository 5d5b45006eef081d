"""Equal rates by rules that do not see groups, against linear programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.solvers.group_blind_rates import GroupBlindRule, WeightedSample, held_rates
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
    found = held_rates(GroupBlindRule.of(p, groups), [(p, groups)], known, slack)[0]
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


def test_a_price_moves_the_best_decision_as_its_constraint_says() -> None:
    """By chances no decision has more balanced accuracy plus priced gaps than the rule of these prices."""
    p, groups = chances(1, 500, (2, 3))
    weight = np.random.default_rng(0).uniform(0.5, 1.5, 500)
    share = weight / weight.sum()
    gain = 0.5 * share * (p / (share @ p) - (1 - p) / (share @ (1 - p)))
    gaps = []
    for g1, g0 in groups:
        for q, g in ((p, g1), (1 - p, g0)):
            cells = (share * q)[:, None] * g
            gaps += list((cells / cells.sum(axis=0) - (share * q / (share @ q))[:, None]).T)
    mu = np.random.default_rng(1).normal(size=len(gaps))
    score = GroupBlindRule.of(p, groups, weight).priced(mu).score(p, groups)

    np.testing.assert_allclose(share * score, gain + mu @ np.array(gaps), atol=1e-12)


def test_with_room_it_is_the_plain_rule() -> None:
    p, groups = chances(2, 500, (2,))
    y = (p > np.random.default_rng(0).random(500)).astype(float)
    rows = WeightedSample(y, ((groups[0][0][:, 1] > 0.5).astype(int),), np.full(500, 0.002))
    found = held_rates(GroupBlindRule.of(p, groups), [(p, groups)], rows, 2.0)[0]

    assert ((found.chance(p, groups) > 0) == (p > p.mean())).all()


def test_rules_keep_their_invariances() -> None:
    """Scale of weights, names of groups, a group nobody is in."""
    p, groups = chances(3, 800, (3,))
    mu = np.array([0.1, -0.2, 0.3, 0.2, 0.1, -0.3])
    one = GroupBlindRule.of(p, groups).priced(mu).score(p, groups)
    names = [(g[:, ::-1], h[:, ::-1]) for g, h in groups]
    more = [(np.column_stack([g, 0 * p]), np.column_stack([h, 0 * p])) for g, h in groups]

    for rule, given, prices in (
        (GroupBlindRule.of(p, names), names, np.concatenate([mu[2::-1], mu[:2:-1]])),
        (GroupBlindRule.of(p, more), more, np.insert(mu, [3, 6], 5.0)),
        (GroupBlindRule.of(p, groups, np.full(800, 3.0)), groups, mu),
    ):
        np.testing.assert_allclose(rule.priced(prices).score(p, given), one, atol=1e-12)


def test_chances_of_one_label_alone_are_refused() -> None:
    with pytest.raises(ValueError, match="all 0"):
        GroupBlindRule.of(np.zeros(5), [])
