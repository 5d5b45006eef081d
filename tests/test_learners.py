"""Members equal scikit-learn's predictions, keep the laws of weights and order, and refuse damaged states."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.errors import ArtifactError
from fairfix.learners import (
    ConstantMember,
    LinearMember,
    Member,
    TreesMember,
    fit_classes,
    fit_mean,
    folds_of,
    out_of_fold,
    trees_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge

Floats = npt.NDArray[np.float64]


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


@pytest.mark.parametrize("gaps", [False, True])
def test_trees_equal_scikit_learn_to_the_bit(gaps: bool) -> None:
    """Regression, two and three classes: the arrays predict what the fitted model predicts, ties and gaps included."""
    X, y = rows(gaps=gaps)
    new = np.concatenate([X, rows(1, gaps=gaps)[0], np.full((1, 4), np.inf), np.full((1, 4), -1e300)])
    regressor = HistGradientBoostingRegressor(max_iter=30).fit(X, y)
    two = HistGradientBoostingClassifier(max_iter=20).fit(X, y > 0.5)
    three = HistGradientBoostingClassifier(max_iter=20).fit(X, np.digitize(y, [0, 1]))

    np.testing.assert_array_equal(trees_of(regressor, "identity").predict(new), regressor.predict(new))
    np.testing.assert_array_equal(trees_of(two, "sigmoid").predict(new), two.predict_proba(new)[:, 1])
    np.testing.assert_array_equal(trees_of(two, "pair").predict(new), two.predict_proba(new))
    np.testing.assert_array_equal(trees_of(three, "softmax").predict(new), three.predict_proba(new))


def test_trees_of_a_single_leaf_predict_their_baseline() -> None:
    """A label without spread leaves trees without splits."""
    X, _ = rows()
    model = HistGradientBoostingRegressor(max_iter=3).fit(X, np.full(len(X), 2.5))

    np.testing.assert_array_equal(trees_of(model, "identity").predict(X), model.predict(X))


def test_linear_members_are_those_of_scikit_learn() -> None:
    """Ridge and logistic regression of the documented strength give the same coefficients."""
    X, y = rows()
    w = np.random.default_rng(1).random(len(y)) + 0.5
    ridge = Ridge(alpha=0.01 * w.sum()).fit(X, y, sample_weight=w)
    logistic = LogisticRegression(C=1 / (0.02 * w.sum()), tol=1e-10, solver="newton-cholesky").fit(
        X, y > 0, sample_weight=w
    )
    mine = fit_mean(X, y, w, learner="linear", loss="square", l2=0.01, seed=0)
    other = fit_mean(X, (y > 0).astype(float), w, learner="linear", loss="logistic", l2=0.01, seed=0)

    np.testing.assert_allclose(mine.predict(X), ridge.predict(X), rtol=1e-9)
    np.testing.assert_allclose(other.predict(X), logistic.predict_proba(X)[:, 1], rtol=1e-6)


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_weights_repeats_and_order(loss: str) -> None:
    """Whole weights are repeated rows, weight 0 is no row, and the order of rows means nothing."""
    X, y = rows()
    y = (y > 0).astype(float) if loss == "logistic" else y
    w = np.random.default_rng(2).integers(0, 4, len(y)).astype(float)
    i = np.repeat(np.arange(len(y)), w.astype(int))
    order = np.random.default_rng(3).permutation(len(y))
    same = {"learner": "linear", "loss": loss, "l2": 0.01, "seed": 0}
    one, two, three = (
        fit_mean(A, b, c, **same).predict(X)
        for A, b, c in ((X, y, w), (X[i], y[i], None), (X[order], y[order], w[order]))
    )

    np.testing.assert_allclose(two, one, atol=1e-8)
    np.testing.assert_array_equal(three, one)


def test_labels_between_are_two_rows() -> None:
    """A soft label acts as a row of each class with that share of the weight."""
    X, y = rows()
    soft = 1 / (1 + np.exp(-y))
    mine = fit_mean(X, soft, None, learner="linear", loss="logistic", l2=0.01, seed=0)
    twice = LogisticRegression(C=1 / (0.02 * len(y)), tol=1e-10, solver="newton-cholesky")
    twice.fit(
        np.concatenate([X, X]), np.repeat([1, 0], len(y)), sample_weight=np.concatenate([soft, 1 - soft])
    )

    np.testing.assert_allclose(mine.predict(X), twice.predict_proba(X)[:, 1], rtol=1e-6)


@pytest.mark.parametrize("learner", ["linear", "trees"])
@pytest.mark.parametrize("many", [2, 3])
def test_class_probabilities_sum_to_one(learner: str, many: int) -> None:
    """Chances of all classes are there, in order, and sum to 1."""
    X, y = rows(many=300)
    codes = np.digitize(y, [0, 1][: many - 1])
    found = fit_classes(X, codes, many, None, learner=learner, l2=0.01, seed=0).predict(X)

    assert found.shape == (300, many)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert np.mean(found.argmax(axis=1) == codes) > 0.6


def members() -> list[Member]:
    """Return a member of each kind."""
    X, y = rows(many=100, gaps=True)
    tree = trees_of(HistGradientBoostingRegressor(max_iter=3).fit(X, y), "identity")
    linear = fit_mean(np.nan_to_num(X), y, None, learner="linear", loss="square", l2=0.01, seed=0)
    return [tree, linear, ConstantMember(np.array([0.25])), ConstantMember(np.array([0.25, 0.75]))]


@pytest.mark.parametrize("member", members(), ids=lambda m: m.kind)
def test_saved_members_predict_the_same_bits(member: Member) -> None:
    """A state gives back the member."""
    X = np.nan_to_num(rows(5)[0])
    settings_, arrays = member.state()
    again = Member.kinds[member.kind].from_state(settings_, arrays)

    assert again.predict(X).tobytes() == member.predict(X).tobytes()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_trees_are_refused_or_end(data: st.DataObject) -> None:
    """Whatever is changed in the arrays, the state is refused or every walk ends within the depth."""
    tree = members()[0]
    told, arrays = tree.state()
    arrays = {name: a.copy() for name, a in arrays.items()}
    name = data.draw(st.sampled_from(sorted(arrays)))
    at = data.draw(st.integers(0, arrays[name].size - 1))
    value: Any = data.draw(st.sampled_from([-1, 0, 1, 7, 10**6, np.nan, np.inf]))
    with np.errstate(invalid="ignore"):
        arrays[name].flat[at] = (
            value if arrays[name].dtype.kind == "f" else int(np.nan_to_num(value, posinf=9))
        )
    try:
        made = TreesMember.from_state(told, arrays)
    except ArtifactError:
        return
    assert made.predict(np.zeros((3, 4))).shape == (3,)


@pytest.mark.parametrize(
    ("kind", "told", "change"),
    [
        (LinearMember, {"link": "magic"}, {}),
        (LinearMember, {"link": "sigmoid"}, {"coef": np.zeros((4, 2)), "intercept": np.zeros(2)}),
        (LinearMember, {"link": "identity"}, {"coef": np.full((4, 1), np.nan)}),
        (LinearMember, {"link": "identity", "more": 1}, {}),
        (ConstantMember, {}, {"value": np.zeros(0)}),
    ],
)
def test_other_damage_is_refused(kind: type[Member], told: dict[str, Any], change: dict[str, Any]) -> None:
    """Parts that do not fit together are an artifact error."""
    arrays = (
        {"coef": np.zeros((4, 1)), "intercept": np.zeros(1)}
        if kind is LinearMember
        else {"value": np.zeros(1)}
    )

    with pytest.raises(ArtifactError):
        kind.from_state(told, {**arrays, **change})


def test_folds_hang_on_the_row_alone() -> None:
    """Equal rows share a fold in any order, -0 is 0, and folds are about equal."""
    X, _ = rows(many=2000, gaps=True)
    order = np.random.default_rng(4).permutation(2000)
    folds = folds_of(X, 5)

    np.testing.assert_array_equal(folds_of(X[order], 5), folds[order])
    np.testing.assert_array_equal(
        folds_of(np.array([[0.0], [-0.0]]), 5)[0], folds_of(np.array([[-0.0]]), 5)[0]
    )
    assert np.bincount(folds).min() > 330


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
