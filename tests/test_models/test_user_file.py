"""Laws of loading and scoring a user's model file."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from fairfix.cli import run
from fairfix.errors import ColumnError, FairfixWarning, ModelError
from fairfix.models.user_file import ScoringModel, described, file_hash, load_model
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from tests.strategies import examples

ROOT = Path(__file__).parents[2]


# ------------------------------------------------------------------------------- material
def numbers(n: int = 400, seed: int = 0) -> pd.DataFrame:
    """Three numeric columns."""
    return pd.DataFrame(np.random.default_rng(seed).normal(size=(n, 3)), columns=["age", "income", "debt"])


def label(frame: pd.DataFrame) -> np.ndarray:
    """A noisy binary label that depends on two of the columns."""
    noise = np.random.default_rng(9).normal(size=len(frame))
    return np.asarray(frame["age"].fillna(0) - 0.5 * frame["income"].fillna(0) + noise > 0)


def mixed(n: int, seed: int = 0) -> pd.DataFrame:
    """Numbers and texts, both with gaps, and a category."""
    rng = np.random.default_rng(seed)
    frame = numbers(n, seed)
    frame.loc[rng.random(n) < 0.1, "income"] = np.nan
    frame["job"] = rng.choice(np.array(["clerk", "farmer", "nurse", None], dtype=object), n)
    frame["region"] = pd.Categorical(rng.choice(["north", "south"], n))
    return frame


def columns_for_numbers_and_texts() -> Any:
    """What makes mixed columns fit for a linear model or a forest."""
    return make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "income", "debt"]),
        (OneHotEncoder(handle_unknown="ignore"), ["job", "region"]),
    )


@cache
def logistic() -> LogisticRegression:
    """A logistic regression that knows its columns; its classes are False and True."""
    return LogisticRegression().fit(numbers(), label(numbers()))


def coded(classes: list[Any]) -> np.ndarray:
    """The label, spelled with other classes."""
    return np.array(classes)[label(numbers()).astype(int) if len(classes) == 2 else three_way()]


def three_way() -> np.ndarray:
    """Classes 0, 1, 2 by the thirds of a column."""
    return np.digitize(numbers()["age"], [-0.5, 0.5])


def saved(model: Any, folder: Path, name: str = "model.joblib") -> tuple[Path, str]:
    """A model's file and its hash."""
    path = folder / name
    joblib.dump(model, path)
    return path, file_hash(path)


def loaded(model: Any, features: list[str] | None = None, positive_label: str = "") -> ScoringModel:
    """The model as it is described once its file is loaded."""
    return described("model.joblib", "sha256:0", model, features, (positive_label,) if positive_label else ())


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


class Predicts:
    """A model of nobody's library: all it can do is predict with a function given by name."""

    def __init__(self, answer: Callable[[Any], Any], **attributes: Any) -> None:
        self.answer = answer
        vars(self).update(attributes)

    def predict(self, table: Any) -> Any:
        return self.answer(table)


class Chances(Predicts):
    """The same with probabilities."""

    def predict_proba(self, table: Any) -> Any:
        return self.answer(table)


class Named(BaseEstimator):
    """A scikit-learn estimator without a declared type, whose labels are its first column's sign."""

    def fit(self, frame: pd.DataFrame, y: Any) -> Named:
        self.feature_names_in_ = np.array(frame.columns)
        self.classes_ = np.unique(y)
        return self

    def predict(self, frame: pd.DataFrame) -> Any:
        return self.classes_[(frame["age"] > 0).astype(int)]


def row_sums(table: np.ndarray) -> np.ndarray:
    return np.asarray(table, dtype=float).sum(axis=1)


def second_chance(table: np.ndarray) -> np.ndarray:
    high = 1 / (1 + np.exp(-table[:, 0]))
    return np.column_stack([1 - high, high])


def breaks(table: np.ndarray) -> np.ndarray:
    message = "the model\n   is out of order"
    raise RuntimeError(message)


def overwrites(table: pd.DataFrame) -> np.ndarray:
    table["age"] = 0.0
    return table["age"].to_numpy()


def sign_of(high: str, low: str) -> Callable[[np.ndarray], np.ndarray]:
    """What answers with one of two labels."""
    return lambda table: np.where(table[:, 0] > 0, high, low)


def always(answer: Any) -> Callable[[np.ndarray], np.ndarray]:
    """What answers the same for every row."""
    return lambda table: np.full(len(table), answer)


# ------------------------------------------------------------------------------- trust
@pytest.mark.parametrize("suffix", [".pkl", ".pickle", ".joblib", ".PKL"])
def test_a_pickle_is_refused_and_not_opened(tmp_path: Path, suffix: str) -> None:
    """Without a pin the trap does not spring, and the message says hash, option, reason and the safer way."""
    path, trapped = tmp_path / f"model{suffix}", tmp_path / "sprung"
    path.write_bytes(pickle.dumps(Trap(trapped)))
    with pytest.raises(ModelError) as refusal:
        load_model(path)
    assert not trapped.exists()
    for part in (f"`trust_model={file_hash(path)}`", "runs the code", "`score`"):
        assert part in str(refusal.value)


def test_the_trap_is_real(tmp_path: Path) -> None:
    """The same pickle does run code once its hash is pinned, so the refusal above protects from something."""
    path, trapped = tmp_path / "model.pkl", tmp_path / "sprung"
    path.write_bytes(pickle.dumps(Trap(trapped)))
    with pytest.raises(ModelError, match="NoneType"):
        load_model(path, trust=file_hash(path))
    assert trapped.exists()


def test_a_pin_of_another_file_opens_nothing(tmp_path: Path) -> None:
    """The pin is to bytes, not to a name: trust in one file does not open its replacement."""
    path, pinned = saved(logistic(), tmp_path)
    trapped = tmp_path / "sprung"
    path.write_bytes(pickle.dumps(Trap(trapped)))
    with pytest.raises(ModelError, match="not the one you trust") as refusal:
        load_model(path, trust=pinned)
    assert not trapped.exists()
    assert pinned in str(refusal.value)
    assert file_hash(path) in str(refusal.value)


def test_the_hashed_bytes_are_the_loaded_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file swapped between the hash and the load is not what gets loaded."""
    path, pinned = saved(logistic(), tmp_path)
    trapped = tmp_path / "sprung"
    real = hashlib.sha256

    def swapping(data: bytes) -> Any:
        path.write_bytes(pickle.dumps(Trap(trapped)))
        return real(data)

    monkeypatch.setattr(hashlib, "sha256", swapping)
    model = load_model(path, trust=pinned)
    assert not trapped.exists()
    assert isinstance(model.estimator, LogisticRegression)


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "in a zip"])
@pytest.mark.parametrize(
    "name", ["m.skops", "m.onnx", "m.json", "m.fairfix", "m.counts", "m", "m.pkl.onnx", "M.SKOPS"]
)
def test_a_pickle_under_another_name_is_not_opened(
    name: str, wrapped: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ending says who reads it, and nobody falls back on pickle, wherever the shell can name a file."""
    path, trapped, rows = tmp_path / name, tmp_path / "sprung", tmp_path / "d.csv"
    content = pickle.dumps(Trap(trapped))
    rows.write_text("sex,label,score,x\n" + "m,0,0.1,1\nf,1,0.9,2\n" * 20)
    path.write_bytes(content)
    if wrapped:
        with zipfile.ZipFile(path, "w") as archive:
            for member in ("schema.json", "manifest.json", "data.pkl", "arrays/x.npy"):
                archive.writestr(member, content)
    asked = ("--protected", "sex", "--config", "none")
    for line in (
        ("audit", rows, *asked, "--model", path),
        ("audit", rows, *asked, "--model", path, "--trust-model", file_hash(path)),
        ("predict", path, rows, "-o", tmp_path / "out.csv"),
        ("export", path),
        ("inspect", path),
        ("audit", path, "--config", "none"),
        ("audit", rows, *asked, "--baseline", path),
    ):
        assert run([str(word) for word in line]) == 2
    assert not trapped.exists()
    assert not (tmp_path / "out.csv").exists()


def test_a_pin_is_the_hash_of_sha256sum_in_either_case(tmp_path: Path) -> None:
    """The printed hash is plain SHA-256 of the file, and what a loaded model carries."""
    path, sha256 = saved(logistic(), tmp_path)
    assert sha256 == "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    assert load_model(path, trust=sha256).sha256 == load_model(path, trust=sha256.upper()).sha256 == sha256


@pytest.mark.parametrize(
    "trust", ["", "yes", "sha256:", "sha256:abc", "md5:" + "0" * 64, "0" * 64, "sha256:" + "g" * 64]
)
def test_a_malformed_pin_is_its_own_error(tmp_path: Path, trust: str) -> None:
    """A pin that is no hash is told apart from a hash that does not fit."""
    with pytest.raises(ModelError, match="64 hexadecimal digits"):
        load_model(tmp_path / "model.joblib", trust=trust)


# ------------------------------------------------------------------------------- skops
def skops_file(model: Any, folder: Path) -> Path:
    skops.io.dump(model, folder / "model.skops")
    return folder / "model.skops"


def test_a_harmless_skops_file_needs_no_pin(tmp_path: Path) -> None:
    """A logistic regression loads unpinned and scores as before; who pins a file means that file all the same."""
    model = load_model(skops_file(logistic(), tmp_path))
    np.testing.assert_array_equal(model.score(numbers()), logistic().predict_proba(numbers())[:, 1])
    with pytest.raises(ModelError, match="not the one you trust"):
        load_model(tmp_path / "model.skops", trust="sha256:" + "0" * 64)


def test_unknown_types_in_skops_are_listed_until_pinned(tmp_path: Path) -> None:
    """Types that skops does not know are refused by name; pinning the file trusts them."""
    forest = RandomForestClassifier(3, random_state=0).fit(numbers(), label(numbers()))
    path = skops_file(forest, tmp_path)
    types = skops.io.get_untrusted_types(file=path)
    assert types
    with pytest.raises(ModelError) as refusal:
        load_model(path)
    assert all(name in str(refusal.value) for name in (*types, f"`trust_model={file_hash(path)}`"))
    model = load_model(path, trust=file_hash(path))
    np.testing.assert_array_equal(model.score(numbers()), forest.predict_proba(numbers())[:, 1])


def test_skops_has_to_be_there_and_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One from before its code-execution holes were closed is not used; without one the message installs it."""
    path = skops_file(logistic(), tmp_path)
    monkeypatch.setattr(skops, "__version__", "0.11.0")
    with pytest.raises(ModelError, match=r"skops 0\.11\.0 .* upgrade"):
        load_model(path)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(ModelError, match=r"pip install 'fairfix\[skops\]'"):
        load_model(path)


# ------------------------------------------------------------------------------- files that are no models
KINDS = r"\.pkl, \.pickle, \.joblib, \.skops and \.onnx"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, KINDS) for name in ("model.h5", "model", "model.pkl.txt")),
        ("repaired.fairfix", r"`fairfix predict .*repaired\.fairfix DATA -o"),
        ("none.pkl", "does not exist"),
        ("folder.pkl", "is a directory"),
        ("empty.pkl", "is empty"),
    ],
)
def test_a_file_that_is_no_model_is_refused(name: str, message: str, tmp_path: Path) -> None:
    """A file of another kind with the kinds that work; each way of not being a file has its words."""
    path = tmp_path / name
    if name == "folder.pkl":
        path.mkdir()
    elif name != "none.pkl":
        path.write_bytes(b"" if name == "empty.pkl" else b"x")
    for ask in (load_model, file_hash) if name.endswith(".pkl") else (load_model,):
        with pytest.raises(ModelError, match=message):
            ask(path)


@pytest.mark.parametrize("suffix", [".pkl", ".joblib", ".skops"])
@pytest.mark.parametrize("damage", ["cut", "noise", "text"])
def test_a_damaged_file_is_one_line(tmp_path: Path, suffix: str, damage: str) -> None:
    """Whatever a loader raises on broken bytes becomes a ModelError of one line."""
    path = tmp_path / f"model{suffix}"
    whole = skops_file(logistic(), tmp_path) if suffix == ".skops" else saved(logistic(), tmp_path)[0]
    half = whole.read_bytes()[: whole.stat().st_size // 2]
    path.write_bytes({"cut": half, "noise": bytes(range(256)), "text": b"not a model\n"}[damage])
    with pytest.raises(ModelError, match="cannot be loaded") as refusal:
        load_model(path, trust=file_hash(path))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "thing", [{"model": 1}, SimpleNamespace(predict=3), StandardScaler(), LogisticRegression]
)
def test_what_cannot_score_is_named_by_type(thing: Any) -> None:
    """An object without a scoring method, or a class instead of a model, is refused by its type's name."""
    kind = thing if isinstance(thing, type) else type(thing)
    with pytest.raises(ModelError, match=kind.__qualname__):
        loaded(thing)


class Moody(Predicts):
    """Fails when asked for its columns."""

    @property
    def feature_names_in_(self) -> list[str]:
        message = "not now"
        raise RuntimeError(message)


def test_a_model_that_fails_to_describe_itself_is_a_model_error(tmp_path: Path) -> None:
    """Attributes that are code, and fail, do not look like a bug of fairfix."""
    path, sha256 = saved(Moody(row_sums), tmp_path)
    with pytest.raises(ModelError, match="RuntimeError: not now"):
        load_model(path, trust=sha256)


# ------------------------------------------------------------------------------- how a model is asked
def test_probability_comes_before_margin_before_label() -> None:
    """The first of predict_proba, decision_function and predict that a model offers is used."""
    X, y = numbers(), label(numbers())
    votes = [("a", DecisionTreeClassifier(max_depth=2)), ("b", LogisticRegression())]
    for model, kind, scale in (
        (logistic(), "predict_proba", "probability"),
        (LinearSVC().fit(X, y), "decision_function", "raw"),
        (VotingClassifier(votes).fit(X, y), "predict", "decision"),
        (LinearRegression().fit(X, X.age * 2 + y), "predict", "raw"),
        (RandomForestRegressor(3).fit(X, y.astype(float)), "predict", "raw"),
        (IsolationForest(n_estimators=5, random_state=0).fit(X), "decision_function", "raw"),
    ):
        scoring = loaded(model)
        assert (scoring.kind, scoring.score_scale) == (kind, scale)
        given = np.asarray(getattr(model, kind)(X), dtype=np.float64)
        scores = scoring.score(X)
        assert scores.dtype == np.float64
        wanted = given[:, 1] if given.ndim == 2 else given
        np.testing.assert_allclose(scores, wanted, rtol=1e-12, atol=1e-14)


def test_a_model_of_ones_own_needs_only_predict() -> None:
    """A class with nothing but predict is read as a number; with classes_, as a classifier's labels."""
    frame = numbers(10)
    number = loaded(Predicts(row_sums), ["age", "debt"])
    assert (number.kind, number.score_scale) == ("predict", "raw")
    np.testing.assert_array_equal(number.score(frame), frame.age + frame.debt)
    labels = Predicts(sign_of("yes", "no"), classes_=["no", "yes"])
    decision = loaded(labels, ["age"], "yes")
    assert decision.score_scale == "decision"
    np.testing.assert_array_equal(decision.score(frame), frame.age > 0)
    np.testing.assert_array_equal(loaded(labels, ["age"], "no").score(frame), frame.age <= 0)


def test_an_estimator_without_a_type_is_judged_by_its_classes() -> None:
    """A BaseEstimator that is neither classifier nor regressor by its tags is one if it has classes_."""
    model = loaded(Named().fit(numbers(), [0, 1]))
    assert model.score_scale == "decision"
    np.testing.assert_array_equal(model.score(numbers()), numbers()["age"] > 0)


def test_probabilities_without_classes_are_of_zero_and_one() -> None:
    """The second of two is the positive class unless the user says otherwise; one column is that of the second."""
    frame = numbers(10)
    wanted = second_chance(frame[["age"]].to_numpy())[:, 1]
    for model in (Chances(second_chance), Chances(lambda table: second_chance(table)[:, 1])):
        up, down = (loaded(model, ["age"], positive).score(frame) for positive in ("", "0"))
        np.testing.assert_array_equal(up, wanted)
        np.testing.assert_allclose(down, 1 - up)
    model.classes_ = [1, 0]
    np.testing.assert_array_equal(loaded(model, ["age"]).score(frame), down)


# ------------------------------------------------------------------------------- the positive class
MAKERS = [LogisticRegression, LinearSVC, lambda: VotingClassifier([("m", LinearSVC())])]
"""Models that give probabilities, margins and labels."""


@pytest.mark.parametrize("classes", [[0, 1], [False, True], [-1, 1], [0.0, 1.0], [0, 7], [-2, -1]])
@pytest.mark.parametrize("maker", MAKERS)
def test_the_larger_number_is_positive(classes: list[Any], maker: Callable[[], Any]) -> None:
    """However two numeric classes are coded, the scores are those of the same labels coded 0 and 1."""
    plain, other = (loaded(maker().fit(numbers(), coded(one))).score(numbers()) for one in ([0, 1], classes))
    np.testing.assert_array_equal(other, plain)


@pytest.mark.parametrize("classes", [["no", "yes"], ["zero", "yes"]])
@pytest.mark.parametrize("maker", MAKERS)
def test_text_classes_need_the_positive_one(classes: list[str], maker: Callable[[], Any]) -> None:
    """Text classes are listed until one is chosen; then the scores are those of the chosen class."""
    model = maker().fit(numbers(), coded(classes))
    with pytest.raises(ModelError, match=r"'yes'.*`label`"):
        loaded(model)
    with pytest.raises(ModelError, match=r"'maybe': this is not among .*'yes'"):
        loaded(model, positive_label="maybe")
    expected = loaded(maker().fit(numbers(), coded([c == "yes" for c in classes]))).score(numbers())
    found = loaded(model, positive_label="yes").score(numbers())
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_classes_one_and_two_are_not_guessed() -> None:
    """Where 'class 1' and 'the larger class' contradict each other, the user decides."""
    model = LogisticRegression().fit(numbers(), coded([1, 2]))
    with pytest.raises(ModelError, match=r"1 is often the positive class.*`label`"):
        loaded(model)
    sure = [loaded(model, positive_label=name).score(numbers()) for name in ("1", "2")]
    np.testing.assert_array_equal(np.column_stack(sure), model.predict_proba(numbers()))


@pytest.mark.parametrize("positive", ["0", "1", "2"])
def test_more_than_two_classes_are_one_against_the_rest(positive: str) -> None:
    """With three classes the user names one; its column, margin or label is the score."""
    X, y, column = numbers(), three_way(), int(positive)
    tree = DecisionTreeClassifier(max_depth=3).fit(X, y)
    margin = LinearSVC().fit(X, y)
    vote = VotingClassifier([("tree", tree)]).fit(X, y)
    for model, expected in (
        (tree, tree.predict_proba(X)[:, column]),
        (margin, margin.decision_function(X)[:, column]),
        (vote, vote.predict(X) == column),
    ):
        with pytest.raises(ModelError, match=r"more than two classes.*`label`"):
            loaded(model)
        np.testing.assert_allclose(loaded(model, positive_label=positive).score(X), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("maker", "labels", "message"),
    [
        (lambda: make_pipeline(SVC(decision_function_shape="ovo")), lambda: three_way(), "in pairs"),
        (DecisionTreeClassifier, lambda: np.ones(400), "single class"),
        (DecisionTreeClassifier, lambda: np.column_stack([coded([0, 1]), coded([1, 0])]), "2 labels at once"),
    ],
)
def test_models_without_a_score_of_one_class_are_refused(maker: Any, labels: Any, message: str) -> None:
    """Margins between pairs of three classes, a model that knows one class, and one that predicts two labels."""
    with pytest.raises(ModelError, match=message):
        loaded(maker().fit(numbers(), labels()), positive_label="2")


def test_the_label_column_may_have_other_names_for_classes() -> None:
    """A model trained on 0/1 scores class 1 where the labels say yes and no; a number has no positive class."""
    model = LogisticRegression().fit(numbers(), (numbers().age > numbers().age.median()).astype(int))
    named, plain = (loaded(model, positive_label=label) for label in ("yes", ""))

    np.testing.assert_array_equal(named.score(numbers()), plain.score(numbers()))
    number = loaded(LinearRegression().fit(numbers(), numbers().age), positive_label="yes")
    assert number.score_scale == "raw"


# ------------------------------------------------------------------------------- columns
@pytest.mark.parametrize(
    "wrap",
    [
        lambda: LogisticRegression(),
        lambda: make_pipeline(StandardScaler(), LogisticRegression()),
        lambda: Pipeline([("nothing", "passthrough"), ("model", LogisticRegression())]),
        lambda: GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), {}, cv=2),
        lambda: GridSearchCV(Pipeline([("nothing", "passthrough"), ("m", LogisticRegression())]), {}, cv=2),
    ],
)
def test_column_names_are_found_through_wrappers(wrap: Callable[[], Any]) -> None:
    """The names a model was fitted with are found on pipelines and searches too."""
    found = loaded(wrap().fit(numbers(), label(numbers())))
    assert found.feature_names == ("age", "income", "debt")


@settings(max_examples=examples(30))
@given(order=st.permutations(["age", "income", "debt", "extra", "more"]), named=st.booleans())
def test_column_order_and_extra_columns_are_irrelevant(order: list[str], named: bool) -> None:
    """Columns are found by name, for models that know their names and for those that were told them."""
    X = numbers()
    model = logistic() if named else LogisticRegression().fit(X.to_numpy(), label(X))
    scoring = loaded(model, None if named else ["age", "income", "debt"])
    np.testing.assert_array_equal(scoring.score(X.assign(extra="text", more=np.nan)[order]), scoring.score(X))


def test_a_model_fitted_on_arrays_must_be_told_its_columns() -> None:
    """Without names the user gives them, in the model's order, as many as the model was fitted on."""
    X = numbers()
    model = LogisticRegression().fit(X.to_numpy(), label(X))
    for features, message in (
        (None, r"`features` \(its n_features_in_ is 3\)"),
        (["age", "debt"], r"names 2 columns, .* fitted on 3"),
        (["age", "debt", "age"], "more than once"),
    ):
        with pytest.raises(ModelError, match=message):
            loaded(model, features)
    scoring = loaded(model, ["debt", "age", "income"])
    assert scoring.feature_names == ("debt", "age", "income")
    expected = model.predict_proba(X[["debt", "age", "income"]].to_numpy())[:, 1]
    np.testing.assert_allclose(scoring.score(X), expected, rtol=1e-13)


def test_given_features_must_agree_with_the_models_own() -> None:
    """``features`` may repeat a model's names in any order but not change them; Column_0, ... are no names."""
    assert loaded(logistic(), ["debt", "income", "age"]).feature_names == ("age", "income", "debt")
    with pytest.raises(ModelError, match="only the model has 'debt', only `features` has 'sex'"):
        loaded(logistic(), ["age", "income", "sex"])
    X = numbers().set_axis(["Column_0", "Column_1", "Column_2"], axis=1)  # LightGBM fitted on an array
    model = loaded(LogisticRegression().fit(X, label(numbers())), ["age", "income", "debt"])
    np.testing.assert_array_equal(model.score(numbers()), model.estimator.predict_proba(X)[:, 1])


def test_columns_that_are_missing_or_there_twice_are_named() -> None:
    """With what was probably meant and the beginning of what is there; unused columns do not matter."""
    model, frame = loaded(logistic()), numbers().assign(x=1, y=2)
    many = pd.DataFrame(np.zeros((3, 500)), columns=[f"c{i}" for i in range(500)])
    for wrong, message in (
        (frame.rename(columns={"income": "incme"}), r"no column 'income'; did you mean 'incme'\? it has:"),
        (many, r"c39, \.\.\.$"),
        (frame.rename(columns={"x": "age"}), "'age' more than once"),
        (frame.iloc[:0].drop(columns="debt"), "'debt'"),
    ):
        with pytest.raises(ColumnError, match=message):
            model.score(wrong)
    np.testing.assert_array_equal(model.score(frame.rename(columns={"x": "y"})), model.score(numbers()))
    assert model.score(numbers().iloc[:0]).shape == (0,)


def test_arrays_hold_numbers_with_gaps_and_texts() -> None:
    """A model fitted on arrays sees nullable numbers as floats with NaN, and mixed columns as objects."""
    X, y = mixed(400), label(numbers())
    X = X.assign(debt=X.debt.round().astype("Int64").where(X.debt < 1))
    entries = X[["income", "debt"]].to_numpy(float, na_value=np.nan)
    trees = HistGradientBoostingClassifier(max_iter=5).fit(entries, y)
    scores = loaded(trees, ["income", "debt"]).score(X)
    np.testing.assert_array_equal(scores, trees.predict_proba(entries)[:, 1])
    texts = X[["job", "region"]].to_numpy()
    encoded = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(texts, y)
    scores = loaded(encoded, ["job", "region"]).score(X)
    np.testing.assert_allclose(scores, encoded.predict_proba(texts)[:, 1])


# ------------------------------------------------------------------------------- answers of a model
def test_a_model_that_fails_is_quoted_in_one_line() -> None:
    """What the model raises becomes a ModelError of one line, with the cause kept.

    Only a model without feature_names_in_ fails for want of names, so only then they are mentioned.
    """
    plain = "plain array, since it has no feature_names_in_"
    for model, frame, message in (
        (loaded(Predicts(breaks), ["age"]), numbers(), "RuntimeError: the model is out of order"),
        (loaded(Predicts(breaks, feature_names_in_=["age"])), numbers(), r"out of order$"),
        (loaded(LogisticRegression(), ["age"]), numbers(), "NotFittedError"),
        (loaded(Predicts(overwrites), ["age"]), numbers(), plain),
        (loaded(logistic()), numbers().assign(age="old"), "could not convert string to float"),
    ):
        with pytest.raises(ModelError, match=message) as refusal:
            model.score(frame)
        assert "\n" not in str(refusal.value)
        assert refusal.value.__cause__ is not None


def test_the_model_has_rows_of_its_own() -> None:
    """No two rows of one name, whatever the table's index; and what is written into the input is in a copy."""
    lookup = Predicts(lambda table: [float(table.loc[row, "age"]) for row in table.index])
    lookup.feature_names_in_ = ["age"]
    frame = numbers(10)
    np.testing.assert_array_equal(loaded(lookup).score(frame.set_axis([7] * 10)), frame.age)
    assert (loaded(Predicts(overwrites, feature_names_in_=["age"])).score(frame) == 0).all()
    pd.testing.assert_frame_equal(frame, numbers(10))


def test_a_score_that_is_not_finite_names_the_row() -> None:
    """Rows are counted from 1, from where the frame's range begins if it has one."""
    model = loaded(Predicts(lambda table: np.where(table[:, 0] == 3, np.nan, 0.0)), ["x"])
    frame = pd.DataFrame({"x": np.arange(10)})
    ranged, named = frame.set_axis(pd.RangeIndex(65_536, 65_546)), frame.set_axis(list("abcdefghij"))
    for rows, number in ((frame, "4"), (ranged, "65,540"), (named, "4")):
        with pytest.raises(ModelError, match=f"row {number} as nan"):
            model.score(rows)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Chances(always(87.0)), "row 1 as 87.0, which is not a probability"),
        (Predicts(lambda table: table[:, :2]), "does not fit one value per row"),
        (Predicts(lambda _: np.zeros(1)), r"array of shape \(1,\)"),
        (Predicts(always("high")), "not a number"),
        (Predicts(always("high"), classes_=[0, 1]), "returned 'high', which is not among its classes 0, 1"),
        (Predicts(sign_of("1", "0"), classes_=[0, 1]), "'0', '1', which is not among its classes 0, 1"),
        (Predicts(lambda table: table[:, :2], classes_=[0, 1]), "labels of shape"),
        (Chances(second_chance, classes_=[0, 1, 2]), "does not fit the classes 0, 1, 2"),
    ],
)
def test_an_answer_that_is_no_score_is_refused(model: Any, message: str) -> None:
    """A wrong shape, a text, a stranger's label or a probability of 87 is an error, not a score."""
    positive = "1" if len(getattr(model, "classes_", ())) > 2 else ""
    with pytest.raises(ModelError, match=message):
        loaded(model, ["age", "debt"], positive).score(numbers())


def test_rounding_above_one_is_clipped_and_a_column_is_flattened() -> None:
    """Harmless habits of models are forgiven: a probability a hair above 1, an (n, 1) answer."""
    assert (loaded(Chances(always(1 + 1e-12)), ["age"]).score(numbers()) == 1).all()
    sums = loaded(Predicts(lambda table: row_sums(table)[:, None]), ["age", "debt"]).score(numbers())
    np.testing.assert_array_equal(sums, numbers().age + numbers().debt)


# ------------------------------------------------------------------------------- batches and runs
PIPELINES: dict[str, Callable[[], Any]] = {
    "logistic": lambda: make_pipeline(columns_for_numbers_and_texts(), LogisticRegression()),
    "forest": lambda: make_pipeline(
        columns_for_numbers_and_texts(),
        RandomForestClassifier(11, min_samples_leaf=7, n_jobs=2, random_state=0),
    ),
    "boosting": lambda: make_pipeline(
        make_column_transformer(
            (OneHotEncoder(sparse_output=False), ["job", "region"]), remainder="passthrough"
        ),
        HistGradientBoostingClassifier(max_iter=10),
    ),
    "arrays": lambda: LogisticRegression(),
}


def fitted_pipeline(name: str) -> ScoringModel:
    """A pipeline over mixed columns with gaps, or a model of arrays."""
    frame, names = mixed(1000, seed=1), ["age", "debt"]
    if name == "arrays":
        return loaded(PIPELINES[name]().fit(frame[names].to_numpy(), label(frame)), names)
    return loaded(PIPELINES[name]().fit(frame, label(frame)))


@pytest.mark.slow
@pytest.mark.parametrize("name", PIPELINES)
def test_batched_scores_are_the_scores_to_the_bit(name: str) -> None:
    """64k rows at a time, or any other cut, give the same bits as all rows at once."""
    model, frame = fitted_pipeline(name), mixed(2 * 65_536 + 1, seed=2)
    whole = model.score(frame)
    for size, rows in ((65_536, len(frame)), (9_973, len(frame)), (1, 30)):
        parts = [model.score(frame.iloc[i : i + size]) for i in range(0, rows, size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole[:rows])


def test_a_model_sees_a_bounded_number_of_rows() -> None:
    """However long the table, the model's memory is that of one block."""
    model = loaded(Predicts(lambda table: np.full(len(table), len(table))), ["x"])
    assert model.score(pd.DataFrame({"x": np.arange(200_000.0)})).max() == 65_536


def test_a_forest_that_uses_threads_scores_the_same_in_every_run() -> None:
    """Trees are added in their own order, not in the order in which threads finish."""
    model, frame = fitted_pipeline("forest"), mixed(20_000, seed=2)
    first = model.score(frame)
    for _ in range(5):
        np.testing.assert_array_equal(model.score(frame), first)


# ------------------------------------------------------------------------------- versions and imports
@pytest.mark.parametrize("suffix", [".joblib", ".skops"])
def test_another_version_of_scikit_learn_is_a_warning(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of another version is scored, with one warning of both versions at the caller's line."""
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(numbers(), label(numbers()))
    with monkeypatch.context() as patch:
        patch.setattr("sklearn.base.__version__", "1.2.3")
        path = skops_file(model, tmp_path) if suffix == ".skops" else saved(model, tmp_path)[0]
    with pytest.warns(FairfixWarning, match=r"1\.2\.3 .*\d+\.\d+") as told:
        scoring = load_model(path, trust=file_hash(path))
    assert [Path(warning.filename).name for warning in told] == [Path(__file__).name]
    assert np.isfinite(scoring.score(numbers())).all()
    with pytest.raises(FairfixWarning):  # a user's own filter decides, also here under "error"
        load_model(path, trust=file_hash(path))


class Grumbles(Predicts):
    """Warns while it is loaded."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        warnings.warn("I am old", UserWarning, stacklevel=1)


def test_other_warnings_of_a_load_are_passed_on(tmp_path: Path) -> None:
    """A warning of somebody else's loader is neither swallowed nor turned into a damaged file."""
    path, sha256 = saved(Grumbles(row_sums), tmp_path)
    with pytest.warns(UserWarning, match="I am old"):
        load_model(path, trust=sha256, features=["age"])


def test_importing_models_imports_no_library_of_models() -> None:
    """The audit path pays for pandas, scikit-learn, joblib and skops only when a model file is used."""
    heavy = {"pandas", "sklearn", "scipy", "joblib", "skops"}
    code = (
        f"import sys, fairfix.models.user_file, fairfix.models.learners; print(*({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
