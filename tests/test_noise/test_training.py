"""Training against exact worst cases: worst weights against linear programs, gradients, criteria, determinism."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fairfix.noise import training as noisy_training
from fairfix.noise.bounds import tv_bounds, valid_radius
from fairfix.noise.rates import DEMANDS, LABELS, RATIOS, flipped
from fairfix.noise.training import (
    AnyTable,
    NoisyRows,
    TableInterval,
    TotalVariationBalls,
    costs_of,
    excess_of,
    surrogate,
    train,
)
from scipy import sparse

from tests.test_noise.programs import CELLS, Joint

RATES = ("selection_rate", "true_positive_rate", "false_positive_rate")
PARITIES = [name for name in DEMANDS if name != "minimax"]


def masses(seed: int, groups: int = 3, true: int = 3) -> np.ndarray:
    """Return joint masses of true groups, noisy groups and cells, some of them empty."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(true * groups * 4, 0.4)).reshape(true, groups, 4)
    q[rng.random(q.shape) < 0.15] = 0.0
    q[np.arange(min(true, groups)), np.arange(min(true, groups))] += 0.05
    if seed % 3 == 0:
        q[:, seed % groups, seed % 4] = 0.0
    return q / q.sum()


def by_label(q: np.ndarray) -> np.ndarray:
    """Return the table by label."""
    return np.stack([q[:, :, 2:].sum(2), q[:, :, :2].sum(2)])


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (2, 4), (4, 2)])
def test_worst_weights_have_the_lowest_rate_that_there_is(name: str, shape: tuple[int, int]) -> None:
    """By a table, by label or not, and in a ball: weights of rows that the rate is about, and that there are."""
    rng, (true, groups) = np.random.default_rng(1), shape
    for seed, ratio in itertools.product(range(6), (RATIOS[name], flipped(RATIOS[name]))):
        q = masses(seed, groups, true)
        m, radius, home = q.sum(0), rng.choice([0.0, 0.05, 0.3, 0.9], true), rng.integers(0, groups, true)
        for adversary in (
            TableInterval(q.sum(2)),
            TableInterval(by_label(q)),
            TotalVariationBalls(radius, home),
        ):
            r, low = adversary.shares(m, ratio), adversary.bounds(m, ratio)[0]
            known = ~np.isnan(low)
            assert np.isnan(r[~known]).all()
            assert (r[known] >= 0).all()
            np.testing.assert_allclose(r[known].sum((1, 2)), 1.0)
            assert not r[known][:, :, ~np.array(ratio.rows)].any()
            assert not r[known][:, m == 0].any()
            np.testing.assert_allclose(r[known][:, :, ratio.a].sum((1, 2)), low[known], atol=1e-12)


def people(seed: int = 0, many: int = 900) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels, true and noisy groups."""
    rng = np.random.default_rng(seed)
    true = rng.choice(3, many, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(many, 4)) - 0.5 * true[:, None] * np.array([1.0, 0.5, 0.0, 0.0])
    y = (rng.random(many) < 1 / (1 + np.exp(-2 * X[:, 0] - X[:, 2]))).astype(np.int64)
    noisy = np.where(rng.random(many) < 0.05, rng.integers(0, 3, many), true)
    return X, y, true, noisy


def tables(y: np.ndarray, true: np.ndarray, noisy: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the joint masses by label."""
    out = np.zeros((2, 3, 3))
    np.add.at(out, (y, true, noisy), w / w.sum())
    return out


def adversaries(C: np.ndarray) -> dict[str, TotalVariationBalls | TableInterval | AnyTable]:
    """Return all that there are."""
    plain = C.sum(0)
    either = AnyTable((TableInterval(C), TableInterval(C[:, ::-1])))  # of the same recorded groups
    return {
        "dro": TotalVariationBalls(valid_radius(plain), np.arange(len(plain))),
        "soft": TableInterval(plain),
        "labels": TableInterval(C),
        "either": either,
    }


@pytest.mark.parametrize("kind", ["dro", "soft", "labels", "either"])
@pytest.mark.parametrize("parity", PARITIES)
def test_costs_are_the_lagrangian_and_the_surrogate_lies_above_it(parity: str, kind: str) -> None:
    """At the decisions that the weights are for, costs give the error and the exact excesses."""
    X, y, true, noisy = people()
    w = np.random.default_rng(2).integers(1, 4, y.size).astype(float)
    adversary = adversaries(tables(y, true, noisy, w))[kind]
    rows = NoisyRows.of(X, y, noisy, w, 3)
    v = np.array([1.0, 0.3, 0.5, -0.2, 0.1])
    accept = rows.A @ v >= 0
    cells = rows.cells(accept)
    g = excess_of(cells, adversary, parity, 0.0)
    prices = np.random.default_rng(3).random(g.shape)
    costs = 1 - 2 * rows.y + costs_of(cells, adversary, parity, prices).ravel()[rows.places(accept)]
    lagrangian = rows.weight @ rows.y + (rows.weight * costs) @ accept

    error = rows.weight @ (accept != rows.y)
    assert lagrangian == pytest.approx(error + (prices * g).sum(), abs=1e-12)
    assert surrogate(rows, v, costs, 0.0)[0] >= lagrangian


def test_the_gradient_is_that_of_finite_differences() -> None:
    """With weights held fixed; kinks are missed with certainty for all practical purposes."""
    X, y, true, noisy = people()
    adversary = adversaries(tables(y, true, noisy, np.ones(y.size)))["labels"]
    rows = NoisyRows.of(X, y, noisy, None, 3)
    v = np.array([0.4, -0.3, 0.5, 0.2, 0.1])
    accept = rows.A @ v >= 0
    cells = rows.cells(accept)
    extra = costs_of(cells, adversary, "one_sided_equalized_odds", np.full((2, 3), 0.2))
    costs = 1 - 2 * rows.y + extra.ravel()[rows.places(accept)]
    slope = surrogate(rows, v, costs, 0.01)[1]
    h = 1e-7
    for i, step in enumerate(np.eye(5) * h):
        ahead, behind = (surrogate(rows, v + sign * step, costs, 0.01)[0] for sign in (1, -1))
        assert (ahead - behind) / (2 * h) == pytest.approx(slope[i], abs=1e-6)


def worst_by_hand(
    parity: str, kind: str, y: np.ndarray, noisy: np.ndarray, w: np.ndarray, accept: np.ndarray, C: np.ndarray
) -> float:
    """Return the largest excess over 0 slack, from rows, by linear programs or the ball's formula."""
    m = np.zeros((3, 4))
    np.add.at(m, (noisy, np.where(y == 1, 1 - accept, 3 - accept)), w / w.sum())
    out = []
    for rate, sign in DEMANDS[parity]:
        own = np.isin(y, LABELS[rate])
        overall = np.average(accept[own], weights=w[own])
        a, rows = (np.array(mask, dtype=float)[CELLS] for mask in (RATIOS[rate].a, RATIOS[rate].rows))
        joint = Joint(m[:, CELLS], C if kind == "labels" else C.sum(0))
        for j in range(3):
            if kind == "dro":
                ends = tuple(part[j] for part in tv_bounds(m, valid_radius(C.sum(0)), RATIOS[rate]))
            else:
                ends = joint.range_of(j, a, rows)
            out.append(sign * (overall - ends[0 if sign > 0 else 1]))
    return max(out)


@pytest.mark.parametrize("kind", ["dro", "soft", "labels"])
@pytest.mark.parametrize("parity", PARITIES)
def test_the_rule_that_is_returned_is_within_the_constraint_by_another_hand(parity: str, kind: str) -> None:
    """Rate by rate from the rows; what is said of error and excess is so, and the true groups are within too."""
    X, y, true, noisy = people()
    w = np.random.default_rng(2).integers(0, 4, y.size).astype(float)
    C = tables(y, true, noisy, w)
    slack = 0.25
    found = train(X, y, noisy, w, 3, adversaries(C)[kind], parity, slack, steps=60)
    accept = (X @ found.coef + found.intercept >= 0).astype(np.int64)

    by_hand = worst_by_hand(parity, kind, y, noisy, w, accept, C)
    assert found.feasible
    assert by_hand <= slack + 1e-9
    assert np.nanmax(found.excess) == pytest.approx(by_hand - slack, abs=1e-8)
    assert found.error == pytest.approx(np.average(accept != y, weights=w), abs=1e-12)
    for rate, sign in DEMANDS[parity]:
        own = np.isin(y, LABELS[rate]) & (w > 0)
        overall = np.average(accept[own], weights=w[own])
        for j in range(3):
            inside = own & (true == j)
            assert sign * (overall - np.average(accept[inside], weights=w[inside])) <= slack + 1e-9


def test_labels_in_the_table_buy_accuracy() -> None:
    """The weaker the description, the dearer; a constraint that asks nothing costs nothing."""
    X, y, true, noisy = people(many=1200)
    C = tables(y, true, noisy, np.ones(y.size))
    errors = {
        kind: train(X, y, noisy, None, 3, adversary, "equal_opportunity", 0.1, steps=100).error
        for kind, adversary in adversaries(C).items()
    }
    free = train(X, y, noisy, None, 3, TableInterval(C), "equal_opportunity", 1.0, steps=100)

    assert errors["labels"] < errors["soft"] <= min(y.mean(), 1 - y.mean()) + 1e-12
    assert errors["labels"] < errors["dro"] <= min(y.mean(), 1 - y.mean()) + 1e-12
    assert free.error <= errors["labels"]
    assert not free.constant


def test_the_same_rows_give_the_same_bits_and_rows_without_weight_have_no_part() -> None:
    """Nothing is drawn."""
    X, y, true, noisy = people()
    C = tables(y, true, noisy, np.ones(y.size))
    one, two = (
        train(X, y, noisy, None, 3, TableInterval(C), "equalized_odds", 0.1, steps=40) for _ in range(2)
    )
    more = [np.r_[part, part[:50]] for part in (X, y, noisy)]
    three = train(
        more[0],
        more[1],
        more[2],
        np.r_[np.ones(y.size), np.zeros(50)],
        3,
        TableInterval(C),
        "equalized_odds",
        0.1,
        steps=40,
    )

    for other in (two, three):
        assert one.coef.tobytes() == other.coef.tobytes()
        assert one.intercept == other.intercept


def test_what_cannot_be_satisfied_is_said() -> None:
    """A slack below 0, for rates that a constant rule has equal: the least miss is that of a constant rule."""
    X, y, true, noisy = people()
    C = tables(y, true, noisy, np.ones(y.size))
    found = train(X, y, noisy, None, 3, TableInterval(C), "demographic_parity", -0.01, steps=20)

    assert not found.feasible
    assert np.nanmax(found.excess) == pytest.approx(0.01)
    assert found.constant
    with pytest.raises(ValueError, match="no row with a label"):
        train(X, np.zeros_like(y), noisy, None, 3, TableInterval(C), "equal_opportunity", 0.1)


def test_indicators_are_kept_sparse_and_give_what_full_matrices_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Same decisions and the same gradient, by either kind of matrix."""
    rng = np.random.default_rng(4)
    X = np.eye(12)[rng.integers(0, 12, 400)]
    y, codes = (rng.random(400) < 0.2 + 0.05 * X.argmax(1)).astype(np.int64), rng.integers(0, 2, 400)
    table = np.diag(np.bincount(codes) / 400) * 0.9 + np.bincount(codes)[None, :] / 8000
    found = []
    for share in (noisy_training.SPARSE, 0.0):
        monkeypatch.setattr(noisy_training, "SPARSE", share)
        rows = NoisyRows.of(X, y, codes, None, 2)
        assert sparse.issparse(rows.A) == (share > 0)
        value = surrogate(rows, np.linspace(-1, 1, 13), y - 0.5, 0.1)
        rule = train(X, y, codes, None, 2, TableInterval(table), "demographic_parity", 0.1, steps=40)
        found.append((value, X @ rule.coef + rule.intercept >= 0, rule.error))
    (one, decided, error), (other, same, again) = found
    assert one[0] == pytest.approx(other[0], rel=1e-12)
    np.testing.assert_allclose(one[1], other[1], atol=1e-12)
    np.testing.assert_array_equal(decided, same)
    assert error == pytest.approx(again)
    assert 0 < decided.mean() < 1
