"""Members equal scikit-learn's predictions, keep the laws of weights and order, and refuse damaged states."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.errors import ArtifactError, ConvergenceWarning
from fairfix.models.features import Feature, Features
from fairfix.models.learners import fit_classes, fit_mean, folds_of, hashed, out_of_fold
from fairfix.models.members import NODES, ConstantMember, LinearMember, Member, TreesMember
from fairfix.models.mixtures import ModelMixture
from fairfix.models.score_models import Scorer
from fairfix.models.tree_arrays import of_histograms
from fairfix.solvers.losses import row_loss
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from tests.strategies import examples

Floats = npt.NDArray[np.float64]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Keep fits of a few hundred rows from waiting for threads, which takes seconds on a busy machine."""
    with threadpool_limits(1):
        yield


def rows(seed: int = 0, many: int = 400, *, gaps: bool = False) -> tuple[Floats, Floats]:
    """Return features with ties and, if asked, gaps, and a label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(many, 4))
    X[:, 1] = X[:, 1].round()
    X[:, 2] = X[:, 2] > 0
    y = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.3 * rng.normal(size=many)
    if gaps:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["square", "absolute", "quantile:0.8", "poisson"])
def test_the_unit_of_the_label_does_not_matter_to_trees(loss: str) -> None:
    """Rates of one in ten million, or dollars in place of millions, grow the trees that other units grow."""
    X, y = rows()
    y = np.exp(y / 2) if loss == "poisson" else y
    same: dict[str, Any] = {"learner": "trees", "loss": loss, "l2": 0.0, "seed": 0}
    plain = fit_mean(X, y, None, **same).predict(X)

    for level, unit in ((0.0, 1e-7), (0.0 if loss == "poisson" else 30.0, 1e6)):
        np.testing.assert_allclose(
            (fit_mean(X, level + unit * y, None, **same).predict(X) - level) / unit, plain, atol=1e-9
        )
    assert np.std(plain) > 0.3


def tree_worlds() -> dict[str, tuple[Floats, Floats, Floats | None]]:
    """Return worlds for trees: features, a label, and new rows, None where the thresholds are to be tried."""
    rng = np.random.default_rng(6)
    X, y = rows()
    gone = rng.normal(size=(400, 2))
    gone[rng.random(400) < 0.5, 0] = np.nan
    odd = np.array([[np.nan, 0.0], [np.inf, 0.0], [-np.inf, 0.0], [0.0, np.nan], [np.nan, np.nan]])
    short = rng.normal(size=(300, 1)).astype(np.float32).astype(np.float64)
    ends = np.array([[np.inf] * 4, [-1e300] * 4])
    with_gaps = rows(gaps=True)
    return {
        "ties": (X, y, np.concatenate([rows(1)[0], ends])),
        "gaps": (*with_gaps, np.concatenate([rows(1, gaps=True)[0], ends])),
        "no spread": (X, np.full(len(X), 2.5), X),
        "missing is all that matters": (gone, np.isnan(gone[:, 0]) + 0.0, odd),
        "values of 32 bits": (short, np.sin(3 * short[:, 0]), None),
    }


@pytest.mark.parametrize("world", tree_worlds())
def test_trees_equal_scikit_learn_to_the_bit(world: str) -> None:
    """Regression, two and three classes; at thresholds, beside them, and with infinite numbers, which are no gaps."""
    X, y, new = tree_worlds()[world]
    model = HistGradientBoostingRegressor(max_iter=10).fit(X, y)
    made = of_histograms(model, "identity")
    if new is None:
        cuts = made.nodes["threshold"]
        new = np.concatenate([cuts, np.nextafter(cuts, np.inf), np.nextafter(cuts, -np.inf)])[:, None]
    new = np.concatenate([X, new])
    np.testing.assert_array_equal(made.predict(new), model.predict(new))
    assert (world != "missing is all that matters") or np.isinf(made.nodes["threshold"]).any()
    if world in ("ties", "gaps"):
        two = HistGradientBoostingClassifier(max_iter=10).fit(X, y > 0.5)
        three = HistGradientBoostingClassifier(max_iter=10).fit(X, np.digitize(y, [0, 1]))
        both = two.predict_proba(new)
        np.testing.assert_array_equal(of_histograms(two, "sigmoid").predict(new), both[:, 1])
        np.testing.assert_array_equal(of_histograms(two, "pair").predict(new), both)
        np.testing.assert_array_equal(of_histograms(three, "softmax").predict(new), three.predict_proba(new))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["logistic", "square", "absolute", "quantile:0.8", "poisson"])
def test_trees_learn_nothing_where_there_is_nothing(loss: str) -> None:
    """Of 500 rows whose label does not hang on them, other rows have no more loss than a constant leaves, by 3 %."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(20_500, 5))
    draws = {"logistic": rng.random(len(X)) < 0.3, "poisson": rng.poisson(3, len(X))}
    y = np.asarray(draws.get(loss, rng.normal(size=len(X))), dtype=np.float64)
    seen, new = slice(500), slice(500, None)
    model = fit_mean(X[seen], y[seen], None, learner="trees", loss=loss, l2=0.0, seed=0)
    flat = fit_mean(np.zeros((500, 1)), y[seen], None, learner="trees", loss=loss, l2=0.0, seed=0)
    of = row_loss(loss).value

    assert (
        of(y[new], model.predict(X[new])).mean()
        < 1.03 * of(y[new], flat.predict(np.zeros((20_000, 1)))).mean()
    )


def test_the_learner_and_the_loss_are_those_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees are scikit-learn's, and means of counts sum to the counts, whatever else could be fitted in their place."""
    X, y = rows(many=100)
    monkeypatch.setattr("fairfix.models.learners.MANY_ROWS", 0)  # so that rounds are not chosen
    trees = fit_mean(X, (y > 0) + 0.0, None, learner="trees", loss="logistic", l2=0.0, seed=0)
    own = HistGradientBoostingClassifier(early_stopping=False).fit(X, y > 0)
    np.testing.assert_allclose(trees.predict(X), own.predict_proba(X)[:, 1], atol=1e-9)
    counts = fit_mean(X, np.abs(y), None, learner="linear", loss="poisson", l2=0.0, seed=0)
    assert counts.predict(X).sum() == pytest.approx(np.abs(y).sum(), rel=1e-6)


def test_trees_learn_what_is_there() -> None:
    """Rounds are not stopped early where all of them help: few rows with labels that hang on them alone."""
    X, y = rows(many=600)
    new, truth = rows(seed=1, many=2000)
    model = fit_mean(X, y, None, learner="trees", loss="square", l2=0.0, seed=0)

    assert ((truth - model.predict(new)) ** 2).mean() < 0.3 * truth.var()


@pytest.mark.parametrize("loss", ["square", "logistic", "classes"])
def test_no_other_coefficients_do_better(loss: str) -> None:
    """Whichever way the coefficients or the intercept are moved, the stated objective grows with the square.

    Labels of the logistic loss lie between 0 and 1 here: a row with each label, weighted.
    """
    X, y = rows()
    rng = np.random.default_rng(8)
    w, l2 = rng.random(len(y)) + 0.5, 0.03
    y = {"square": y, "logistic": rng.random(len(y))}.get(loss, np.digitize(y, [0, 1]))
    if loss == "classes":
        best = fit_classes(X, y, 3, w, learner="linear", l2=l2, seed=0)
    else:
        best = fit_mean(X, y, w, learner="linear", loss=loss, l2=l2, seed=0)
    assert isinstance(best, LinearMember)

    def stated(coef: Floats, intercept: Floats) -> float:
        p = LinearMember(coef, intercept, best.link).predict(X)
        if loss == "classes":
            each = -np.log(p[np.arange(len(y)), y])
        else:
            each = (y - p) ** 2 if loss == "square" else -y * np.log(p) - (1 - y) * np.log(1 - p)
        return float(w @ each / w.sum() + l2 * np.sum(coef**2))

    least = stated(best.coef, best.intercept)
    for _ in range(20):
        coef, intercept = rng.normal(size=best.coef.shape), rng.normal(size=best.intercept.shape)
        rises = [stated(best.coef + t * coef, best.intercept + t * intercept) - least for t in (-1e-3, 1e-3)]
        assert min(rises) > 0
        np.testing.assert_allclose(rises[0], rises[1], rtol=0.02)


def test_without_penalty_the_least_coefficients_are_taken() -> None:
    """Indicators of all categories depend on one another: of all best coefficients the least are taken."""
    rng = np.random.default_rng(9)
    group = rng.integers(0, 4, 300)
    X = np.column_stack([np.eye(4)[group], rng.normal(size=300)])
    y = group + X[:, 4] + 0.1 * rng.normal(size=300)
    w = rng.random(300) + 0.5
    free = fit_mean(X, y, w, learner="linear", loss="square", l2=0.0, seed=0)
    barely = fit_mean(X, y, w, learner="linear", loss="square", l2=1e-9, seed=0)
    assert isinstance(free, LinearMember)

    assert np.abs(free.coef).max() < 3
    np.testing.assert_allclose(free.predict(X), barely.predict(X), atol=1e-7)
    np.testing.assert_allclose(free.coef[:4].sum(), 0, atol=1e-9)


def test_logistic_regression_without_penalty_is_quiet_where_there_is_an_optimum() -> None:
    """Columns that depend on one another are no reason to warn."""
    X, y = rows()
    twice = np.column_stack([X, X[:, 0]])
    noisy = (y + np.random.default_rng(10).normal(size=len(y)) > 0).astype(float)
    free = fit_mean(twice, noisy, None, learner="linear", loss="logistic", l2=0.0, seed=0)
    plain = fit_mean(X, noisy, None, learner="linear", loss="logistic", l2=0.0, seed=0)

    np.testing.assert_allclose(free.predict(twice), plain.predict(X), atol=1e-4)
    assert isinstance(free, LinearMember)
    np.testing.assert_allclose(free.coef[0], free.coef[4], rtol=1e-9)  # the same column, the same coefficient


def test_what_does_not_reach_its_optimum_is_told() -> None:
    """A column a million times wider than another, and no penalty: a warning with the remedy."""
    X = np.random.default_rng(11).normal(size=(300, 4)) * [1, 1e6, 1e-6, 1]
    y = (1e6 * X[:, 2] + X[:, 3] > 0).astype(float)

    with pytest.warns(ConvergenceWarning, match="use an l2 above 0"):
        fit_mean(X, y, None, learner="linear", loss="logistic", l2=0.0, seed=0)


@pytest.mark.parametrize("many", [2, 3])
@pytest.mark.parametrize("newton", [300, 0])
def test_a_start_is_sooner_and_the_same(many: int, newton: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun at a member of almost the same rows, the fit takes fewer steps to the same member."""
    X, y = rows()
    codes = np.digitize(y, [0, 1][: many - 1])
    steps: list[int] = []
    fit = LogisticRegression.fit

    def counted(self: Any, *args: Any, **more: Any) -> Any:
        done = fit(self, *args, **more)
        steps.append(int(done.n_iter_.max()))
        return done

    monkeypatch.setattr(LogisticRegression, "fit", counted)
    monkeypatch.setattr("fairfix.models.learners.MOST_NEWTON", newton)
    same: dict[str, Any] = {"learner": "linear", "l2": 0.01, "seed": 0}
    whole = fit_classes(X, codes, many, None, **same)
    cold = fit_classes(X[40:], codes[40:], many, None, **same)
    warm = fit_classes(X[40:], codes[40:], many, None, **same, start=whole)
    unlike = [ConstantMember(np.ones(many) / many), LinearMember(np.ones((9, 1)), np.ones(1), "pair")]
    others = [fit_classes(X[40:], codes[40:], many, None, **same, start=start) for start in unlike]

    assert steps[2] < steps[1] == steps[3] == steps[4]
    np.testing.assert_allclose(warm.predict(X), cold.predict(X), atol=1e-9 if newton else 1e-7)
    assert all(other.predict(X).tobytes() == cold.predict(X).tobytes() for other in others)


@pytest.mark.parametrize("l2", [0.01, 0.0])
@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_weights_repeats_and_order(loss: str, l2: float) -> None:
    """Whole weights are repeated rows, weight 0 is no row, their unit is free, and the order means nothing."""
    X, y = rows()
    y = (y + rows(12)[1] > 0).astype(float) if loss == "logistic" else y
    w = np.random.default_rng(2).integers(0, 4, len(y)).astype(float)
    i = np.repeat(np.arange(len(y)), w.astype(int))
    order = np.random.default_rng(3).permutation(len(y))
    same: dict[str, Any] = {"learner": "linear", "loss": loss, "l2": l2, "seed": 0}
    one, two, three, four = (
        fit_mean(A, b, c, **same).predict(X)
        for A, b, c in ((X, y, w), (X[i], y[i], None), (X[order], y[order], w[order]), (X, y, 4 * w))
    )

    np.testing.assert_allclose(two, one, atol=1e-9)
    np.testing.assert_array_equal(three, one)
    np.testing.assert_allclose(four, one, atol=1e-9)


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_trees_see_only_what_counts(loss: str) -> None:
    """Not rows of weight 0, however wild, nor the order of rows, nor that a column without values is no constant."""
    X, y = rows(many=80, gaps=True)
    y = (y > 0).astype(float) if loss == "logistic" else y
    w = np.random.default_rng(13).integers(0, 3, len(y)).astype(float)
    X[:, 1] = np.nan
    wild, label, plain = X.copy(), y.copy(), np.where(np.arange(4) == 1, 0.0, X)
    wild[w == 0], label[w == 0] = 1e9, 1 - label[w == 0]
    order = np.random.default_rng(14).permutation(len(y))
    same: dict[str, Any] = {"learner": "trees", "loss": loss, "l2": 0.0, "seed": 0}
    one = fit_mean(X, y, w, **same).predict(X)

    for A, b, c in ((wild, label, w), (X[order], y[order], w[order]), (plain, y, w)):
        np.testing.assert_array_equal(fit_mean(A, b, c, **same).predict(X), one)


def test_classes_without_rows_are_left_to_the_caller() -> None:
    """One class alone is certain; some classes missing is for the caller to settle, weight 0 counting as no row."""
    X, _ = rows(many=30)
    codes, w = np.arange(30) % 3, (np.arange(30) % 3 > 0).astype(float)
    same: dict[str, Any] = {"learner": "linear", "l2": 0.01, "seed": 0}

    np.testing.assert_array_equal(fit_classes(X, codes * 0 + 1, 3, None, **same).predict(X[:1]), [[0, 1, 0]])
    with pytest.raises(ValueError, match="some classes have no rows"):
        fit_classes(X, codes, 3, w, **same)


@pytest.mark.parametrize("learner", ["linear", "trees"])
@pytest.mark.parametrize("many", [2, 3])
def test_class_probabilities_sum_to_one(learner: str, many: int) -> None:
    """Chances of all classes are there, in order, and sum to 1."""
    X, y = rows(many=150)
    codes = np.digitize(y, [0, 1][: many - 1])
    found = fit_classes(X, codes, many, None, learner=learner, l2=0.01, seed=0).predict(X)

    assert found.shape == (150, many)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert np.mean(found.argmax(axis=1) == codes) > 0.6


@cache
def tree_member() -> TreesMember:
    """Return a small member of trees."""
    X, y = rows(many=100, gaps=True)
    return of_histograms(HistGradientBoostingRegressor(max_iter=3).fit(X, y), "identity")


def members() -> list[Member]:
    """Return members of each kind."""
    X, y = rows(many=100)
    codes = np.digitize(y, [0, 1])
    linear = fit_mean(X, y, None, learner="linear", loss="square", l2=0.01, seed=0)
    several = fit_classes(X, codes, 3, None, learner="linear", l2=0.01, seed=0)
    softmax = of_histograms(HistGradientBoostingClassifier(max_iter=2).fit(X, codes), "softmax")
    constants = [ConstantMember(np.array([0.25])), ConstantMember(np.array([0.25, 0.75]))]
    return [tree_member(), softmax, linear, several, *constants]


with threadpool_limits(1):
    MEMBERS = members()


ODD_NUMBERS = [-1, 0, 1, 7, 10**6, np.nan, np.inf, -np.inf]
ODD_ARRAYS = [
    np.zeros(0),
    np.array(1.0),
    np.zeros((2, 2)),
    np.array(["a"]),
    np.array([None]),
    np.zeros(3, dtype=complex),
    None,
]
ODD_SETTINGS = [None, [], {}, -1, 0, 10**30, 1.5, True, "softmax", "identity", ["identity"], np.nan]


@settings(max_examples=examples(300))
@given(data=st.data(), which=st.integers(0, 5))
def test_damaged_states_are_refused_or_end(data: st.DataObject, which: int) -> None:
    """Whatever is changed in a state, it is refused as an artifact, or its member predicts in the end."""
    member = MEMBERS[which]
    told, held = member.state()
    told, held = dict(told), {name: a.copy() for name, a in held.items()}
    arrays: dict[str, Any] = held
    name = data.draw(st.sampled_from(sorted(held)))
    how = data.draw(st.sampled_from(["entry", "entry", "entry", "shuffle", "array", "drop", "more", "told"]))
    if how == "entry":
        at, value = data.draw(st.integers(0, held[name].size - 1)), data.draw(st.sampled_from(ODD_NUMBERS))
        whole = held[name].dtype.kind != "f"
        held[name].flat[at] = int(np.nan_to_num(value, posinf=9, neginf=-9)) if whole else value
    elif how == "shuffle":
        held[name] = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(held[name])
    elif how == "array":
        arrays[name] = data.draw(st.sampled_from(ODD_ARRAYS))
    elif how == "drop":
        del arrays[name]
    elif how == "more":
        arrays["more"] = np.zeros(1)
    else:
        told[data.draw(st.sampled_from([*told, "more"]))] = data.draw(st.sampled_from(ODD_SETTINGS))
    try:
        made = type(member).from_state(told, arrays)
    except ArtifactError:
        return
    with np.errstate(all="ignore"):
        assert len(made.predict(np.zeros((3, 4)))) == 3


def small_tree(**change: Any) -> TreesMember:
    """Return two trees of one split each, with a change to their state."""
    arrays: dict[str, npt.NDArray[Any]] = {
        "feature": np.zeros(6, dtype="<i4"),
        "threshold": np.zeros(6),
        "left": np.array([1, 1, 2, 4, 4, 5], dtype="<i4"),
        "right": np.array([2, 1, 2, 5, 4, 5], dtype="<i4"),
        "value": np.array([0.0, -1, 1, 0, -10, 10]),
        "missing_left": np.array([True, False, False, False, False, False]),
        "roots": np.array([0, 3]),
        "classes": np.array([0, 0]),
        "baseline": np.array([0.5]),
    }
    told = {"link": "identity", "features": 1, **change.pop("told", {})}
    arrays |= {name: np.asarray(value, dtype=arrays[name].dtype) for name, value in change.items()}
    return TreesMember.from_state(told, arrays)


NO_NODES: dict[str, Any] = {
    name: []
    for name in ("feature", "threshold", "left", "right", "value", "missing_left", "roots", "classes")
}


def test_a_tree_made_by_hand_predicts_what_it_says() -> None:
    """At most the threshold goes left, above right, and missing values where the node says."""
    found = small_tree().predict(np.array([[0.0], [1e-300], [np.nan], [-np.inf], [np.inf]]))

    np.testing.assert_array_equal(found, [-10.5, 11.5, 9.5, -10.5, 11.5])
    np.testing.assert_array_equal(small_tree(**NO_NODES).predict(np.zeros((2, 1))), [0.5, 0.5])


@pytest.mark.parametrize(
    "change",
    [
        {"left": [0, 1, 2, 4, 4, 5]},  # a step that goes nowhere
        {"left": [1, 1, 2, 1, 4, 5]},  # a child of two parents, another of none
        {"right": [2, 0, 2, 5, 4, 5]},  # a circle
        {"right": [1, 1, 2, 5, 4, 5]},  # the same child twice
        {"right": [9, 1, 2, 5, 4, 5]},
        {"roots": [0, 4]},  # begins in the middle
        {"roots": [3, 3]},
        {"roots": [0, 3, 1], "classes": [0, 0, 0]},  # a root that has a parent
        {"roots": [0, 6]},
        {"roots": [0], "classes": [0]},  # a tree that nobody asks
        {"classes": [0, 1]},
        {"classes": [0]},
        {"feature": [1, 0, 0, 0, 0, 0]},
        {"value": [0, np.inf, 0, 0, 0, 0]},
        {"threshold": [np.nan, 0, 0, 0, 0, 0]},
        {"baseline": [0.0, 0.0]},
        {"baseline": []},
        {"baseline": [], "told": {"link": "softmax"}, **NO_NODES},
        {"told": {"features": 0}},
        {"told": {"features": True}},
        {"told": {"link": "logit"}},
        {"told": {"depth": 3}},
    ],
)
def test_nodes_that_are_no_trees_are_refused(change: dict[str, Any]) -> None:
    """Nodes have one parent, roots none, and all that is named is there."""
    with pytest.raises(ArtifactError):
        small_tree(**change)


def test_equal_rows_share_a_fold() -> None:
    """In any order, -0 as 0, also where few rows are dealt out; folds are about equal, and none is empty."""
    for X, fewest in ((rows(many=2000, gaps=True)[0], 330), (np.repeat(rows(many=6)[0], 3, axis=0), 3)):
        order = np.random.default_rng(4).permutation(len(X))
        folds = folds_of(X, 5)
        np.testing.assert_array_equal(folds_of(X[order], 5), folds[order])
        assert np.bincount(folds, minlength=5).min() >= fewest
    assert (folds.reshape(6, 3) == folds.reshape(6, 3)[:, :1]).all()
    assert np.ptp(folds_of(np.array([[0.0], [-0.0]]), 5)) == 0


@pytest.mark.parametrize("unit", [1e-9, 0.3, 7.0, 1e9])
@pytest.mark.parametrize("shift", [0.0, -40.0])
def test_folds_do_not_hang_on_units_nor_on_rows_without_weight(unit: float, shift: float) -> None:
    """Columns in another unit, at another origin, or with an outlier, and more rows without weight: the same folds."""
    X, _ = rows(many=6000, gaps=True)
    X[0, 0] = 1e12
    weight = np.ones(6000)
    weight[5000:] = 0.0
    folds = folds_of(X, 5, weight)

    np.testing.assert_array_equal(folds_of(unit * (X + shift), 5, weight), folds)
    np.testing.assert_array_equal(folds_of(X[:5000], 5), folds[:5000])
    np.testing.assert_array_equal(folds_of(np.repeat(X[:5000], 2, axis=0), 5)[::2], folds[:5000])


def test_missing_values_have_one_bit_pattern() -> None:
    """Which NaN a missing value is says nothing, but where it stands does."""
    other = np.array([0x7FF8000000000001, 0xFFF8000000000000], dtype=np.uint64).view(np.float64)
    one = np.column_stack([np.full(2, np.nan), np.ones(2)])
    two = np.column_stack([other, np.ones(2)])

    np.testing.assert_array_equal(hashed(one), hashed(two))
    assert hashed(one)[0] != hashed(one[:, ::-1])[0]
    assert hashed(one)[0] != hashed(np.zeros((1, 2)) + 1)[0]


def test_no_row_is_scored_by_a_member_that_saw_it() -> None:
    """A learner that remembers its rows is never asked about one of them."""
    X, _ = rows(many=200)
    folds = folds_of(X, 4)
    seen: list[set[bytes]] = []

    class Remembers(ConstantMember):
        def predict(self, X: Floats) -> Floats:
            known = seen[int(self.value[0])]
            return np.array([float(row.tobytes() in known) for row in X])

    def fit(some: npt.NDArray[np.int64]) -> Member:
        seen.append({row.tobytes() for row in X[some]})
        return Remembers(np.array([float(len(seen) - 1)]))

    whole = fit(np.arange(200))
    assert whole.predict(X).all()
    assert not out_of_fold(fit, X, folds, whole).any()
    assert out_of_fold(fit, X, folds, whole, lambda rest: False).all()


def test_a_fold_without_which_a_class_is_gone_is_scored_by_all() -> None:
    """The columns of probabilities stay in line when only one fold holds a class."""
    X, y = rows(many=200)
    folds = folds_of(X, 4)
    codes = np.where(folds == 2, 2, (y > 0).astype(int))
    same: dict[str, Any] = {"learner": "linear", "l2": 0.01, "seed": 0}
    whole = fit_classes(X, codes, 3, None, **same)

    def fit(some: npt.NDArray[np.int64]) -> Member:
        return fit_classes(X[some], codes[some], 3, None, **same, start=whole)

    found = out_of_fold(fit, X, folds, whole, lambda some: bool(np.bincount(codes[some], minlength=3).all()))
    np.testing.assert_array_equal(found[folds == 2], whole.predict(X)[folds == 2])
    np.testing.assert_array_equal(found[folds == 0], fit(np.flatnonzero(folds != 0)).predict(X[folds == 0]))
    assert found.shape == (200, 3)


def test_a_tree_that_all_rows_would_wait_for_is_refused() -> None:
    """A chain of many nodes takes a step of all rows for each of them."""
    for inner, sound in ((500, True), (2000, False)):
        nodes = np.arange(2 * inner + 1)
        left, right = nodes.copy(), nodes.copy()
        left[: 2 * inner : 2], right[: 2 * inner : 2] = nodes[: 2 * inner : 2] + 1, nodes[: 2 * inner : 2] + 2
        kept = {name: np.zeros(nodes.size, part.dtype) for name, part in NODES.items()}
        none = np.zeros(1, dtype=np.int64)
        chain = TreesMember({**kept, "left": left, "right": right}, none, none, np.zeros(1), 1, "identity")
        assert chain.sound == sound


@pytest.mark.parametrize("link", ["identity", "sigmoid", "pair", "softmax"])
def test_a_member_says_how_many_classes_it_gives(link: Any) -> None:
    """So that a mixture, which needs a number, refuses probabilities of classes before a row is scored."""
    sums = 3 if link == "softmax" else 1
    member = LinearMember(np.ones((1, sums)), np.zeros(sums), link)
    given = member.predict(np.ones((4, 1)))
    assert member.classes_given == (None if given.ndim == 1 else given.shape[1])
    scorer = Scorer(Features((Feature("x", "number"),)), member)
    state = ModelMixture((scorer,), np.ones(1), averaged=True).state()
    if given.ndim == 1:
        assert ModelMixture.from_state(*state).sound
    else:
        with pytest.raises(ArtifactError, match="do not fit together"):
            ModelMixture.from_state(*state)
