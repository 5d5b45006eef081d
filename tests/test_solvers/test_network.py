"""Networks that variants hardly change: gradients, plans, bounds and training."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.solvers.arrays import distinct_rows
from fairfix.solvers.network import Network, RowVariants
from fairfix.solvers.network_fit import Adam, Moved, Trainer, fit_network
from fairfix.solvers.relu_change_bounds import Ascent, _bends, _steepest, free_steps, network_regularizer
from fairfix.solvers.transport import regularizer_empirical
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from tests.strategies import examples
from tests.test_solvers.moves import Listed, data, flips_of, none_for

Floats = npt.NDArray[np.float64]


# ---------------------------------------------------------------------- network


def small_network(seed: int, d: int = 5, hidden: int = 4, scale: float = 1.0, logits: int = 1) -> Network:
    rng = np.random.default_rng(seed)
    first, bias, second = (rng.normal(size=size) for size in ((d, hidden), hidden, (hidden, logits)))
    return Network(scale * first, bias, scale * second, np.linspace(0.3, 0.6, logits))


@pytest.mark.parametrize(("logits", "eps"), [(1, 0.0), (1, 0.3), (3, 0.0)])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_value_and_gradient_are_those_of_the_written_objective(scale: float, logits: int, eps: float) -> None:
    """The gradient is that of finite differences while the moved rows stay where they are."""
    X, y = data(10, 30)
    y = y.astype(np.int64) + (X[:, 3] > 0) * (logits > 1)
    network, share = (
        small_network(0, scale=scale, logits=logits),
        np.random.default_rng(1).dirichlet(np.ones(30)),
    )
    ascent = Ascent.of(X, eps, None, None) if eps else None
    moved = Moved.of(network, X, share, RowVariants.of(X, flips_of(X)).take(np.arange(30)), ascent)
    there = X.copy()
    there[:, moved.columns] += moved.added

    def written(vector: Floats) -> float:
        other = Network.of(vector, (5, 4, logits))
        s, far = (np.maximum(rows @ other.W1 + other.b1, 0) @ other.W2 + other.b2 for rows in (X, there))
        if logits == 1:
            loss = np.logaddexp(0, s[:, 0]) - y * s[:, 0]
        else:
            loss = np.log(np.exp(s).sum(axis=1)) - s[np.arange(30), y]
            s, far = (one - one.mean(axis=1, keepdims=True) for one in (s, far))
        assert (np.abs([s, far]) > 8).any() == (scale > 1)  # both sides of the cut are met
        return float(share @ (loss + 1.7 * ((np.clip(s, -8, 8) - np.clip(far, -8, 8)) ** 2).mean(axis=1)))

    at = network.vector
    assert moved.value(y, share, 1.7) == pytest.approx(written(at), rel=1e-12)
    slopes = [(written(at + step) - written(at - step)) / 2e-6 for step in 1e-6 * np.eye(at.size)]
    assert moved.gradient(y, share, 1.7).vector == pytest.approx(slopes, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("logits", [1, 3])
def test_the_worst_listed_variant_is_found_by_brute_force(logits: int) -> None:
    X, _ = data(11, 50)
    moves, network = flips_of(X), small_network(1, logits=logits)
    sums = network.sums(X)
    s = network.forward(X)[1]
    found = RowVariants.of(X, moves).take(np.arange(50)).worst(network, sums, s)
    others = np.clip([network.forward(one)[1] for one in moves.others], -8, 8)
    changes = ((others - np.clip(s, -8, 8)) ** 2).mean(axis=2)
    assert np.take_along_axis(changes, found[None], 0)[0] == pytest.approx(changes.max(axis=0), abs=1e-12)


def test_the_worst_variant_is_found_by_brute_force() -> None:
    """Without free steps the plan moves each row to its worst variant, and training and bound say the same."""
    X, _ = data(11, 50)
    moves, network, bounds = flips_of(X), small_network(1), np.array([X.min(axis=0), X.max(axis=0)])
    found = network_regularizer(network, X, moves, eps=0.0, bounds=bounds)
    s, there = (np.clip(network.logit(rows), -8, 8) for rows in (X, found.plan.near))
    table = np.clip([network.logit(one) for one in moves.others], -8, 8)
    worst = ((table - s) ** 2).max(axis=0)
    assert (there - s) ** 2 == pytest.approx(worst, abs=1e-12)
    assert (found.plan.near == moves.others).all(axis=2).any(axis=0).all()
    assert found.plan.value == pytest.approx(worst.mean())
    assert found.trained == pytest.approx(worst.mean())
    assert found.upper == pytest.approx(worst.mean())
    still = network_regularizer(network, X, none_for(X), eps=0.0, bounds=bounds)
    assert (still.plan.near == X).all()
    assert still.plan.value == still.trained == 0.0


@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(1, 4))
@settings(max_examples=examples(30))
def test_distinct_rows_are_those_of_a_sort_of_whole_rows(seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-1, 2, size=(rows, columns)) * rng.choice([1.0, -0.0, 1e-9], size=columns)
    first, kind = distinct_rows(values)
    want, at, same = np.unique(values, axis=0, return_index=True, return_inverse=True)
    assert (first == at).all()
    assert (kind == same.reshape(-1)).all()
    assert len(first) == len(want)


def test_distinct_rows_of_many_columns_do_not_overflow() -> None:
    values = np.random.default_rng(0).normal(size=(3000, 12))
    values[1500:] = values[:1500]
    first, kind = distinct_rows(values)
    assert np.sort(first).tolist() == list(range(1500))
    assert (kind[:1500] == kind[1500:]).all()
    assert (values[first][kind] == values).all()


@pytest.mark.parametrize("eps", [1e-3, 0.1, 5.0])
@pytest.mark.parametrize("still", [False, True])
def test_free_steps_are_the_best_for_linear_logits(eps: float, still: bool) -> None:
    """They spend ``eps`` and attain the dual of the linearised problem; so no other steps are better."""
    rng = np.random.default_rng(3)
    slopes, share, delta = rng.normal(size=(40, 4)), rng.dirichlet(np.ones(40)), rng.normal(size=40)
    metric = np.diag([1.0, 0.5, 2.0, 0.0])
    q = np.einsum("ij,jk,ik->i", slopes, metric, slopes)
    if still:
        delta[np.argsort(q)[-20:]] = 0.0  # the steepest rows have no move: lambda may end at the greatest q
    steps = free_steps(delta, slopes, metric, share, eps)
    cost = np.einsum("ij,jk,ik->i", steps, np.linalg.pinv(metric), steps)
    gain = share @ (delta + np.einsum("ij,ij->i", steps, slopes)) ** 2

    def dual(log: float) -> float:
        lam = q.max() + math.exp(log)
        return float(lam * eps + share @ (delta**2 * lam / (lam - q)))

    least = min(dual(log) for log in np.linspace(-20, 15, 20001))
    assert share @ cost == pytest.approx(eps, rel=1e-6)
    assert (steps[:, 3] == 0).all()
    assert gain == pytest.approx(least, rel=1e-5)
    assert (free_steps(delta, slopes, metric, share, 0.0) == 0).all()
    assert (free_steps(delta, np.zeros((40, 4)), metric, share, eps) == 0).all()


@pytest.mark.parametrize("dense", [False, True])
def test_a_stretched_step_has_its_length_where_the_bounds_leave_room(dense: bool) -> None:
    """It keeps the bounds and its cost, goes the way it is pulled, and is short only where nothing more can move."""
    rng = np.random.default_rng(4)
    bounds = np.array([[-1.0, 0.0, -0.2], [1.0, 1.0, 3.0]])
    starts = rng.uniform(*bounds, size=(300, 3))
    starts[:, 1] = starts[:, 1] > 0.5  # at a bound, as one of two values is
    pull, inverse = rng.normal(size=(300, 3)), np.diag([1.0, 2.0, 0.5])
    pull[:20, 0] = 0.0
    if dense:
        turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        bounds, inverse = 100.0 * np.array([[-1.0] * 3, [1.0] * 3]), turn @ inverse @ turn.T
    ascent = Ascent.of(starts, 0.1, bounds, inverse)
    lengths = (0.05, 0.4, 2.0)
    for length, rows in zip(lengths, ascent.stretched(starts, pull, lengths), strict=True):
        spent = np.einsum("ij,jk,ik->i", rows - starts, np.linalg.inv(inverse), rows - starts)
        stuck = np.where(pull > 0, rows >= bounds[1], (rows <= bounds[0]) | (pull == 0)).all(axis=1)
        assert ((rows >= bounds[0]) & (rows <= bounds[1])).all()
        assert ((rows - starts) * pull >= 0).all()
        assert (spent <= length**2 * (1 + 1e-9)).all()
        assert (spent[~stuck] >= 0.99 * length**2).all()
        assert (~stuck).any()
        assert dense or length < 2 or stuck.any()


@pytest.mark.parametrize("eps", [0.0, 0.01, 0.3, 3.0])
@pytest.mark.parametrize("listed", [True, False])
def test_the_regularizer_of_a_network_is_between_its_bounds(eps: float, listed: bool) -> None:
    """The plan keeps the radius and the bounds and has the value that it says; no other plan exceeds the bound."""
    rng = np.random.default_rng(9)
    X, network = rng.normal(size=(40, 5)), small_network(2, hidden=8, scale=1.5)
    X[:, 0] = X[:, 0] > 0
    both = np.array([np.column_stack([np.full(40, v), X[:, 1:]]) for v in (0.0, 1.0)])
    moves = Listed(X, both) if listed else none_for(X)
    weight, inverse = rng.gamma(2.0, size=40), np.diag([0.0, 1.0, 2.0, 0.5, 1.0])
    bounds = np.stack([X.min(axis=0), X.max(axis=0)])
    found = network_regularizer(
        network, X, moves, eps=eps, bounds=bounds, weight=weight, metric_inverse=inverse
    )
    share = weight / weight.sum()

    def cut(rows: Any) -> Any:
        return np.clip(network.logit(rows), -8, 8)

    def cost(rows: Any) -> Any:  # the first column moves by its listed variants alone
        return ((rows - X)[:, 1:] ** 2 / np.diag(inverse)[1:]).sum(axis=1)

    plan, value, spent = found.plan, 0.0, 0.0
    for rows, part in ((plan.near, 1 - plan.mixed), (plan.far, plan.mixed)):
        value += part * float(share @ (cut(rows) - cut(X)) ** 2)
        spent += part * float(share @ cost(rows))
        assert (rows >= bounds[0]).all()
        assert (rows <= bounds[1]).all()
        assert np.isin(rows[:, 0], (0.0, 1.0)).all()
        assert listed or (rows[:, 0] == X[:, 0]).all()
    assert spent <= eps * (1 + 1e-6)
    assert value == pytest.approx(plan.value)
    assert found.trained <= plan.value * (1 + 1e-2) + 1e-12
    slopes = [
        np.linalg.norm(np.sqrt(inverse) @ (network.W1 * network.W2[:, 0]) @ np.array(on))
        for on in product((0, 1), repeat=8)
    ]
    assert eps == 0 or max(slopes) <= found.slope <= 1.3 * max(slopes)

    gains, costs = [np.zeros(40)], [np.zeros(40)]
    for start in moves.others if listed else [X]:
        for _ in range(60):
            away = (
                rng.normal(size=X.shape) * np.sqrt(np.diag(inverse)) * rng.choice([0.0, 0.1, 0.5, 1.0, 3.0])
            )
            rows = np.where(np.diag(inverse) > 0, np.clip(start + away, *bounds), start)
            gains, costs = [*gains, (cut(rows) - cut(X)) ** 2], [*costs, cost(rows)]
    number = np.repeat(np.arange(40), len(gains))
    other, _ = regularizer_empirical(
        number, np.stack(gains, axis=1).ravel(), np.stack(costs, axis=1).ravel(), eps, many=40, weight=weight
    )
    assert other * (1 - 1e-12) <= found.upper * (1 + 1e-9)
    assert plan.value <= found.upper
    assert eps > 0 or plan.value == pytest.approx(found.upper)
    assert (
        found.upper <= (1.3 if listed and eps <= 0.01 else 20.0) * plan.value
    )  # sharp where steps are short


@pytest.mark.parametrize("seed", range(examples(4)))
def test_bends_are_sums_over_all_units(seed: int) -> None:
    """Unit by unit and length by length, some units without weights; never below, and above by rounding alone."""
    rng = np.random.default_rng(seed)
    away, reach, out = np.abs(rng.normal(size=(7, 30))), rng.gamma(1.0, size=30), rng.normal(size=30)
    reach[:3], out[3:5], away[:, 5] = 0.0, 0.0, 0.0
    grid = 10.0 ** np.linspace(-2, 2, 40)
    bent = np.maximum(reach[:, None] * grid - away[:, :, None], 0.0)
    for found, weight in zip(
        _bends(away, reach, out, grid), (np.maximum(out, 0), np.maximum(-out, 0)), strict=True
    ):
        exact = np.einsum("j,ijr->ir", weight, bent)
        assert (found >= exact).all()
        assert found == pytest.approx(exact, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("units", "columns"), [(1, 3), (9, 2), (12, 6)])
def test_the_greatest_slope_is_bounded_from_above(units: int, columns: int) -> None:
    """By the greatest over all patterns of ReLUs; a network without weights has none."""
    for seed in range(examples(20)):
        V = np.random.default_rng(seed).normal(size=(columns, units)) * 10.0 ** (seed % 5 - 2)
        V[:, : units // 4] = 0.0
        steepest = max(float(np.linalg.norm(V @ np.array(on))) for on in product((0, 1), repeat=units))
        assert steepest <= _steepest(V) <= 1.3 * steepest
    assert _steepest(np.zeros((3, 4))) == 0.0


@pytest.mark.slow(nightly=True)
def test_training_reaches_most_of_the_best_plan() -> None:
    """Of the plan that a long search finds after training, its three steps reach more than half at any radius."""
    X, y = data(3, 600)
    bounds = np.stack([X.min(axis=0), X.max(axis=0)])
    for eps in (1e-3, 0.1):
        fit = fit_network(X, y, None, flips_of(X), np.arange(0, 600, 5), rho=3.0, eps=eps, seed=0, hidden=8)
        found = network_regularizer(
            fit.network, X[:150], Listed(X[:150], flips_of(X).others[:, :150]), eps=eps, bounds=bounds
        )
        assert 0.5 < found.trained / found.plan.value < 1 + 1e-2


@pytest.mark.parametrize("moved", [0.0, 0.7])
def test_the_bound_of_a_network_that_is_linear_is_the_closed_form(
    moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ReLU that is on everywhere: no plan exceeds the closed form of R, which the bound may not be below."""
    rng = np.random.default_rng(3)
    X, w, eps = rng.normal(size=(50, 3)), np.array([0.3, -0.2, 0.1]), 0.5
    network = Network(w[:, None], np.array([50.0]), np.ones((1, 1)), np.array([-50.0]))
    wide, moves = np.array([np.full(3, -100.0), np.full(3, 100.0)]), Listed(X, np.array([X + moved * w]))
    plan = network_regularizer(network, X, moves, eps=eps, bounds=wide).plan
    monkeypatch.setattr("fairfix.solvers.relu_change_bounds._searched", lambda *_: replace(plan, value=0.0))
    found = network_regularizer(network, X, moves, eps=eps, bounds=wide)  # by the bound alone, without a plan
    exact = (np.sqrt(eps * (w @ w)) + moved * (w @ w)) ** 2

    assert plan.value <= exact * (1 + 1e-9)
    assert exact <= found.upper <= exact * (1 + 1e-6)


def test_training_stops_by_rows_that_it_does_not_learn_from() -> None:
    """The objective is that of these rows and of the network that is returned; more l2 means less weight."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(300, 5))
    y = (rng.random(300) < 1 / (1 + np.exp(-2 * X[:, 1]))).astype(float)
    judged = np.arange(0, 300, 5)
    found, heavy = (fit_network(X, y, None, flips_of(X), judged, rho=0.0, l2=l2, seed=1) for l2 in (0.0, 1.0))
    s = found.network.logit(X[judged])

    assert found.converged
    assert found.objective == pytest.approx(float(np.mean(np.logaddexp(0, s) - y[judged] * s)))
    assert found.objective < 0.6
    assert (heavy.network.W1**2).sum() < 0.5 * (found.network.W1**2).sum()


def test_training_begins_with_the_network_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first step it is that network, to the bit; afterwards it is no worse, by the weight in force."""
    X, y = data(4, 400)
    judged, moves = np.arange(0, 400, 5), flips_of(X)
    asked: dict[str, Any] = {"rho": 3.0, "hidden": 8, "batch": 100}
    first = fit_network(X, y, None, moves, judged, seed=1, **asked)
    again = fit_network(X, y, None, moves, judged, seed=2, start=first.network, **asked)
    monkeypatch.setattr("fairfix.solvers.network_fit.MOST_STEPS", 0)
    still = fit_network(X, y, None, moves, judged, seed=2, start=first.network, **asked)

    assert still.network.vector.tobytes() == first.network.vector.tobytes()
    assert still.objective == pytest.approx(first.objective, rel=1e-12)
    assert again.objective <= still.objective


@pytest.mark.slow(nightly=True)
def test_a_grid_from_one_network_to_the_next_is_as_good_as_from_random_ones() -> None:
    """At every weight, and in fewer steps."""
    X, y = data(3, 600)
    asked: dict[str, Any] = {"eps": 0.05, "hidden": 8, "batch": 120, "seed": 0}
    start = fit_network(X, y, None, flips_of(X), np.arange(0, 600, 5), rho=1.0, **asked).network
    for rho in (3.0, 10.0):
        alone, along = (
            fit_network(X, y, None, flips_of(X), np.arange(0, 600, 5), rho=rho, start=one, **asked)
            for one in (None, start)
        )
        assert along.objective <= 1.01 * alone.objective
        assert along.steps < alone.steps
        start = along.network


def trained(
    X: Floats, y: Any, weight: Floats | None, variants: Listed, *, steps: int, rate: float = 1e-3,
    eps: float = 0.0, bounds: Floats | None = None, metric_inverse: Floats | None = None, **given: Any
) -> Network:  # fmt: skip
    """Return a network after some steps."""
    share = np.full(len(X), 1 / len(X)) if weight is None else weight / weight.sum()
    ascent = Ascent.of(X, eps, bounds, metric_inverse) if eps else None
    with threadpool_limits(1):
        trainer = Trainer(
            X,
            y.astype(np.int64),
            share,
            RowVariants.of(X, variants),
            ascent,
            **({"l2": 0.0, "hidden": 100} | given),
        )
        trainer.run(steps, Adam(rate, trainer.parameters.size))
    return trainer.network


def test_metric_and_bounds_hold_the_free_steps() -> None:
    X, y = data(13, 100)
    moves = flips_of(X)
    kept: dict[str, Any] = {
        "hidden": 5, "steps": 20, "batch": 50, "rho": 3.0, "seed": 1
    }  # fmt: skip
    flips = trained(X, y, None, moves, eps=0.0, **kept)
    fixed = trained(X, y, None, moves, eps=0.1, metric_inverse=np.zeros((5, 5)), **kept)
    wide = trained(X, y, None, moves, eps=0.1, **kept)
    named = trained(X, y, None, moves, eps=0.1, bounds=np.array([X.min(axis=0), X.max(axis=0)]), **kept)
    tight = trained(X, y, None, moves, eps=0.1, bounds=np.array([[-0.1] * 5, [0.1] * 5]), **kept)

    assert pytest.approx(flips.W1, rel=1e-9) == fixed.W1  # whole rows, and only what the variants add
    assert fixed.b1 == pytest.approx(flips.b1, abs=1e-12)
    assert pytest.approx(flips.W2, rel=1e-9) == fixed.W2
    assert fixed.b2 == pytest.approx(flips.b2, abs=1e-12)
    assert (wide.W1 != flips.W1).any()
    assert (named.W1 == wide.W1).all()
    assert (tight.W1 != wide.W1).any()


@pytest.mark.parametrize(("eps", "logits"), [(0.0, 1), (0.01, 1), (0.0, 2)])
def test_weights_are_the_same_bits_for_any_number_of_threads(eps: float, logits: int) -> None:
    X, y = data(14, 600, 40)
    moves = flips_of(X)
    kept: dict[str, Any] = {"rho": 5.0, "eps": eps, "logits": logits, "steps": 8, "batch": 512}
    runs = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            runs.append(trained(X, y, None, moves, seed=3, **kept).vector)
    assert runs[0].tobytes() == runs[1].tobytes()
    assert (trained(X, y, None, moves, seed=4, **kept).vector != runs[0]).any()


def test_draws_follow_weights() -> None:
    y, weight = np.zeros(300), np.ones(300)
    y[:30], weight[::2], weight[31] = 1.0, 0.0, 30.0
    X = np.zeros((300, 1))
    trainer = Trainer(
        X, y.astype(np.int64), weight / weight.sum(), RowVariants.of(X, none_for(X)), None,
        hidden=1, rho=0.0, l2=0.0, batch=101, seed=0
    )  # fmt: skip
    drawn = np.concatenate([trainer.draw() for _ in range(40)])
    assert drawn.size == 40 * 101
    assert (weight[drawn] > 0).all()
    assert y[drawn].mean() == pytest.approx(15 / 179, abs=0.02)
    assert (drawn == 31).mean() == pytest.approx(30 / 179, abs=0.03)


def test_degenerate_networks() -> None:
    X, y = data(16, 30)
    for rows, labels, variants in [
        (X[:1], y[:1], flips_of(X[:1])),
        (X, np.ones(30), flips_of(X)),
        (X, y, none_for(X)),
        (np.zeros((30, 5)), y, none_for(np.zeros((30, 5)))),
    ]:
        network = trained(rows, labels, None, variants, hidden=3, rho=1.0, eps=0.1, steps=5, batch=8, seed=0)
        assert np.isfinite(network.logit(rows)).all()
    with pytest.raises(ValueError, match="finite"):
        fit_network(X, y, None, none_for(X), np.arange(0), rho=math.inf, seed=0)
    with pytest.raises(ValueError, match="finite"):
        fit_network(X, y, None, none_for(X), np.arange(0), rho=1.0, eps=-1.0, seed=0)
    with pytest.raises(ValueError, match="several logits"):
        fit_network(X, y, None, none_for(X), np.arange(0), rho=1.0, eps=1.0, logits=2, seed=0)
    with pytest.raises(ValueError, match="rho must be finite"):
        fit_network(X, y, None, none_for(X), np.arange(0), rho=-1.0, logits=2, seed=0)


def test_two_classes_learn_as_one_logit_and_a_heavy_weight_hardly_changes() -> None:
    X, y = data(3, 200)
    moves, judged = flips_of(X), np.arange(0, 200, 5)
    asked: dict[str, Any] = {"seed": 0, "hidden": 8, "batch": 40}
    one = fit_network(X, y, None, moves, judged, rho=0.0, **asked)
    changed = []
    for rho in (0.0, 100.0):
        fit = fit_network(X, y, None, moves, judged, logits=2, rho=rho, **asked)
        classes = np.stack([fit.network.forward(rows)[1].argmax(axis=1) for rows in moves.others])
        changed.append((classes != classes[0]).any(axis=0).mean())
        assert rho or fit.objective == pytest.approx(one.objective, abs=0.03)
    assert changed[0] > 5 * changed[1]
