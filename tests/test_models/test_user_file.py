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
from fairfix.models.user_file import ScoringModel, file_hash, load_model
from hypothesis import HealthCheck, given, settings
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


def loaded(model: Any, folder: Path, **options: Any) -> ScoringModel:
    """The model after a trip through a trusted file."""
    path, sha256 = saved(model, folder)
    return load_model(path, trust=sha256, **options)


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


def gap_in_fourth(table: np.ndarray) -> np.ndarray:
    return np.where(np.asarray(table)[:, 0] == 3, np.nan, 0.0)


def sign_labels(table: np.ndarray) -> np.ndarray:
    return np.where(table[:, 0] > 0, "yes", "no")


def text_digits(table: np.ndarray) -> np.ndarray:
    return np.where(table[:, 0] > 0, "1", "0")


def second_chance(table: np.ndarray) -> np.ndarray:
    high = 1 / (1 + np.exp(-table[:, 0]))
    return np.column_stack([1 - high, high])


def one_chance(table: np.ndarray) -> np.ndarray:
    return second_chance(table)[:, 1]


def a_hair_above_one(table: np.ndarray) -> np.ndarray:
    return np.full(len(table), 1 + 1e-12)


def percent(table: np.ndarray) -> np.ndarray:
    return np.full(len(table), 87.0)


def as_column(table: np.ndarray) -> np.ndarray:
    return row_sums(table)[:, None]


def two_numbers(table: np.ndarray) -> np.ndarray:
    return np.asarray(table[:, :2])


def single_answer(table: np.ndarray) -> np.ndarray:
    return np.zeros(1)


def block_sizes(table: np.ndarray) -> np.ndarray:
    return np.full(len(table), len(table))


def words(table: np.ndarray) -> np.ndarray:
    return np.full(len(table), "high")


def breaks(table: np.ndarray) -> np.ndarray:
    message = "the model\n   is out of order"
    raise RuntimeError(message)


def lookup(table: pd.DataFrame) -> np.ndarray:
    return np.array([float(table.loc[row, "age"]) for row in table.index])


def overwrites(table: pd.DataFrame) -> np.ndarray:
    table["age"] = 0.0
    return table["age"].to_numpy()


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


def test_the_hash_is_the_one_of_sha256sum(tmp_path: Path) -> None:
    """The printed hash is plain SHA-256 of the file, and what a loaded model carries."""
    path, sha256 = saved(logistic(), tmp_path)
    assert sha256 == "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    assert load_model(path, trust=sha256).sha256 == sha256


def test_a_pin_may_be_in_capitals(tmp_path: Path) -> None:
    """Hexadecimal digits mean the same in either case."""
    path, sha256 = saved(logistic(), tmp_path)
    assert load_model(path, trust=sha256.upper()).sha256 == sha256


@pytest.mark.parametrize(
    "trust", ["", "yes", "sha256:", "sha256:abc", "md5:" + "0" * 64, "0" * 64, "sha256:" + "g" * 64]
)
def test_a_malformed_pin_is_its_own_error(tmp_path: Path, trust: str) -> None:
    """A pin that is no hash is told apart from a hash that does not fit."""
    path, _ = saved(logistic(), tmp_path)
    with pytest.raises(ModelError, match="64 hexadecimal digits"):
        load_model(path, trust=trust)


# ------------------------------------------------------------------------------- skops
def skops_file(model: Any, folder: Path) -> Path:
    skops.io.dump(model, folder / "model.skops")
    return folder / "model.skops"


def test_a_harmless_skops_file_needs_no_pin(tmp_path: Path) -> None:
    """A logistic regression in a .skops file loads unpinned and scores as before."""
    model = load_model(skops_file(logistic(), tmp_path))
    np.testing.assert_array_equal(model.score(numbers()), logistic().predict_proba(numbers())[:, 1])


def test_unknown_types_in_skops_are_listed_until_pinned(tmp_path: Path) -> None:
    """Types that skops does not know are refused by name; pinning the file trusts them."""
    forest = RandomForestClassifier(3, random_state=0).fit(numbers(), label(numbers()))
    path = skops_file(forest, tmp_path)
    types = skops.io.get_untrusted_types(file=path)
    assert types
    with pytest.raises(ModelError) as refusal:
        load_model(path)
    assert all(name in str(refusal.value) for name in types)
    assert f"`trust_model={file_hash(path)}`" in str(refusal.value)
    model = load_model(path, trust=file_hash(path))
    np.testing.assert_array_equal(model.score(numbers()), forest.predict_proba(numbers())[:, 1])


def test_a_wrong_pin_refuses_even_a_harmless_skops_file(tmp_path: Path) -> None:
    """Who pins a file means that file, also where no pin was needed."""
    with pytest.raises(ModelError, match="not the one you trust"):
        load_model(skops_file(logistic(), tmp_path), trust="sha256:" + "0" * 64)


def test_skops_missing_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without skops the message is the command that installs it."""
    path = skops_file(logistic(), tmp_path)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(ModelError, match=r"pip install 'fairfix\[skops\]'"):
        load_model(path)


def test_an_unsafe_skops_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A skops from before its code-execution holes were closed is not used."""
    path = skops_file(logistic(), tmp_path)
    monkeypatch.setattr(skops, "__version__", "0.11.0")
    with pytest.raises(ModelError, match=r"skops 0\.11\.0 .* upgrade"):
        load_model(path)


# ------------------------------------------------------------------------------- files that are no models
@pytest.mark.parametrize("name", ["model.h5", "model", "model.pkl.txt"])
def test_an_unknown_suffix_names_the_known(tmp_path: Path, name: str) -> None:
    """A file of another kind is refused with the list of kinds that work."""
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(ModelError, match=r"\.pkl, \.pickle, \.joblib, \.skops and \.onnx"):
        load_model(tmp_path / name)


def test_a_repaired_predictor_is_told_its_command(tmp_path: Path) -> None:
    """It decides, so it is predicted with, and what it decided is audited."""
    (tmp_path / "repaired.fairfix").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"`fairfix predict .*repaired\.fairfix DATA -o"):
        load_model(tmp_path / "repaired.fairfix")


@pytest.mark.parametrize("ask", [load_model, file_hash])
def test_missing_file_directory_and_empty_file_are_told_apart(
    tmp_path: Path, ask: Callable[[Path], Any]
) -> None:
    """Each way of not being a file has its words."""
    (tmp_path / "folder.pkl").mkdir()
    (tmp_path / "empty.pkl").touch()
    with pytest.raises(ModelError, match="does not exist"):
        ask(tmp_path / "none.pkl")
    with pytest.raises(ModelError, match="is a directory"):
        ask(tmp_path / "folder.pkl")
    with pytest.raises(ModelError, match="is a directory"):
        ask(tmp_path)
    with pytest.raises(ModelError, match="is empty"):
        ask(tmp_path / "empty.pkl")


@pytest.mark.parametrize("suffix", [".pkl", ".joblib", ".skops"])
@pytest.mark.parametrize("damage", ["cut", "noise", "text"])
def test_a_damaged_file_is_one_line(tmp_path: Path, suffix: str, damage: str) -> None:
    """Whatever a loader raises on broken bytes becomes a ModelError of one line."""
    path = tmp_path / f"model{suffix}"
    whole = (
        skops_file(logistic(), tmp_path) if suffix == ".skops" else saved(logistic(), tmp_path, path.name)[0]
    )
    data = whole.read_bytes()
    path.write_bytes(
        {"cut": data[: len(data) // 2], "noise": bytes(range(256)), "text": b"not a model\n"}[damage]
    )
    with pytest.raises(ModelError, match="cannot be loaded") as refusal:
        load_model(path, trust=file_hash(path))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "thing", [{"model": 1}, SimpleNamespace(predict=3), StandardScaler(), LogisticRegression]
)
def test_what_cannot_score_is_named_by_type(tmp_path: Path, thing: Any) -> None:
    """An object without a scoring method, or a class instead of a model, is refused by its type's name."""
    kind = thing if isinstance(thing, type) else type(thing)
    with pytest.raises(ModelError, match=kind.__qualname__):
        loaded(thing, tmp_path)


class Moody(Predicts):
    """Fails when asked for its columns."""

    @property
    def feature_names_in_(self) -> list[str]:
        message = "not now"
        raise RuntimeError(message)


def test_a_model_that_fails_to_describe_itself_is_a_model_error(tmp_path: Path) -> None:
    """Attributes that are code, and fail, do not look like a bug of fairfix."""
    with pytest.raises(ModelError, match="RuntimeError: not now"):
        loaded(Moody(row_sums), tmp_path)


# ------------------------------------------------------------------------------- how a model is asked
def test_probability_comes_before_margin_before_label(tmp_path: Path) -> None:
    """The first of predict_proba, decision_function and predict that a model offers is used."""
    X, y = numbers(), label(numbers())
    by_vote = VotingClassifier([("a", DecisionTreeClassifier(max_depth=2)), ("b", LogisticRegression())]).fit(
        X, y
    )
    for model, kind, scale, expected in (
        (logistic(), "predict_proba", "probability", logistic().predict_proba(X)[:, 1]),
        ((svm := LinearSVC().fit(X, y)), "decision_function", "raw", svm.decision_function(X)),
        (by_vote, "predict", "decision", by_vote.predict(X).astype(float)),
        ((line := LinearRegression().fit(X, X.age * 2 + y)), "predict", "raw", line.predict(X)),
        ((wood := RandomForestRegressor(3).fit(X, y.astype(float))), "predict", "raw", wood.predict(X)),
        (
            (odd := IsolationForest(n_estimators=5, random_state=0).fit(X)),
            "decision_function",
            "raw",
            odd.decision_function(X),
        ),
    ):
        scoring = loaded(model, tmp_path)
        assert (scoring.kind, scoring.score_scale) == (kind, scale)
        scores = scoring.score(X)
        assert scores.dtype == np.float64
        np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-14)


def test_a_model_of_ones_own_needs_only_predict(tmp_path: Path) -> None:
    """A class with nothing but predict is read as a number; with classes_, as a classifier's labels."""
    frame = numbers(10)
    number = loaded(Predicts(row_sums), tmp_path, features=["age", "debt"])
    assert (number.kind, number.score_scale) == ("predict", "raw")
    np.testing.assert_array_equal(number.score(frame), frame.age + frame.debt)
    labels = Predicts(sign_labels, classes_=["no", "yes"])
    decision = loaded(labels, tmp_path, features=["age"], positive_label="yes")
    assert decision.score_scale == "decision"
    np.testing.assert_array_equal(decision.score(frame), frame.age > 0)
    against = loaded(labels, tmp_path, features=["age"], positive_label="no")
    np.testing.assert_array_equal(against.score(frame), frame.age <= 0)


def test_an_estimator_without_a_type_is_judged_by_its_classes(tmp_path: Path) -> None:
    """A BaseEstimator that is neither classifier nor regressor by its tags is one if it has classes_."""
    model = loaded(Named().fit(numbers(), [0, 1]), tmp_path)
    assert model.score_scale == "decision"
    np.testing.assert_array_equal(model.score(numbers()), numbers()["age"] > 0)


def test_probabilities_without_classes_are_of_zero_and_one(tmp_path: Path) -> None:
    """Without classes_, the second of two columns is the positive class, unless the user says otherwise."""
    frame = numbers(10)
    up = loaded(Chances(second_chance), tmp_path, features=["age"]).score(frame)
    down = loaded(Chances(second_chance), tmp_path, features=["age"], positive_label="0").score(frame)
    np.testing.assert_array_equal(up, second_chance(frame[["age"]].to_numpy())[:, 1])
    np.testing.assert_allclose(up + down, 1)


def test_one_probability_per_row_is_that_of_the_second_class(tmp_path: Path) -> None:
    """A model that answers with one column speaks of its second class, so the first has the rest."""
    up = loaded(Chances(one_chance), tmp_path, features=["age"]).score(numbers())
    down = loaded(Chances(one_chance), tmp_path, features=["age"], positive_label="0").score(numbers())
    turned = loaded(Chances(one_chance, classes_=[1, 0]), tmp_path, features=["age"]).score(numbers())
    np.testing.assert_array_equal(up, one_chance(numbers()[["age"]].to_numpy()))
    np.testing.assert_array_equal(down, 1 - up)
    np.testing.assert_array_equal(turned, down)


# ------------------------------------------------------------------------------- the positive class
@pytest.mark.parametrize("classes", [[0, 1], [False, True], [-1, 1], [0.0, 1.0], [0, 7], [-2, -1]])
@pytest.mark.parametrize(
    "maker", [LogisticRegression, LinearSVC, lambda: VotingClassifier([("m", LinearSVC())])]
)
def test_the_larger_number_is_positive(tmp_path: Path, classes: list[Any], maker: Callable[[], Any]) -> None:
    """However two numeric classes are coded, the scores are those of the same labels coded 0 and 1."""
    plain = loaded(maker().fit(numbers(), coded([0, 1])), tmp_path).score(numbers())
    np.testing.assert_array_equal(
        loaded(maker().fit(numbers(), coded(classes)), tmp_path).score(numbers()), plain
    )


@pytest.mark.parametrize("classes", [["no", "yes"], ["zero", "yes"]])
@pytest.mark.parametrize(
    "maker", [LogisticRegression, LinearSVC, lambda: VotingClassifier([("m", LinearSVC())])]
)
def test_text_classes_need_the_positive_one(
    tmp_path: Path, classes: list[str], maker: Callable[[], Any]
) -> None:
    """Text classes are listed until one is chosen; then the scores are those of the chosen class."""
    model = maker().fit(numbers(), coded(classes))
    with pytest.raises(ModelError, match=r"'yes'.*`label`"):
        loaded(model, tmp_path)
    with pytest.raises(ModelError, match=r"'maybe': this is not among .*'yes'"):
        loaded(model, tmp_path, positive_label="maybe")
    target = coded([c == "yes" for c in classes])
    expected = loaded(maker().fit(numbers(), target), tmp_path).score(numbers())
    np.testing.assert_allclose(
        loaded(model, tmp_path, positive_label="yes").score(numbers()), expected, atol=1e-3
    )


def test_classes_one_and_two_are_not_guessed(tmp_path: Path) -> None:
    """Where 'class 1' and 'the larger class' contradict each other, the user decides."""
    model = LogisticRegression().fit(numbers(), coded([1, 2]))
    with pytest.raises(ModelError, match=r"1 is often the positive class.*`label`"):
        loaded(model, tmp_path)
    sure = [loaded(model, tmp_path, positive_label=name).score(numbers()) for name in ("1", "2")]
    np.testing.assert_array_equal(np.column_stack(sure), model.predict_proba(numbers()))


@pytest.mark.parametrize("positive", ["0", "1", "2"])
def test_more_than_two_classes_are_one_against_the_rest(tmp_path: Path, positive: str) -> None:
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
            loaded(model, tmp_path)
        np.testing.assert_allclose(
            loaded(model, tmp_path, positive_label=positive).score(X), expected, rtol=1e-12
        )


def test_margins_between_pairs_are_refused(tmp_path: Path) -> None:
    """Three classes compared in pairs give three columns too, but none of them is a class."""
    model = make_pipeline(SVC(decision_function_shape="ovo")).fit(numbers(), three_way())
    with pytest.raises(ModelError, match="in pairs"):
        loaded(model, tmp_path, positive_label="2")


def test_a_single_class_and_several_labels_at_once_are_refused(tmp_path: Path) -> None:
    """A model that knows one class, or predicts two labels, has no score."""
    with pytest.raises(ModelError, match="single class"):
        loaded(DecisionTreeClassifier().fit(numbers(), np.ones(400)), tmp_path)
    both = np.column_stack([coded([0, 1]), coded([1, 0])])
    with pytest.raises(ModelError, match="2 labels at once"):
        loaded(DecisionTreeClassifier().fit(numbers(), both), tmp_path)


def test_a_number_has_no_positive_class(tmp_path: Path) -> None:
    """``positive_label`` is for the label column where the model predicts a number."""
    model = loaded(LinearRegression().fit(numbers(), numbers().age), tmp_path, positive_label="yes")

    assert model.score_scale == "raw"


def test_encoded_classes_go_with_named_labels(tmp_path: Path) -> None:
    """A model trained on 0/1 scores class 1, also where the label column says yes and no."""
    target = (numbers().age > numbers().age.median()).astype(int)
    model = LogisticRegression().fit(numbers(), target)
    named, plain = (loaded(model, tmp_path, positive_label=label) for label in ("yes", None))

    np.testing.assert_array_equal(named.score(numbers()), plain.score(numbers()))


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
def test_column_names_are_found_through_wrappers(tmp_path: Path, wrap: Callable[[], Any]) -> None:
    """The names a model was fitted with are found on pipelines and searches too."""
    assert loaded(wrap().fit(numbers(), label(numbers())), tmp_path).feature_names == (
        "age",
        "income",
        "debt",
    )


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(["age", "income", "debt", "extra", "more"]), named=st.booleans())
def test_column_order_and_extra_columns_are_irrelevant(tmp_path: Path, order: list[str], named: bool) -> None:
    """Columns are found by name, for models that know their names and for those that were told them."""
    X = numbers()
    names = ["age", "income", "debt"]
    model = logistic() if named else LogisticRegression().fit(X.to_numpy(), label(X))
    scoring = loaded(model, tmp_path, features=None if named else names)
    np.testing.assert_array_equal(scoring.score(X.assign(extra="text", more=np.nan)[order]), scoring.score(X))


def test_a_model_fitted_on_arrays_must_be_told_its_columns(tmp_path: Path) -> None:
    """Without names the user gives them, in the model's order, as many as the model was fitted on."""
    X = numbers()
    model = LogisticRegression().fit(X.to_numpy(), label(X))
    with pytest.raises(ModelError, match=r"`features` \(its n_features_in_ is 3\)"):
        loaded(model, tmp_path)
    with pytest.raises(ModelError, match=r"names 2 columns, .* fitted on 3"):
        loaded(model, tmp_path, features=["age", "debt"])
    with pytest.raises(ModelError, match="more than once"):
        loaded(model, tmp_path, features=["age", "debt", "age"])
    scoring = loaded(model, tmp_path, features=["debt", "age", "income"])
    assert scoring.feature_names == ("debt", "age", "income")
    expected = model.predict_proba(X[["debt", "age", "income"]].to_numpy())[:, 1]
    np.testing.assert_allclose(scoring.score(X), expected, rtol=1e-13)


def test_given_features_must_agree_with_the_models_own(tmp_path: Path) -> None:
    """For a model that knows its names, ``features`` may repeat them in any order but not change them."""
    model = loaded(logistic(), tmp_path, features=["debt", "income", "age"])
    assert model.feature_names == ("age", "income", "debt")
    with pytest.raises(ModelError, match="only the model has 'debt', only `features` has 'sex'"):
        loaded(logistic(), tmp_path, features=["age", "income", "sex"])


def test_names_made_up_for_arrays_give_way_to_the_users(tmp_path: Path) -> None:
    """Column_0, Column_1, ... (LightGBM fitted on an array) are places, not names."""
    X = numbers().set_axis(["Column_0", "Column_1", "Column_2"], axis=1)
    model = loaded(
        LogisticRegression().fit(X, label(numbers())), tmp_path, features=["age", "income", "debt"]
    )
    np.testing.assert_array_equal(model.score(numbers()), model.estimator.predict_proba(X)[:, 1])


def test_a_missing_column_is_named_with_the_nearest_name(tmp_path: Path) -> None:
    """The message says what is missing, what was probably meant, and the beginning of what is there."""
    frame = numbers().rename(columns={"income": "incme"})
    with pytest.raises(ColumnError, match=r"no column 'income'; did you mean 'incme'\? it has: age, "):
        loaded(logistic(), tmp_path).score(frame)
    frame = pd.DataFrame(np.zeros((3, 500)), columns=[f"c{i}" for i in range(500)])
    with pytest.raises(ColumnError, match=r"c39, \.\.\.$"):
        loaded(logistic(), tmp_path).score(frame)


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Two columns of one name are no choice to make in silence; unused ones do not matter."""
    model = loaded(logistic(), tmp_path)
    frame = numbers().assign(x=1, y=2)
    with pytest.raises(ColumnError, match="'age' more than once"):
        model.score(frame.rename(columns={"x": "age"}))
    np.testing.assert_array_equal(model.score(frame.rename(columns={"x": "y"})), model.score(numbers()))


def test_arrays_hold_numbers_with_gaps_and_texts(tmp_path: Path) -> None:
    """A model fitted on arrays sees nullable numbers as floats with NaN, and mixed columns as objects."""
    X, y = mixed(400), label(numbers())
    X = X.assign(debt=X.debt.round().astype("Int64").where(X.debt < 1))
    trees = HistGradientBoostingClassifier(max_iter=5).fit(
        X[["income", "debt"]].to_numpy(float, na_value=np.nan), y
    )
    scores = loaded(trees, tmp_path, features=["income", "debt"]).score(X)
    expected = trees.predict_proba(X[["income", "debt"]].to_numpy(float, na_value=np.nan))[:, 1]
    np.testing.assert_array_equal(scores, expected)
    encoded = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(X[["job", "region"]].to_numpy(), y)
    scores = loaded(encoded, tmp_path, features=["job", "region"]).score(X)
    np.testing.assert_allclose(scores, encoded.predict_proba(X[["job", "region"]].to_numpy())[:, 1])


# ------------------------------------------------------------------------------- answers of a model
def test_a_model_that_fails_is_quoted_in_one_line(tmp_path: Path) -> None:
    """What the model raises on the data becomes a ModelError of one line, with the cause kept."""
    with pytest.raises(ModelError, match="RuntimeError: the model is out of order") as refusal:
        loaded(Predicts(breaks), tmp_path, features=["age"]).score(numbers())
    assert isinstance(refusal.value.__cause__, RuntimeError)
    with pytest.raises(ModelError, match="NotFittedError"):
        loaded(LogisticRegression(), tmp_path, features=["age"]).score(numbers())
    with pytest.raises(ModelError, match="could not convert string to float") as refusal:
        loaded(logistic(), tmp_path).score(numbers().assign(age="old"))
    assert "\n" not in str(refusal.value)


def test_a_model_that_wanted_names_is_told_why_it_got_none(tmp_path: Path) -> None:
    """Only a model without feature_names_in_ fails for want of names, so only then they are mentioned."""
    with pytest.raises(ModelError, match="plain array, since it has no feature_names_in_"):
        loaded(Predicts(overwrites), tmp_path, features=["age"]).score(numbers())
    with pytest.raises(ModelError, match=r"out of order$"):
        loaded(Predicts(breaks, feature_names_in_=["age"]), tmp_path).score(numbers())


def test_the_model_sees_every_row_under_its_own_index(tmp_path: Path) -> None:
    """Neither filling up a block nor a table's own index gives the model two rows of one name."""
    model = loaded(Predicts(lookup, feature_names_in_=["age"]), tmp_path)
    frame = numbers(10)
    np.testing.assert_array_equal(model.score(frame.set_axis([7] * 10)), frame.age)


def test_a_score_that_is_not_finite_names_the_row(tmp_path: Path) -> None:
    """Rows are counted from 1, from where the frame's range begins if it has one."""
    model = loaded(Predicts(gap_in_fourth), tmp_path, features=["x"])
    frame = pd.DataFrame({"x": np.arange(10)})
    with pytest.raises(ModelError, match="row 4 as nan"):
        model.score(frame)
    with pytest.raises(ModelError, match="row 65,540 as nan"):
        model.score(frame.set_axis(pd.RangeIndex(65_536, 65_546)))
    with pytest.raises(ModelError, match="row 4 as nan"):
        model.score(frame.set_axis(list("abcdefghij")))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Chances(percent), "row 1 as 87.0, which is not a probability"),
        (Predicts(two_numbers), "does not fit one value per row"),
        (Predicts(single_answer), r"array of shape \(1,\)"),
        (Predicts(words), "not a number"),
        (Predicts(words, classes_=[0, 1]), "returned 'high', which is not among its classes 0, 1"),
        (Predicts(text_digits, classes_=[0, 1]), "returned '0', '1', which is not among its classes 0, 1"),
        (Predicts(two_numbers, classes_=[0, 1]), "labels of shape"),
        (Chances(second_chance, classes_=[0, 1, 2]), "does not fit the classes 0, 1, 2"),
    ],
)
def test_an_answer_that_is_no_score_is_refused(tmp_path: Path, model: Any, message: str) -> None:
    """A wrong shape, a text, a stranger's label or a probability of 87 is an error, not a score."""
    positive = "1" if len(getattr(model, "classes_", ())) > 2 else None
    with pytest.raises(ModelError, match=message):
        loaded(model, tmp_path, features=["age", "debt"], positive_label=positive).score(numbers())


def test_rounding_above_one_is_clipped_and_a_column_is_flattened(tmp_path: Path) -> None:
    """Harmless habits of models are forgiven: a probability a hair above 1, an (n, 1) answer."""
    assert (loaded(Chances(a_hair_above_one), tmp_path, features=["age"]).score(numbers()) == 1).all()
    sums = loaded(Predicts(as_column), tmp_path, features=["age", "debt"]).score(numbers())
    np.testing.assert_array_equal(sums, numbers().age + numbers().debt)


def test_the_users_table_is_untouched(tmp_path: Path) -> None:
    """A model that writes into its input writes into a copy."""
    frame = numbers()
    model = loaded(Predicts(overwrites, feature_names_in_=["age"]), tmp_path)
    assert (model.score(frame) == 0).all()
    pd.testing.assert_frame_equal(frame, numbers())


def test_no_rows_no_scores(tmp_path: Path) -> None:
    """An empty batch has no scores, but its columns are still checked."""
    model = loaded(logistic(), tmp_path)
    assert model.score(numbers().iloc[:0]).shape == (0,)
    with pytest.raises(ColumnError, match="'debt'"):
        model.score(numbers().iloc[:0].drop(columns="debt"))


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


def fitted_pipeline(name: str, folder: Path) -> ScoringModel:
    """A pipeline over mixed columns with gaps, loaded from its file."""
    frame = mixed(1000, seed=1)
    if name == "arrays":
        names = ["age", "debt"]
        return loaded(PIPELINES[name]().fit(frame[names].to_numpy(), label(frame)), folder, features=names)
    return loaded(PIPELINES[name]().fit(frame, label(frame)), folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", PIPELINES)
def test_batched_scores_are_the_scores_to_the_bit(tmp_path: Path, name: str) -> None:
    """64k rows at a time, or any other cut, give the same bits as all rows at once."""
    model, frame = fitted_pipeline(name, tmp_path), mixed(2 * 65_536 + 1, seed=2)
    whole = model.score(frame)
    for size, rows in ((65_536, len(frame)), (9_973, len(frame)), (1, 30)):
        parts = [model.score(frame.iloc[i : i + size]) for i in range(0, rows, size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole[:rows])


def test_a_model_sees_a_bounded_number_of_rows(tmp_path: Path) -> None:
    """However long the table, the model's memory is that of one block."""
    frame = pd.DataFrame({"x": np.arange(200_000.0)})
    sizes = loaded(Predicts(block_sizes), tmp_path, features=["x"]).score(frame)
    assert sizes.max() == 65_536


def test_a_forest_that_uses_threads_scores_the_same_in_every_run(tmp_path: Path) -> None:
    """Trees are added in their own order, not in the order in which threads finish."""
    model, frame = fitted_pipeline("forest", tmp_path), mixed(20_000, seed=2)
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
    heavy = {"pandas", "sklearn", "joblib", "skops"}
    code = f"import sys, fairfix.models.user_file; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
