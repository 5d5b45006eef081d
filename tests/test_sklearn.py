"""The scikit-learn adapter: scikit-learn's own checks, and the laws of a repair seen through it."""

from __future__ import annotations

import inspect
import io
import pickle
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import fairfix
import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from fairfix.auditing.audit import audit
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.row_hash import is_random
from fairfix.data.scan import read_table
from fairfix.errors import DataError, FairfixWarning, UsageError
from fairfix.methods import available
from fairfix.methods.problem import RepairProblem
from fairfix.sklearn import InputError, RepairedClassifier, RepairedRegressor, SettingError
from scipy import sparse
from scipy.stats import ks_2samp
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    TimeSeriesSplit,
    cross_val_predict,
    cross_val_score,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

ROOT = Path(__file__).parents[1]

FAILING = {
    "check_classifiers_train": "a repaired decision is drawn, or cut at another probability than one half",
}
"""Checks of scikit-learn that cannot hold, with the reason; docs/sklearn.md lists the same."""


class Odd:
    """Tell the group of rows; its name in the names of tests is the same in every process, unlike a function's."""

    def __call__(self, X: Any) -> Any:
        """Return group 0 or 1 of rows: whether the first value, in thousandths and in whole, is odd."""
        dense = np.asarray(X.toarray() if sparse.issparse(X) else X)
        first = np.nan_to_num(dense[:, 0].astype(float), posinf=0, neginf=0)
        return (np.floor(first) + np.floor(1000 * first)) % 2

    def __repr__(self) -> str:
        return "odd"

    def __deepcopy__(self, memo: Any) -> Odd:
        return self


odd = Odd()


def people(rows: int = 600, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a frame with text, boolean and number columns, and labels that favour one group."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["female", "male"], rows)
    age = rng.choice(["old", "young"], rows)
    x = rng.normal(size=rows) + 0.8 * (sex == "male") + 0.4 * (age == "old")
    frame = pd.DataFrame(
        {
            "sex": sex,
            "town": rng.choice(["north", "south", "west"], rows),
            "x": x,
            "age": age,
            "member": rng.random(rows) < 0.5,
            "z": rng.integers(0, 5, rows),
        }
    )
    label = rng.random(rows) < 1 / (1 + np.exp(-x))
    return frame, np.where(label, "yes", "no")


def base() -> Pipeline:
    """Return a classifier for the frame of :func:`people`, which does not look at the groups."""
    columns = make_column_transformer((OneHotEncoder(), ["town"]), ("passthrough", ["x", "member", "z"]))
    return make_pipeline(columns, LogisticRegression())


def fitted_base(frame: pd.DataFrame, y: np.ndarray) -> Pipeline:
    """Return the base, fitted without the protected columns."""
    return base().fit(frame.drop(columns=["sex", "age"]), y)


def logistic(protected: Any = None, **settings: Any) -> RepairedClassifier:
    """Return a repaired logistic regression, of two folds unless others are asked for."""
    return RepairedClassifier(LogisticRegression(), protected, **{"cv": 2, **settings})


def gap(chance: np.ndarray, groups: pd.DataFrame, weight: np.ndarray | None = None) -> float:
    """Return the demographic parity difference of decision probabilities, by the audit."""
    names = tuple(groups)
    frame = groups.assign(p=chance, w=1.0 if weight is None else weight)
    parity = "selection_rate.difference.between_groups"
    settings = fairfix.Settings(intersect=len(names) > 1, only={parity})
    report = audit(frame, DataSpec(ColumnRoles(names, probability="p", weight="w")), settings)
    block = max((*report.attributes, *report.strata), key=lambda block: len(block.columns))
    return block.by_id[parity].value


# ---------------------------------------------------------------------- scikit-learn's own checks


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")  # in the checks
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        RepairedClassifier(LogisticRegression(), odd, gamma=0.5, cv=3),
        # linear regression gives predictions that are alike but for rounding, which a slack of 0 ranks
        # bins are of so many rows, and so a row of weight 2 is not two rows
        RepairedRegressor(DecisionTreeRegressor(max_depth=3, random_state=0), odd, bin_rows=1, cv=3),
    ],
    expected_failed_checks=lambda _: FAILING,
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    """The adapter keeps the contract of scikit-learn, but for the checks that cannot hold."""
    check(estimator)


# ---------------------------------------------------------------------- the repair


@pytest.mark.parametrize("slack", [0.0, 0.1])
@pytest.mark.parametrize("protected", ["sex", ["sex", "age"]])
def test_groups_are_selected_alike_on_the_rows_of_the_fit(slack: float, protected: Any) -> None:
    """With a fitted estimator, the audited gap of the fit rows is at most the slack; before, it was larger."""
    X, y = people()
    inner = base().fit(X.drop(columns=protected), y)
    model = RepairedClassifier(inner, protected, slack=slack, cv="prefit").fit(X, y)
    groups = X[[protected] if isinstance(protected, str) else protected]
    before = gap((inner.predict(X.drop(columns=protected)) == "yes").astype(float), groups)
    after = gap(model.predict_proba(X)[:, 1], groups)

    assert before > 0.2
    assert after <= slack + 1e-12
    assert after >= slack - 1e-9
    assert model.trace_.converged
    assert model.estimator_ is inner


@pytest.mark.parametrize("positive", ["yes", "no"])
def test_labels_reach_the_method(positive: str) -> None:
    """Equal opportunity equalises the positive decisions of those whose label is the positive class."""
    X, y = people()
    model = RepairedClassifier(
        fitted_base(X, y),
        ["sex", "age"],
        cv="prefit",
        pos_label=positive,
        constraint="equal_opportunity",
    ).fit(X, y)
    chance = model.predict_proba(X)[:, model.classes_.tolist().index(positive)]
    cells = (X["sex"] + X["age"]).to_numpy()

    def spread(label: str) -> float:
        return float(np.ptp([chance[(cells == cell) & (y == label)].mean() for cell in np.unique(cells)]))

    assert spread(positive) <= 1e-9
    assert spread("no" if positive == "yes" else "yes") > 0.01


@pytest.mark.parametrize("weighted", [False, True])
def test_the_repair_learns_from_out_of_fold_probabilities(weighted: bool) -> None:
    """The rule is that of the method for what cross_val_predict gives; models and rule get the weights."""
    X, y = people(400)
    weight = np.random.default_rng(1).random(len(X)) + 0.1 if weighted else np.ones(len(X))
    params, folds = {"sample_weight": weight} if weighted else {}, KFold(3, shuffle=True, random_state=3)
    model = logistic("sex", cv=folds, gamma=0.2)
    model.fit(X[["sex", "x"]], y, **params)
    score = cross_val_predict(
        LogisticRegression(), X[["x"]], y, cv=folds, method="predict_proba", params=params
    )[:, 1]
    frame = pd.DataFrame({"sex": X["sex"], "label": y == "yes", "score": score, "w": weight})
    table = read_table(frame, DataSpec(ColumnRoles(("sex",), label="label", score="score", weight="w")))
    rule = available()["ramp"](gamma=0.2).fit(RepairProblem(table), rng=np.random.default_rng(0))
    (settings, arrays), (other, expected) = model.predictor_.state(), rule.state()

    assert settings == other
    for name in arrays:
        np.testing.assert_allclose(arrays[name], expected[name], atol=1e-12)
    whole = LogisticRegression().fit(X[["x"]], y, **params)
    np.testing.assert_allclose(model.estimator_.coef_, whole.coef_)


def test_the_parts_of_the_default_folds_are_shuffled_and_seeded() -> None:
    """Two fits agree to the bit; another seed gives other folds and other draws, also where there are no folds."""
    X, y = people()
    X = X[["sex", "x"]]
    one, same, other = (
        RepairedClassifier(LogisticRegression(), "sex", random_state=seed).fit(X, y)
        for seed in (0, np.random.RandomState(0), 1)
    )

    assert one.predict_proba(X).tobytes() == same.predict_proba(X).tobytes()
    assert one.predict(X).tolist() == same.predict(X).tolist()
    assert one.predict_proba(X).tobytes() != other.predict_proba(X).tobytes()
    (plain, rows, _), (again, _, _) = wide(), wide(random_state=1)
    assert plain.predict_proba(rows).tobytes() == again.predict_proba(rows).tobytes()
    assert (plain.predict(rows) != again.predict(rows)).any()


# ---------------------------------------------------------------------- decisions


@cache
def wide(**settings: Any) -> tuple[RepairedClassifier, pd.DataFrame, np.ndarray]:
    """Return a repaired classifier that leaves many decisions to chance, and its rows."""
    X, y = people(2000)
    model = RepairedClassifier(fitted_base(X, y), ["sex", "age"], cv="prefit", gamma=1.0, **settings)
    return model.fit(X, y), X, y


def test_a_row_has_one_decision_in_any_batch() -> None:
    """Alone, in a part, backwards, before its like or as objects: the same row gets the same decision."""
    model, X, _ = wide()
    whole = model.predict(X)
    order = np.random.default_rng(0).permutation(len(X))

    assert 0.2 < is_random(model.predict_proba(X)[:, 1]).mean() < 1
    assert model.predict(X.iloc[order]).tolist() == whole[order].tolist()
    assert model.predict(X.iloc[:50]).tolist() == whole[:50].tolist()
    assert [model.predict(X.iloc[[i]])[0] for i in range(30)] == whole[:30].tolist()
    assert model.predict(pd.concat([X[:9], X[:9]]))[:9].tolist() == whole[:9].tolist()
    boxed = {name: pd.Series(list(X[name].to_numpy()), dtype=object) for name in ("x", "z", "member")}
    assert isinstance(boxed["x"][0], np.float64)
    assert model.predict(X.assign(**boxed)).tolist() == whole.tolist()


def test_equal_rows_are_decided_as_their_probability_says() -> None:
    """Of a row many times over, the share that is decided positively is its probability, not all or nothing."""
    model, X, _ = wide()
    chance = model.predict_proba(X)[:, 1]
    for i in np.flatnonzero(is_random(chance))[:5]:
        decided = model.predict(pd.concat([X.iloc[[i]]] * 400)) == model.classes_[1]
        assert decided.mean() == pytest.approx(chance[i], abs=8 / 400)


def test_decisions_follow_their_probabilities() -> None:
    """Certain rows are never drawn, and the share of positive decisions is its expectation, within 4 deviations."""
    model, X, _ = wide()
    chance, positive = model.predict_proba(X)[:, 1], model.predict(X) == "yes"
    deviation = np.sqrt((chance * (1 - chance)).sum())

    assert positive[chance == 1].all()
    assert not positive[chance == 0].any()
    assert abs((positive - chance).sum()) < 4 * deviation
    for part in (chance < 0.5, chance > 0.5):  # a cut at one half would fail here
        assert 0 < (positive & part & is_random(chance)).sum() < (part & is_random(chance)).sum()


def test_the_group_is_part_of_a_row() -> None:
    """Rows that differ in their group alone have draws of their own, as rows that differ in another value."""
    model, X, _ = wide()
    other = X.assign(sex=np.where(X["sex"] == "male", "female", "male"))
    less = model.predict_proba(X)[:, 1] <= model.predict_proba(other)[:, 1]

    assert (less & (model.predict(X) > model.predict(other))).any()


def test_missing_values_are_part_of_a_row() -> None:
    """Rows with missing values of any kind are decided, the same whatever stands for missing."""
    X, y = people(400)
    X = X[["sex", "x", "z"]].assign(z=X["z"].astype("Int64"))
    X.loc[::3, "z"] = pd.NA
    model = RepairedClassifier(HistGradientBoostingClassifier(max_iter=5), "sex", cv=2, gamma=2.0)
    decided = model.fit(X, y).predict(X)

    assert is_random(model.predict_proba(X)[:, 1]).any()
    assert decided.tolist() == model.predict(X.assign(z=X["z"].astype("float64"))).tolist()
    assert get_tags(model).input_tags.allow_nan
    assert not get_tags(logistic()).input_tags.allow_nan


@pytest.mark.parametrize("labels", [("no", "yes"), (False, True), (1, 2), (-1.0, 1.0), ("b", "a")])
def test_labels_of_any_type_are_kept(labels: tuple[Any, Any]) -> None:
    """Classes are those of y; the columns of predict_proba are in their order, whichever class is positive."""
    X, y = people(300)
    X = X[["sex", "x"]]
    named = np.array(labels, dtype=object if isinstance(labels[0], str) else None)[(y == "yes").astype(int)]
    plain = logistic("sex").fit(X, y == "yes")
    model = logistic("sex", pos_label=labels[1]).fit(X, named)
    column = model.classes_.tolist().index(labels[1])

    assert model.classes_.tolist() == sorted(labels)
    assert set(model.predict(X)) == set(labels)
    np.testing.assert_allclose(model.predict_proba(X)[:, column], plain.predict_proba(X)[:, 1])
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert ((model.predict(X) == labels[1]) == plain.predict(X)).all()


def test_a_decision_of_a_repaired_value_is_its_half() -> None:
    """A method that repairs values gives probabilities of the label; the same for the same row, undrawn."""
    X, y = people(900)
    X = X[["sex", "x"]].round(0)
    given: dict[str, Any] = {"method": "fair-regression", "slack": 0.02}
    model = logistic("sex", **given).fit(X, y)
    chance = model.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(model.predict(X) == model.classes_[1], chance >= 0.5)


# ---------------------------------------------------------------------- where groups come from


def test_groups_beside_x_equal_groups_in_x() -> None:
    """Columns of X, a function of X and labels beside X: the same probabilities and decisions."""
    X, y = people(300)
    bare, groups = X[["x", "z"]], X[["sex", "age"]]
    inside = logistic(["sex", "age"])
    inside.fit(whole := X[["sex", "x", "age", "z"]], y)
    beside, array = (logistic().fit(bare, y, protected=one) for one in (groups, groups.to_numpy().tolist()))
    function = logistic(lambda X: groups.loc[X.index]).fit(bare, y)

    for model, given in (
        (beside, {"protected": groups}),
        (beside, {"protected": groups.to_numpy()}),
        (array, {"protected": groups}),
        (function, {}),
    ):
        assert model.predict_proba(bare, **given).tobytes() == inside.predict_proba(whole).tobytes()
        assert model.predict(bare, **given).tolist() == inside.predict(whole).tolist()
    accuracy = np.mean(inside.predict(whole) == y)
    assert beside.score(bare, y, protected=groups) == inside.score(whole, y) == accuracy
    assert inside.protected_names_ == ("sex", "age")
    assert array.protected_names_ == ("protected_0", "protected_1")


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, np.ndarray.tolist])
def test_columns_of_arrays_are_named_by_position(kind: Any) -> None:
    """A position, also from the end, names a column of an array, of a sparse one, of lists and of a frame."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=300), rng.integers(0, 2, 300)])
    y = (X[:, 0] + X[:, 1] + rng.normal(size=300) > 0.5).astype(int)
    first = logistic(1).fit(kind(X), y)
    last = logistic(-1).fit(kind(X), y)
    frame = pd.DataFrame(X, columns=["a", "b"])
    named = logistic("b").fit(frame, y)

    assert first.estimator_.n_features_in_ == 1
    assert first.n_features_in_ == 2
    assert named.feature_names_in_.tolist() == ["a", "b"]
    assert first.predictor_.levels == (("0",), ("1",))
    assert first.protected_names_ == ("x1",)
    np.testing.assert_allclose(first.predict_proba(kind(X)), last.predict_proba(kind(X)))
    np.testing.assert_allclose(first.predict_proba(kind(X)), named.predict_proba(frame), atol=1e-9)
    assert first.predict(kind(X)).tolist() == named.predict(frame).tolist()


def test_whole_numbers_are_one_group_in_every_type() -> None:
    """Groups fitted as integers are known as floats, as booleans only if they were booleans."""
    X, y = people()
    bare, member = X[["x", "town", "z", "member"]], X["member"].astype(int).rename(None)
    model = RepairedClassifier(base()).fit(bare, y, protected=member)

    assert (
        model.predict_proba(bare, protected=member.astype(float)).tobytes()
        == model.predict_proba(bare, protected=member).tobytes()
    )
    with pytest.raises(InputError, match=r"group '(True|False)' of 'protected' was not in the training rows"):
        model.predict(bare, protected=member.astype(bool))


@pytest.mark.parametrize("drop", [True, False])
def test_the_estimator_sees_the_protected_columns_if_asked(drop: bool) -> None:
    """drop_protected says whether the estimator gets them; either way the groups are selected alike."""
    X, y = people()
    X = X[["sex", "x"]].assign(sex=(X["sex"] == "male").astype(int))
    model = logistic("sex", drop_protected=drop).fit(X, y)

    assert model.estimator_.feature_names_in_.tolist() == (["x"] if drop else ["sex", "x"])
    assert gap(model.predict_proba(X)[:, 1], X[["sex"]].astype(str)) < 0.05


def test_rows_of_text_can_have_groups_beside_them() -> None:
    """What the estimator takes, the adapter takes: here texts, one per row."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["loan", "house", "car", "risk", "late"], 4)) for _ in range(200)]
    y, groups = (np.array([word in text for text in texts]) for word in ("risk", "late"))
    model = RepairedClassifier(make_pipeline(CountVectorizer(), LogisticRegression()), gamma=1.0)
    whole = model.fit(texts, y, protected=groups).predict(texts, protected=groups)
    assert model.predict(texts[:5], protected=groups[:5]).tolist() == whole[:5].tolist()


# ---------------------------------------------------------------------- unseen groups


def test_an_unseen_group_is_named_or_gets_the_base_decision() -> None:
    """By default an unseen or missing group is an error; on request it gets the estimator's decision."""
    X, y = people()
    model = RepairedClassifier(base(), "sex", cv=2).fit(X, y)
    new = X.head(40).copy()
    new.loc[:9, "sex"] = "other"
    new.loc[10:19, "sex"] = None

    with pytest.raises(
        InputError, match=r"group 'other' of 'sex' .* \(10, .* of 40 rows\).*unseen='original'"
    ):
        model.predict(new)
    with pytest.raises(InputError, match=r"group '\(missing\)' of 'sex'"):
        model.predict_proba(new[10:])
    lenient = clone(model).set_params(unseen="original").fit(X, y)
    chance = lenient.predict_proba(new)[:, 1]
    decided = lenient.estimator_.predict(new.drop(columns="sex")) == "yes"
    assert chance[:20].tolist() == decided[:20].astype(float).tolist()
    assert chance[20:].tobytes() == model.predict_proba(new[20:])[:, 1].tobytes()


# ---------------------------------------------------------------------- weights and routing


def test_weight_two_is_the_row_twice() -> None:
    """With a fitted estimator, whole weights give the rule of repeated rows; weight 0 of removed ones."""
    X, y = people()
    weight = np.random.default_rng(1).integers(0, 4, len(X))
    repeated = X.index.repeat(weight)
    model = RepairedClassifier(fitted_base(X, y), ["sex", "age"], cv="prefit", gamma=0.3)
    weighted = clone(model).set_params(estimator=model.estimator).fit(X, y, sample_weight=weight)
    twice = model.fit(X.loc[repeated], y[repeated])
    plain = RepairedClassifier(model.estimator, ["sex", "age"], cv="prefit", gamma=0.3).fit(X, y)

    np.testing.assert_allclose(weighted.predict_proba(X), twice.predict_proba(X), atol=1e-12)
    assert weighted.predict(X).tolist() == twice.predict(X).tolist()
    assert np.abs(weighted.predict_proba(X) - plain.predict_proba(X)).max() > 1e-3
    assert gap(weighted.predict_proba(X)[:, 1], X[["sex", "age"]], weight) <= 1e-12


def test_an_estimator_without_weights_is_said() -> None:
    """An estimator that takes no weights is fitted without them, with a warning; a pipeline's step can have them."""
    X, y = people()
    weight = np.linspace(0.1, 1, len(X))
    numbers = X[["sex", "x"]]

    with pytest.warns(FairfixWarning, match=r"KNeighborsClassifier\.fit takes no sample_weight"):
        RepairedClassifier(KNeighborsClassifier(), "sex").fit(numbers, y, sample_weight=weight)
    step = make_pipeline(LogisticRegression())
    model = RepairedClassifier(step, "sex")
    model.fit(numbers, y, sample_weight=weight, logisticregression__sample_weight=weight)
    expected = LogisticRegression().fit(X[["x"]], y, sample_weight=weight).coef_
    np.testing.assert_allclose(model.estimator_[-1].coef_, expected)


def test_groups_and_weights_are_routed_through_a_pipeline() -> None:
    """With scikit-learn's routing, a pipeline hands groups and weights on, under the requests that were set."""
    X, y = people()
    groups, weight = X["sex"], np.random.default_rng(1).random(len(X)) + 0.1
    numbers = X[["x", "z"]]
    with sklearn.config_context(enable_metadata_routing=True):
        inner = LogisticRegression().set_fit_request(sample_weight=True)
        model = RepairedClassifier(inner, cv=2)
        model.set_fit_request(protected=True, sample_weight=True).set_predict_request(protected=True)
        model.set_predict_proba_request(protected=True).set_score_request(protected=True, sample_weight=True)
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        pipe.fit(numbers, y, protected=groups, sample_weight=weight)
        chance = pipe.predict_proba(numbers, protected=groups)
        decided = pipe.predict(numbers, protected=groups)
        accuracy = pipe.score(numbers, y, protected=groups)
        weighted = pipe.score(numbers, y, protected=groups, sample_weight=weight)
        scores = cross_val_score(
            pipe, numbers, y, cv=3, params={"protected": groups, "sample_weight": weight}
        )
        inside = logistic("sex").fit(X[["sex", "x", "z"]], y)
        unasked = make_pipeline(logistic())
        with pytest.raises(ValueError, match="protected"):
            unasked.fit(numbers, y, protected=groups)
    scaled = StandardScaler().fit_transform(numbers)
    by_hand = logistic().fit(scaled, y, sample_weight=weight, protected=groups)

    np.testing.assert_allclose(chance, by_hand.predict_proba(scaled, protected=groups), atol=1e-12)
    assert decided.tolist() == by_hand.predict(scaled, protected=groups).tolist()
    assert accuracy == np.mean(decided == y)
    assert np.isclose(weighted, np.average(decided == y, weights=weight))
    assert weighted != accuracy
    assert len(scores) == 3
    assert inside.score(X[["sex", "x", "z"]], y) > 0.5
    assert scores.min() > 0.5


# ---------------------------------------------------------------------- inside other tools


def test_it_works_in_a_pipeline_and_in_cross_validation() -> None:
    """A frame with text goes through both, also with a splitter that asks which rows belong together."""
    X, y = people()
    pipe = Pipeline([("keep", "passthrough"), ("model", RepairedClassifier(base(), ["sex", "age"], cv=2))])
    chance = cross_val_predict(pipe, X, y, cv=2, method="predict_proba")[:, 1]
    assert np.mean((chance > 0.5) == (y == "yes")) > 0.55
    assert gap(chance, X[["sex", "age"]]) < 0.15

    numbers, together = X[["sex", "x"]], np.arange(600) // 3
    with sklearn.config_context(enable_metadata_routing=True):
        model = logistic("sex", cv=GroupKFold(3))
        model.fit(numbers, y, groups=together)
    splits = list(GroupKFold(3).split(X, y, together))
    expected = logistic("sex", cv=splits).fit(numbers, y)
    assert model.predict_proba(numbers).tobytes() == expected.predict_proba(numbers).tobytes()


def test_other_ways_to_the_same_rule() -> None:
    """A frozen estimator is a fitted one, folds side by side are folds, and a saved object is the same."""
    X, y = people(200)
    X = X[["sex", "x"]]
    inner = LogisticRegression().fit(X[["x"]], y)
    plain, prefit = (RepairedClassifier(inner, "sex", cv=cv, gamma=1.0).fit(X, y) for cv in (5, "prefit"))
    with joblib.parallel_backend("threading"):
        both = RepairedClassifier(inner, "sex", gamma=1.0, n_jobs=2).fit(X, y)
    frozen = RepairedClassifier(FrozenEstimator(inner), "sex", gamma=1.0).fit(X, y)
    np.testing.assert_allclose(frozen.predict_proba(X), prefit.predict_proba(X), atol=1e-9)
    joblib.dump(plain, file := io.BytesIO())
    file.seek(0)
    for same in (both, pickle.loads(pickle.dumps(plain)), joblib.load(file)):
        assert same.predict_proba(X).tobytes() == plain.predict_proba(X).tobytes()
        assert same.predict(X).tolist() == plain.predict(X).tolist()


def test_a_grid_reaches_the_method_and_the_estimator() -> None:
    """Parameters of the method and of the estimator are axes of a grid, each with effect."""
    X, y = people(300)
    grid = {
        "gamma": [0.05, 0.5],
        "slack": [0.0, float("inf")],
        "estimator__C": [0.001, 1.0],
    }
    search = GridSearchCV(logistic("sex"), grid, cv=2, error_score="raise")
    search.fit(X[["sex", "x"]], y)

    assert len(search.cv_results_["params"]) == 8
    assert len(set(search.cv_results_["mean_test_score"])) > 3
    assert search.best_estimator_.get_params()["estimator__C"] == search.best_params_["estimator__C"]
    assert search.best_params_.items() <= search.best_estimator_.get_params().items()


def test_parameters_are_cloned_and_set() -> None:
    """A clone has the same parameters and shares none, also of a learner; set_params changes one alone."""
    model = logistic("sex", gamma=0.2)
    copy = clone(model).set_params(slack=0.1, estimator__C=2.0)

    assert copy.get_params() == model.get_params() | {
        "slack": 0.1, "estimator": copy.estimator, "estimator__C": 2.0
    }  # fmt: skip
    assert clone(copy).get_params(deep=False).keys() == copy.get_params(deep=False).keys()
    assert (model.gamma, hasattr(model, "slack"), model.estimator.C) == (0.2, False, 1.0)
    assert (
        pickle.loads(pickle.dumps(copy)).get_params(deep=False).keys() == copy.get_params(deep=False).keys()
    )
    with pytest.raises(ValueError, match="Invalid parameter 'D'"):
        copy.set_params(estimator__D=0.1)
    X, y = people(100)  # None is the default of the method, so that the method can be changed
    none, plain = (clone(model).set_params(gamma=one).fit(X[["sex", "x"]], y) for one in (None, 0.05))
    assert none.predictor_.gamma == available()["ramp"]().gamma
    assert plain.predictor_.gamma == 0.05
    learner = DecisionTreeRegressor(max_depth=4)
    given: dict[str, Any] = {"learner": learner, "solver": "reduction", "slack": 0.2, "group": "unused"}
    copied = clone(RepairedRegressor(LinearRegression(), "sex", **given)).set_params(learner__max_depth=3)
    assert (copied.learner.max_depth, learner.max_depth) == (3, 4)
    assert np.isfinite(copied.fit(X[["sex", "x"]], X["z"]).predict(X[["sex", "x"]])).all()
    assert not hasattr(learner, "tree_")


def test_parameters_of_methods_are_no_others_of_the_estimators() -> None:
    """Each has one meaning, as a description of noise has in both."""
    names = {name for method in available().values() for name in method.domains()} - {"noise"}
    for kind in (RepairedClassifier, RepairedRegressor):
        assert not names.intersection(inspect.signature(kind).parameters)


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "rampe"}, "method must be one of .*ramp"),
        ({"slak": 1}, "ramp has no parameter 'slak'; did you mean 'slack'"),
        ({"radius": 1}, "ramp has no parameter 'radius'; it has slack,.* gamma"),
        ({"slack": -1}, "ramp: slack must be at least 0"),
        ({"unseen": "abstain"}, "unseen must be 'error' or 'original', got 'abstain'"),
        ({"cv": "prefitted"}, "cv must be a number, a splitter or 'prefit', got 'prefitted'"),
        ({"pos_label": "maybe"}, r"pos_label='maybe' is not a class of y, which has \['no', 'yes'\]"),
        ({"estimator": LinearSVC()}, "LinearSVC has no predict_proba.*CalibratedClassifierCV"),
        ({"protected": "race"}, "protected names the column 'race', but X has columns sex, x"),
        ({"protected": 2}, "protected names the column 2, but X has columns sex, x"),
        ({"protected": None}, "give the groups once"),
        ({"protected": []}, "protected names no column"),
        ({"protected": ["sex", "sex"]}, "column 'sex' is given to"),
        ({"cv": TimeSeriesSplit(3)}, "cv must put every row into exactly one test part"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], message: str) -> None:
    """A wrong parameter is a ValueError and an error of fairfix, which names it."""
    X, y = people(100)
    model = logistic("sex").set_params(**settings)

    with pytest.raises(ValueError, match=message) as caught:
        model.fit(X[["sex", "x"]], y)
    assert isinstance(caught.value, DataError | UsageError)


class Logits(LogisticRegression):
    """A classifier whose predict_proba is none."""

    def predict_proba(self, X: Any) -> Any:
        """Return log odds."""
        return np.column_stack([-np.asarray(X)[:, 0], np.asarray(X)[:, 0]]) * 3


def test_data_that_cannot_be_repaired_is_named() -> None:
    """One group, a missing group, one class, three classes, wrong shapes: a ValueError that says which."""
    X, y = people(100)
    numbers, gone = X[["sex", "x"]], X["sex"].where(X.index % 3 > 0)
    plain = logistic("sex")
    inner = LogisticRegression().fit(X[["x"]], y == "yes")
    prefit = RepairedClassifier(inner, "sex", cv="prefit")
    cases: list[tuple[str, Any, Any, Any, dict[str, Any]]] = [
        ("'sex' has only the group 'male'", plain, numbers.assign(sex="male"), y, {}),
        (r"missing group \(sex\) in 34 of 100 rows", plain, numbers.assign(sex=gone), y, {}),
        (r"only one class or none: \['no'\]", plain, numbers, np.full(100, "no"), {}),
        ("Only binary classification is supported", plain, numbers, np.arange(100) % 3, {}),
        (r"has the shape \(3,\), but X has 100 rows", plain, numbers, y, {"sample_weight": [1, 2, 3]}),
        ("'sample_weight' holds -1", plain, numbers, y, {"sample_weight": -np.ones(100)}),
        ("once.*not both", plain, numbers, y, {"protected": X["age"]}),
        (
            r"'predict_proba' holds .* outside \[0, 1\]",
            clone(plain).set_params(estimator=Logits()),
            numbers,
            y,
            {},
        ),
        (r"the estimator has the classes .* but y has \['no', 'yes'\]", prefit, numbers, y, {}),
        ("so check_input has no effect", prefit, numbers, y, {"check_input": False}),
    ]
    for message, model, rows, labels, more in cases:
        with pytest.raises(ValueError, match=message) as caught:
            model.fit(rows, labels, **more)
        assert isinstance(caught.value, InputError | SettingError), message
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[100, 99\]"):
        logistic().fit(X[["x"]], y, protected=X["sex"][:99])
    with pytest.raises(NotFittedError):
        logistic("sex", cv="prefit").fit(numbers, y)
    plain.fit(numbers, y)
    with pytest.raises(InputError):
        plain.fit(numbers.assign(sex="male"), y)
    with pytest.raises(NotFittedError):  # the rule of the fit before is not used with another estimator
        plain.predict(numbers)


def test_rows_at_predict_must_be_those_of_the_fit() -> None:
    """Another number of columns, others by name or another order is a ValueError that lists both; groups too."""
    X, y = people(200)
    codes = X[["x"]].assign(sex=(X["sex"] == "male").astype(int))
    array = logistic(1).fit(codes.to_numpy(), y)
    frame = logistic("sex").fit(codes, y)
    beside = logistic().fit(X[["x"]], y, protected=X[["sex", "age"]])
    other = "but the fit had sex, age, in that order"
    cases: list[tuple[str, Any, Any, Any]] = [
        *((f"X has {width} features, .* expecting 2", array, np.ones((5, width)), None) for width in (1, 3)),
        ("feature names should match", frame, codes[["sex", "x"]], None),
        *((other, beside, X[["x"]], X[wrong]) for wrong in (["age", "sex"], ["sex", "town"], "sex")),
        (other, beside, X[["x"]], X["sex"].to_numpy()),
        ("give the groups once", beside, X[["x"]], None),
        ("inconsistent numbers of samples", beside, X[["x"]], X[["sex", "age"]][:5]),
    ]
    for message, model, rows, groups in cases:
        with pytest.raises(ValueError, match=message):
            model.predict(rows, protected=groups)


# ---------------------------------------------------------------------- house rules


@pytest.mark.slow
def test_the_examples_of_the_docs_run() -> None:
    """The Python of docs/sklearn.md runs in a checkout and prints what is shown, up to what versions change."""
    page = (ROOT / "docs" / "sklearn.md").read_text()
    example = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], cwd=ROOT, capture_output=True, text=True, check=False
    )
    number = r"\d\.\d{3}"

    assert done.returncode == 0, done.stderr
    assert re.sub(number, "N", done.stdout) == re.sub(number, "N", shown)
    printed, expected = (
        [float(found) for found in re.findall(number, text)] for text in (done.stdout, shown)
    )
    assert printed == pytest.approx(expected, abs=0.02)


def test_the_docs_list_the_failing_checks() -> None:
    """docs/sklearn.md names the checks that cannot hold, all of them and no others."""
    page = (ROOT / "docs" / "sklearn.md").read_text()

    assert set(re.findall(r"`(check_\w+)`", page)) == set(FAILING)


def test_noise_reaches_the_method() -> None:
    """With recorded groups that are wrong at a known rate, the rule rests on the table; others refuse it."""
    X, y = people(1500)
    frame = pd.DataFrame(
        {"true": ["a", "a", "b", "b"], "noisy": ["female", "male"] * 2, "count": [90, 10, 20, 80]}
    )
    base = LogisticRegression()
    numbers = X[["sex", "x"]]
    model = RepairedClassifier(base, "sex", cv=2, method="robust", slack=0.05, noise=frame)

    fitted = clone(model).fit(numbers, y)
    other = clone(model).set_params(noise=frame.assign(count=[99, 1, 1, 99])).fit(numbers, y)
    assert fitted.trace_.notes
    assert (fitted.predict_proba(numbers) != other.predict_proba(numbers)).any()
    near = clone(model).set_params(noise="radius:female=0.1,male=0.2").fit(numbers, y)
    assert any("relies on N0" in note for note in near.trace_.notes)
    sure = clone(model).set_params(assume="class-conditional").fit(numbers, y)
    assert any("relies on N4" in note for note in sure.trace_.notes)
    with pytest.raises(SettingError, match="assume=independent"):
        clone(model).set_params(assume="independent").fit(numbers, y)
    with pytest.raises(SettingError, match="noise"):
        clone(model).set_params(noise=None).fit(numbers, y)
    with pytest.raises(SettingError, match="noise"):
        clone(model).set_params(method="ramp", slack=None).fit(numbers, y)
    with pytest.raises(InputError, match="count"):
        clone(model).set_params(noise=frame.drop(columns="count")).fit(numbers, y)


# ---------------------------------------------------------------------- regressions


def incomes(rows: int = 900, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Return people and a number that is larger in one group, in thousands."""
    frame, _ = people(rows, seed)
    X = frame[["sex", "age", "x", "z"]]
    noise = np.random.default_rng(seed).normal(size=rows)
    return X, 30_000 + 5_000 * X["x"].to_numpy() + 900 * X["z"].to_numpy() + 2_000 * noise


@pytest.mark.parametrize("slack", [0.0, 0.1])
def test_predictions_of_groups_are_distributed_alike(slack: float) -> None:
    """On the rows of the fit, each group's predictions are within the slack of everybody's, in any unit."""
    X, y = incomes()
    base = LinearRegression().fit(X[["x", "z"]], y)
    model = RepairedRegressor(base, "sex", slack=slack, cv="prefit", drop_protected=True)
    numbers = X[["sex", "x", "z"]]
    value, plain = model.fit(numbers, y).predict(numbers), base.predict(X[["x", "z"]])

    def apart(values: np.ndarray) -> float:
        women = (X["sex"] == "female").to_numpy()
        return max(ks_2samp(values[part], values).statistic for part in (women, ~women))

    assert apart(plain) > 0.15
    assert apart(value) <= slack + 0.02  # values of ties are drawn
    assert model.score(numbers, y) > 0.5
    blind = clone(model).set_params(estimator=base, group="unused").fit(numbers, y)
    other = numbers.assign(sex=numbers["sex"].map({"female": "male", "male": "female"}))
    assert abs(value - model.predict(other)).max() > 100
    assert (
        blind.predict(numbers) == blind.predict(other)
    ).mean() > 0.8  # what is drawn hangs on the whole row
    assert slack or any("loses" in note for note in blind.trace_.notes)
    thousands = RepairedRegressor(LinearRegression().fit(X[["x", "z"]], y / 1000), "sex", cv="prefit")
    thousands.set_params(slack=slack).fit(numbers, y / 1000)
    np.testing.assert_allclose(1000 * thousands.predict(numbers), value, rtol=0.01)


def test_a_regressor_keeps_the_contract_of_the_classifier() -> None:
    """A row has one prediction in any batch, groups may stand beside X, and unseen ones are named or let through."""
    X, y = incomes()
    model = RepairedRegressor(LinearRegression(), ["sex", "age"], random_state=3).fit(X, y)
    value = model.predict(X)
    assert np.array_equal(model.predict(X[::-1])[::-1], value)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), value)
    beside = RepairedRegressor(LinearRegression(), random_state=3)
    beside.fit(X[["x", "z"]], y, protected=X[["sex", "age"]])
    assert np.array_equal(beside.predict(X[["x", "z"]], protected=X[["sex", "age"]]), value)
    new = X.head(4).assign(sex="other")
    with pytest.raises(InputError, match=r"group 'other & \w+' of 'sex x age'"):
        model.predict(new)
    lenient = clone(model).set_params(unseen="original").fit(X, y)
    assert np.array_equal(lenient.predict(new), lenient.estimator_.predict(new[["x", "z"]]))


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"method": "ramp"}, None, "ramp repairs classification, not regression"),
        ({"loss": "logistic"}, None, "use `loss=square`"),
        ({"estimator": LinearSVC()}, ["a", "b"] * 50, "could not convert string to float"),
        ({}, [1.0, np.nan] * 50, "Input y contains NaN"),
    ],
)
def test_regressions_that_cannot_be_repaired_are_named(
    settings: dict[str, Any], y: Any, message: str
) -> None:
    X, numbers = incomes(100)
    model = RepairedRegressor(LinearRegression(), "sex").set_params(**settings)
    with pytest.raises(ValueError, match=message):
        model.fit(X[["sex", "x"]], numbers if y is None else y)
    assert not hasattr(model, "predictor_")
