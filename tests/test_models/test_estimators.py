"""What is kept of a learner predicts what the learner predicts; what is no learner, or cannot be kept, is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.errors import DataError, ModelError, UsageError
from fairfix.models import estimators
from fairfix.models.estimators import checked, title_of
from fairfix.models.learners import fit_classes, fit_mean, hashed, placed
from fairfix.models.members import LinearMember, Member, OnnxMember, TreesMember
from fairfix.models.tree_arrays import of_32_bits
from fairfix.solvers.linear_losses import standardised
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import HuberRegressor, Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from threadpoolctl import threadpool_limits

Floats = npt.NDArray[np.float64]

NAMES = ["forest", "lightgbm", "xgboost"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Keep fits of a few hundred rows from waiting for threads."""
    with threadpool_limits(1):
        yield


def rows(seed: int = 0, many: int = 300, *, gaps: bool = False) -> tuple[Floats, Floats, Floats]:
    """Return features with ties and, if asked, gaps in some columns; a label; and weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(many, 4))
    X[:, 1] = X[:, 1].round()
    y = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.3 * rng.normal(size=many)
    if gaps:
        X[:, :2][rng.random((many, 2)) < 0.15] = np.nan
    return X, y, rng.integers(1, 4, many).astype(float)


def fit_number(learner: Any, *, gaps: bool = False, loss: str = "square", seed: int = 0) -> Member:
    X, y, w = rows(gaps=gaps)
    y = np.abs(y) if loss == "poisson" else y
    return fit_mean(X, y, w, learner=learner, loss=loss, l2=0.0, seed=seed)


def name_there(name: str) -> str:
    """Return the name of a learner; the test is skipped where its package is not installed."""
    if name != "forest":
        pytest.importorskip(name, reason="the package of the learner is not installed")
    return name


def to_the_bit(member: Member) -> Any:
    settings, arrays = member.state()
    return settings, {name: one.tobytes() for name, one in arrays.items()}


# ---------------------------------------------------------------------- what is kept


@pytest.mark.parametrize("below", [False, True])
def test_a_number_of_64_bits_lies_on_the_side_of_its_rounding(below: bool) -> None:
    """At thresholds, at their neighbours of 32 bits, halfway between, and one bit to either side of all of these."""
    rng = np.random.default_rng(0)
    cuts = np.concatenate(
        [rng.normal(size=200), rng.normal(size=200).astype(np.float32), [0.0, 1.0, -1e-42, 3e38]]
    )
    near = cuts.astype(np.float32)
    steps = [np.nextafter(near, np.float32(end)).astype(float) for end in (-np.inf, np.inf)]
    middle = [(near + one) / 2 for one in steps]
    places = [cuts, near.astype(float), *steps, *middle]
    for x in [
        one for place in places for one in (place, np.nextafter(place, -9e99), np.nextafter(place, 9e99))
    ]:
        rounded = x.astype(np.float32).astype(float)
        there = rounded < cuts if below else rounded <= cuts
        np.testing.assert_array_equal(x <= of_32_bits(cuts, below=below), there)
    np.testing.assert_array_equal(of_32_bits(np.array([np.inf, -np.inf])), [np.inf, -np.inf])


def near_thresholds(member: TreesMember) -> Floats:
    """Return rows at the member's thresholds and a bit beside, a column at a time."""
    finite = np.flatnonzero(np.isfinite(member.nodes["threshold"]))[::7]  # others are of splits by gaps alone
    feature, cuts = member.nodes["feature"][finite], member.nodes["threshold"][finite]
    X = rows(1, 3 * len(cuts))[0]
    for i, moved in enumerate((cuts, np.nextafter(cuts, -9e99), np.nextafter(cuts, 9e99))):
        X[i * len(cuts) + np.arange(len(cuts)), feature] = moved
    return X


REGRESSORS: list[Any] = [
    RandomForestRegressor(10),
    ExtraTreesRegressor(10, max_depth=4),
    DecisionTreeRegressor(),
    GradientBoostingRegressor(n_estimators=15),
    HistGradientBoostingRegressor(max_iter=10),
]


@pytest.mark.slow
@pytest.mark.parametrize("estimator", REGRESSORS, ids=lambda one: type(one).__name__)
def test_trees_of_scikit_learn_send_every_row_where_it_does(estimator: Any) -> None:
    """Rows at thresholds of 32 bits and a bit of 64 beside them included; sums are equal up to rounding."""
    X, y, w = rows()
    member = fit_number(estimator, seed=3)
    assert isinstance(member, TreesMember)
    assert member.sound
    new = near_thresholds(member)
    own = clone(estimator).set_params(random_state=3).fit(*seen(X, y, w))

    np.testing.assert_allclose(member.predict(new), in_units_of(y, w, own.predict(new)), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(member.predict(new), [member.predict(row[None])[0] for row in new])


def seen(X: Floats, y: Floats, w: Floats) -> tuple[Floats, Floats, Floats]:
    """Return rows in the order, and with the labels and weights, in which an estimator is given them."""
    order = np.lexsort((hashed(X), w, y, hashed(placed(X, w))))
    return X[order], standardised(y[order], w[order], "square")[0], w[order] / w.mean()


def in_units_of(y: Floats, w: Floats, predicted: Floats, loss: str = "square") -> Floats:
    """Return predictions of standardised labels in the unit of the labels."""
    _, level, unit = standardised(y, w, loss)
    return level + unit * predicted


@pytest.mark.parametrize("loss", ["square", "poisson", "quantile:0.8", "absolute", "huber:0.5", "logistic"])
@pytest.mark.parametrize("name", NAMES)
def test_named_learners_predict_what_their_library_does(
    name: str, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On new rows with gaps, for every loss that they know; XGBoost adds up numbers of 32 bits."""
    learner = name_there(name)
    if loss.partition(":")[0] in estimators.UNKNOWN_LOSSES.get(name, ()):
        return
    models: list[Any] = []
    given = estimators._given
    monkeypatch.setattr(
        estimators, "_given", lambda model, *rest: (models.append(model), given(model, *rest))[1]
    )
    X, y, w = rows(gaps=True)
    y = {"logistic": (y > 0.5) + 0.0, "poisson": np.abs(y)}.get(loss, y)
    member = fit_mean(X, y, w, learner=learner, loss=loss, l2=0.0, seed=0)
    assert isinstance(member, TreesMember)
    new = np.concatenate([rows(1, gaps=True)[0], near_thresholds(member)])

    wanted = given(models[0], new, ("pair" if loss == "logistic" else "identity",))
    wanted = wanted[:, 1] if loss == "logistic" else in_units_of(y, w, wanted, loss)
    np.testing.assert_allclose(
        member.predict(new), wanted, rtol=1e-5 if name == "xgboost" else 1e-12, atol=1e-6
    )
    if loss == "quantile:0.8":
        assert np.average(y <= member.predict(X), weights=w) == pytest.approx(0.8, abs=0.12)


@pytest.mark.parametrize("many", [2, 3])
@pytest.mark.parametrize(
    "learner",
    [*NAMES, RandomForestClassifier(8), GradientBoostingClassifier(n_estimators=5), DecisionTreeClassifier(max_depth=3),
     LogisticRegression(), Ridge(), RandomForestRegressor(5)],
    ids=str,
)  # fmt: skip
def test_shares_of_classes_add_up_to_one(learner: Any, many: int) -> None:
    """Of classifiers as they are, of regressors by least squares; most rows are told apart."""
    if isinstance(learner, str):
        name_there(learner)
    X, y, w = rows()
    codes = np.digitize(y, [0.3, 1.2][: many - 1])
    member = fit_classes(X, codes, many, w, learner=learner, l2=0.0, seed=0)
    shares = member.predict(X)

    assert member.classes_given == many
    assert shares.min() >= 0.0
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert np.mean(shares.argmax(axis=1) == codes) > 0.6


@pytest.mark.parametrize("estimator", [Lasso(0.1), HuberRegressor(), Ridge()], ids=str)
def test_coefficients_are_kept_as_such(estimator: Any) -> None:
    member = fit_number(estimator)
    assert isinstance(member, LinearMember)
    X, y, w = rows()
    own = clone(estimator).fit(*seen(X, y, w)[:2], sample_weight=seen(X, y, w)[2])
    wanted = in_units_of(y, w, own.predict(rows(1)[0]))
    np.testing.assert_allclose(member.predict(rows(1)[0]), wanted, atol=1e-12)
    np.testing.assert_allclose(member.rescaled(3.0, 2.0).predict(rows(1)[0]), 3.0 + 2.0 * wanted, atol=1e-12)
    counts = fit_number(PoissonRegressor(), loss="poisson")
    assert isinstance(counts, LinearMember)
    assert counts.link == "exp"


@pytest.mark.parametrize(
    "estimator",
    [make_pipeline(PolynomialFeatures(2), StandardScaler(), Ridge()), SVR()],
    ids=lambda one: type(one).__name__,
)
def test_others_are_kept_as_graphs(estimator: Any) -> None:
    """They predict what the estimator does, row by row what all at once, and are saved and made again."""
    pytest.importorskip("skl2onnx", reason="makes the graphs")
    member = fit_number(estimator)
    assert isinstance(member, OnnxMember)
    (X, y, w), name, new = seen(*rows()), estimators.weight_name(estimator), rows(1)[0]
    own = clone(estimator).fit(X, y, **{str(name): w})
    wanted = in_units_of(*rows()[1:], own.predict(new))
    settings, arrays = member.state()
    again = OnnxMember.from_state(settings, dict(arrays))

    np.testing.assert_allclose(member.predict(new), wanted, atol=1e-5)
    assert again.predict(new).tobytes() == member.predict(new).tobytes()
    assert np.array([member.predict(row[None])[0] for row in new]).tobytes() == member.predict(new).tobytes()
    np.testing.assert_allclose(member.rescaled(3.0, 2.0).predict(new), 3.0 + 2.0 * member.predict(new))
    assert to_the_bit(fit_number(estimator)) == to_the_bit(member)


def test_a_graph_that_is_none_is_an_error_of_the_model() -> None:
    """Bytes that are no graph, and a graph of other columns or with other outputs than it is said to have."""
    pytest.importorskip("skl2onnx", reason="makes the graphs")
    member = fit_number(SVR())
    assert isinstance(member, OnnxMember)
    X = rows(1)[0]
    for broken in (
        replace(member, graph=np.arange(50, dtype=np.uint8)),
        replace(member, graph=member.graph[:-40]),
        replace(member, features=7),
        replace(member, classes=3),
        replace(member, type="double" if member.type == "float" else "float"),
    ):
        with pytest.raises(ModelError, match="the graph of a fitted learner cannot be run: "):
            broken.predict(np.resize(X, (5, broken.features)))


def test_a_graph_gives_probabilities() -> None:
    """The chance of the second of two classes, or those of all."""
    pytest.importorskip("skl2onnx", reason="makes the graphs")
    X, y, w = rows(many=150)
    learner = MLPClassifier((3,), max_iter=15)
    with pytest.warns(match="converged"):
        one = fit_mean(X, (y > 0.3) + 0.0, w, learner=learner, loss="logistic", l2=0.0, seed=0)
    with pytest.warns(match="converged"):
        all_ = fit_classes(X, np.digitize(y, [0.3, 1.2]), 3, w, learner=learner, l2=0.0, seed=0)

    assert isinstance(one, OnnxMember)
    assert one.predict(X).shape == (150,)
    assert ((one.predict(X) >= 0) & (one.predict(X) <= 1)).all()
    np.testing.assert_allclose(all_.predict(X).sum(axis=1), 1.0, rtol=1e-6)


def test_a_learner_that_knows_no_gaps_sees_the_mean_in_their_place() -> None:
    """Trees of gradient boosting refuse gaps; here 0 is the mean, so a gap goes where 0 goes."""
    member = fit_number(GradientBoostingRegressor(n_estimators=5), gaps=True)
    X = rows(2, gaps=True)[0]
    np.testing.assert_array_equal(member.predict(X), member.predict(np.nan_to_num(X)))
    forest = fit_number(RandomForestRegressor(5), gaps=True)
    assert (forest.predict(X) != forest.predict(np.nan_to_num(X))).any()
    X[:, 3] = np.nan  # without gaps in the fit
    np.testing.assert_array_equal(forest.predict(X), forest.predict(np.where(np.arange(4) == 3, 0.0, X)))


# ---------------------------------------------------------------------- laws of a fit


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_the_same_rows_leave_the_same_bits(name: str, loss: str) -> None:
    """Whatever their order, with rows of weight 0 or without, and with weights in any unit."""
    learner = name_there(name)
    X, y, w = rows(many=60, gaps=True)
    y = (y > 0.3) + 0.0 if loss == "logistic" else y
    order = np.random.default_rng(5).permutation(len(y))
    more, label, mass = np.concatenate([X, 0 * X[:9] + 7]), np.append(y, 1 - y[:9]), np.append(w, np.zeros(9))
    same: dict[str, Any] = {"learner": learner, "loss": loss, "l2": 0.0, "seed": 4}
    one = to_the_bit(fit_mean(X, y, w, **same))

    assert to_the_bit(fit_mean(X[order], y[order], w[order], **same)) == one
    assert to_the_bit(fit_mean(more, label, mass, **same)) == one
    assert to_the_bit(fit_mean(X, y, 4 * w, **same)) == one


def test_the_seed_is_that_of_the_fit_unless_the_estimator_has_one() -> None:
    one, two, other = (to_the_bit(fit_number(RandomForestRegressor(3), seed=seed)) for seed in (1, 1, 2))
    own = [to_the_bit(fit_number(RandomForestRegressor(3, random_state=9), seed=seed)) for seed in (1, 2)]
    assert one == two != other
    assert own[0] == own[1]


@pytest.mark.parametrize("learner", [*NAMES, Lasso(0.1), SVR()], ids=str)
def test_the_unit_of_the_label_does_not_matter(learner: Any) -> None:
    """A label in another unit, from another origin, gives the same values in it, to the last bits."""
    if isinstance(learner, str):
        name_there(learner)
    if isinstance(learner, SVR):
        pytest.importorskip("skl2onnx", reason="makes the graph")
    X, y, w = rows(many=80)
    for loss in ("square", "huber:0.5") if learner == "lightgbm" else ("square",):
        same: dict[str, Any] = {"learner": learner, "l2": 0.0, "seed": 0}
        plain = fit_mean(X, y, w, loss=loss, **same).predict(X)
        for level, unit in ((0.0, 1e-7), (30.0, 3e5)):
            scaled = "huber:" + repr(0.5 * unit) if loss != "square" else loss
            other = fit_mean(X, level + unit * y, w, loss=scaled, **same).predict(X)
            np.testing.assert_allclose((other - level) / unit, plain, atol=1e-9)
        assert np.std(plain) > 0.3


@pytest.mark.parametrize("name", NAMES)
def test_a_few_rows_grow_no_trees_and_are_kept(name: str) -> None:
    """Ten rows are fewer than a leaf of some learners has: the mean is left; labels that are all the same are kept."""
    X, y, w = rows(many=10)
    learner = name_there(name)
    member = fit_mean(X, y, w, learner=learner, loss="square", l2=0.0, seed=0)
    far = np.abs(member.predict(X) - np.average(y, weights=w)).max()
    assert isinstance(member, TreesMember)
    assert member.sound
    assert far < (0.5 * np.ptp(y) if name == "forest" else 1e-6 if name == "lightgbm" else np.ptp(y))
    for one, level in ((learner, 3.7), (SVR(), 0.0)):  # of which a machine of support vectors would have none
        same = fit_mean(X, np.full(10, level), w, learner=one, loss="square", l2=0.0, seed=0)
        np.testing.assert_array_equal(same.predict(X), level)


# ---------------------------------------------------------------------- what is refused


class Unweighted(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """A learner whose fit knows no weights."""

    def fit(self, X: Any, y: Any) -> Any:
        return self

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X))


class Wild(Unweighted):
    """A learner that predicts what it likes, and is no model that anything can read."""

    def __init__(self, level: float = 0.0) -> None:
        self.level = level

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        if self.level < 0:
            raise ValueError("no level below 0")
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.level)


class Altered(Wild):
    """A learner whose parameters are not what they are said to be, so that no clone is like it."""

    def __init__(self, level: float = 0.0) -> None:
        self.level = level + 1.0


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (Unweighted(), "has no sample_weight in its fit"),
        (make_pipeline(StandardScaler(), KNeighborsRegressor()), "has no sample_weight in its fit"),
        (Altered(2.0), r"cannot clone .*:Altered\(level=3\.0\)"),
        (Ridge, r"Ridge is a class; give an estimator of it, Ridge\(\)"),
        (object(), "is not an estimator; it needs the methods"),
        ("no_such_package.models:Ridge", "does not name an estimator: ModuleNotFoundError"),
        ("sklearn.linear_model:Rdige", "does not name an estimator: AttributeError"),
        ("math:pi", "does not name an estimator"),
    ],
)
def test_what_is_no_learner_is_refused(learner: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        checked(learner)


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"`learner=xgboost` needs the package xgboost: pip install 'fairfix\[xgboost\]'"
    ):
        checked("xgboost")
    with pytest.raises(
        UsageError, match=r"needs skl2onnx and onnxruntime for conversion to ONNX.*'fairfix\[learners\]'"
    ):
        fit_number(Wild())
    checked("forest")
    checked("sklearn.linear_model:Ridge")


@pytest.mark.parametrize(
    ("learner", "loss", "error", "words"),
    [
        (RandomForestClassifier(3), "square", UsageError, "is a classifier, and the repair predicts numbers"),
        (Ridge(), "logistic", UsageError, "gives no probabilities"),
        (SVC(), "logistic", UsageError, "gives no probabilities"),
        (Wild(), "square", UsageError, "cannot be stored as data"),
        (Wild(np.inf), "square", DataError, "predicts a value that is not a number"),
        (Wild(-1.0), "square", DataError, "failed: no level below 0"),
        (Ridge(alpha=1e-9), "poisson", DataError, "means of counts that are not above 0"),
        # a start of gradient boosting that is a model
        (
            GradientBoostingRegressor(n_estimators=2, init=DecisionTreeRegressor(max_depth=2)),
            "square",
            UsageError,
            "splits by category, linear leaves",
        ),
    ],
    ids=str,
)
def test_what_a_learner_cannot_do_is_refused(learner: Any, loss: str, error: Any, words: str) -> None:
    X, y, w = rows(many=100)
    y = {"logistic": (y > 0.5) + 0.0, "poisson": np.maximum(y, 0.0)}.get(loss, y)
    with pytest.raises(error, match=words):
        fit_mean(X, y, w, learner=learner, loss=loss, l2=0.0, seed=0)


def test_linear_leaves_are_refused() -> None:
    learner = pytest.importorskip("lightgbm").LGBMRegressor(n_estimators=2, linear_tree=True)
    with pytest.raises(UsageError, match="splits by category, linear leaves"):
        fit_number(learner)


def test_a_title_has_what_was_chosen_and_no_place_in_memory() -> None:
    nested = make_pipeline(StandardScaler(), Ridge(alpha=2.0))
    assert title_of(RandomForestRegressor(max_depth=3)) == "sklearn:RandomForestRegressor(max_depth=3)"
    assert title_of(nested) == (
        "sklearn:Pipeline(steps=[['standardscaler', sklearn:StandardScaler()], ['ridge', sklearn:Ridge(alpha=2.0)]])"
    )
    odd: Callable[[Any], Any] = lambda x: x  # noqa: E731  a function without a name
    assert "0x" not in title_of(MLPRegressor(hidden_layer_sizes=odd))
    assert [title_of(one) for one in ("forest", 0.5, None)] == ["forest", 0.5, None]
