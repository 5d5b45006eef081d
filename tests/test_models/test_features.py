"""Columns of mixed type become the same matrix at fit and at predict time; others are refused with a remedy."""

from __future__ import annotations

import datetime as dt
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pyarrow as pa
import pytest
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import ArtifactError, ColumnError, DataError
from fairfix.models.features import MOST_LEVELS, Feature, Features
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import examples

NAMES = ("age", "job", "own")


def table_of(data: dict[str, Any], **data_spec: Any) -> Table:
    """Return a validated table; group and label are filled in."""
    many = len(next(iter(data.values())))
    base = {"race": ["a", "b"] * many, "label": [0, 1] * many}
    whole = {**{name: values[:many] for name, values in base.items()}, **data}
    columns = ColumnRoles(
        ("race",),
        label="label",
        score="score" if "score" in data else None,
        weight=data_spec.pop("weight", None),
    )
    return read_table(pa.table(whole), DataSpec(columns, **data_spec))


PEOPLE = {
    "age": [20.0, 30.0, None, 50.0],
    "job": ["cook", "nurse", "cook", None],
    "own": [True, False, None, True],
}


def test_numbers_are_standardised_and_missing_ones_marked() -> None:
    """A number has mean 0 and scale 1 over the rows that have it; a missing one is the mean, with an indicator."""
    table = table_of(PEOPLE)
    X = Features.learn(table, ["age"]).matrix(table)

    np.testing.assert_allclose(X[[0, 1, 3], 0].mean(), 0, atol=1e-10)
    np.testing.assert_allclose(X[[0, 1, 3], 0].std(), 1, rtol=1e-10)
    np.testing.assert_array_equal(X[2], [0, 1])
    np.testing.assert_array_equal(X[:, 1], [0, 0, 1, 0])


def test_trees_see_missing_numbers_as_nan() -> None:
    """With gaps a missing number is NaN and has no indicator."""
    table = table_of(PEOPLE)
    X = Features.learn(table, ["age", "own"]).matrix(table, gaps=True)

    assert X.shape == (4, 2)
    assert np.isnan(X[2]).all()
    assert not np.isnan(X[[0, 1, 3]]).any()


def test_categories_have_an_indicator_each() -> None:
    """Each category of the fit has an indicator, missing among them; a new one is none of them."""
    features = Features.learn(table_of(PEOPLE), ["job"])
    new = features.matrix(table_of({"job": ["nurse", "pilot", None]}))

    assert features.titles == ("job=(missing)", "job=cook", "job=nurse")
    np.testing.assert_array_equal(new, [[0, 0, 1], [0, 0, 0], [1, 0, 0]])


def test_of_many_categories_the_most_frequent_are_kept() -> None:
    """More than the limit are cut to the most frequent; the others have no indicator."""
    jobs = [f"j{i:03d}" for i in range(150) for _ in range(3 + (i < 100) + (i == 7))]
    features = Features.learn(table_of({"job": jobs}), ["job"])

    assert len(features.titles) == MOST_LEVELS
    assert "job=j007" in features.titles
    assert "job=j120" not in features.titles


def test_protected_columns_are_features_only_when_asked() -> None:
    """The group has indicators only where it is named, and is then looked at."""
    table = table_of(PEOPLE)
    blind, aware = Features.learn(table, NAMES), Features.learn(table, NAMES, ["race"])

    assert blind.groups == ()
    assert aware.groups == ("race",)
    assert set(aware.titles) - set(blind.titles) == {"race=a", "race=b"}


def test_the_score_alone_is_its_log_odds() -> None:
    """A probability is learned from as its log-odds, other scores as they are."""
    table = table_of({"score": [0.1, 0.2, 0.5, 0.9]})
    X = Features.learn(table, None).matrix(table)
    odds = np.log(np.array([0.1, 0.2, 0.5, 0.9]) / (1 - np.array([0.1, 0.2, 0.5, 0.9])))

    np.testing.assert_allclose(X[:, 0], (odds - odds.mean()) / odds.std())
    assert X.shape[1] > 1
    assert (X[:, 1:] >= 0).all()


def test_weights_count_as_repeated_rows() -> None:
    """A row of weight two teaches what the row twice does."""
    rows = {"age": [1.0, 2.0, 4.0, 8.0], "job": ["a", "b", "b", "c"]}
    weighted = table_of({**rows, "w": [2.0, 1.0, 1.0, 3.0]}, weight="w")
    times = [0, 0, 1, 2, 3, 3, 3]
    repeated = table_of({name: [values[i] for i in times] for name, values in rows.items()})

    one, other = (Features.learn(t, ["age", "job"]).columns for t in (weighted, repeated))
    assert one[1] == other[1]
    assert (one[0].mean, one[0].scale) == pytest.approx((other[0].mean, other[0].scale))


def test_decimals_dictionaries_and_whole_numbers_are_read() -> None:
    """Arrow's other ways of writing numbers and texts are the same features."""
    plain = table_of({"age": [1.0, 2.0, 3.0], "job": ["a", "b", "a"]})
    other = read_table(
        pa.table(
            {
                "race": ["a", "b", "a"],
                "label": [0, 1, 0],
                "age": pa.array([1, 2, 3], pa.int8()).cast(pa.decimal128(5, 1)),
                "job": pa.array(["a", "b", "a"]).dictionary_encode(),
            }
        ),
        DataSpec(ColumnRoles(("race",), label="label")),
    )
    features = Features.learn(plain, ["age", "job"])

    np.testing.assert_array_equal(features.matrix(other), features.matrix(plain))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([dt.date(2020, 1, 1), None], "holds dates or times"),
        ([dt.datetime(2020, 1, 1), None], "holds dates or times"),
        ([dt.timedelta(1), None], "holds dates or times"),
        ([["x"], ["y"]], "not a number, a text"),
        ([b"x", b"y"], "not a number, a text"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(values: list[Any], said: str) -> None:
    """Dates and nested values are named with a remedy."""
    with pytest.raises(ColumnError, match=f"'when'.*{said}.*`features`"):
        Features.learn(table_of({"when": values}), ["when"])


def test_names_are_no_features() -> None:
    """A text that differs in nearly every row is taken for an identifier and refused."""
    with pytest.raises(DataError, match="'who' has 300 different texts"):
        Features.learn(table_of({"who": [f"person {i}" for i in range(300)]}), ["who"])


def test_infinite_numbers_and_missing_columns_are_named() -> None:
    """Infinity, a column that is not there and a column of another type are errors that name it."""
    table = table_of(PEOPLE)
    with pytest.raises(DataError, match="'age' holds inf"):
        Features.learn(table_of({"age": [1.0, np.inf]}), ["age"])
    with pytest.raises(ColumnError, match="no feature column 'height'"):
        Features.learn(table, ["height"])
    with pytest.raises(ColumnError, match="'age' is of type string"):
        Features.learn(table, ["age"]).matrix(table_of({"age": ["x", "y"]}))
    with pytest.raises(DataError, match="no feature columns"):
        Features.learn(table, [])


def test_a_constant_and_an_empty_column_do_no_harm() -> None:
    """A column without spread becomes zeros, one without values its indicator."""
    table = table_of({"age": [3.0, 3.0, 3.0], "none": pa.nulls(3)})
    X = Features.learn(table, ["age", "none"]).matrix(table)

    np.testing.assert_array_equal(X, [[0, 0, 1]] * 3)


@settings(max_examples=examples(50))
@given(
    ages=st.lists(st.none() | st.floats(-1e6, 1e6), min_size=2, max_size=20),
    jobs=st.lists(st.none() | st.text(max_size=3), min_size=2, max_size=20),
)
def test_saved_features_make_the_same_matrix(ages: list[float | None], jobs: list[str | None]) -> None:
    """What is learned goes through JSON without losing a bit, and rows in any order give the same rows."""
    many = min(len(ages), len(jobs))
    table = table_of({"age": pa.array(ages[:many], pa.float64()), "job": pa.array(jobs[:many], pa.string())})
    features = Features.learn(table, ["age", "job"], ["race"])
    again = Features.from_state(json.loads(json.dumps(features.state())))
    order = np.random.default_rng(0).permutation(many)

    assert again == features
    np.testing.assert_array_equal(again.matrix(table.take(order)), features.matrix(table)[order])


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "date"},
        {"scale": 0.0},
        {"mean": float("nan")},
        {"levels": [1]},
        {"missing": 1},
        {"name": None},
        {"more": 1},
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, Any]) -> None:
    """A state that does not fit together is an artifact error."""
    state = Features.learn(table_of(PEOPLE), ["age"]).state()

    with pytest.raises(ArtifactError):
        Features.from_state([{**state[0], **change}])
    with pytest.raises(ArtifactError):
        Features.from_state([])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"columns": 2}, "a column occurs twice"),
        ({"levels": [str(i) for i in range(101)]}, "not a list of the right length"),
    ],
)
def test_features_that_no_fit_makes_are_refused(change: dict[str, Any], words: str) -> None:
    """Neither a column many times, nor more levels than are kept: each is a column of the matrix."""
    one = Features((Feature("town", "category", levels=("a", "b")),)).state()
    state = one * change.pop("columns", 1)
    state[0] |= change

    with pytest.raises(ArtifactError, match=words):
        Features.from_state(state)


# ---------------------------------------------------------------------- vectors

LISTS = {
    "lists": pa.list_(pa.float64()),
    "long lists": pa.large_list(pa.float32()),
    "lists of one length": pa.list_(pa.float32(), 3),
}


def embedded(many: int = 60, *, turn: np.ndarray | None = None) -> dict[str, Any]:
    """Return people with a vector of three numbers of unlike spread, turned if asked."""
    rng = np.random.default_rng(5)
    vector = rng.normal(size=(many, 3)) * [1.0, 4.0, 0.5] + [3.0, 0.0, -1.0]
    label = (vector @ [1.0, 0.5, -2.0] + rng.normal(size=many) > 5.0).astype(int)
    text = vector if turn is None else vector @ turn
    race = ["a" if one else "b" for one in rng.random(many) < 0.5]
    return {
        "race": race,
        "label": label,
        "text": list(text),
        "age": rng.normal(40, 9, many),
        "id": np.arange(many),
    }


@pytest.mark.parametrize("kind", LISTS.values(), ids=LISTS)
def test_a_vector_keeps_its_directions(kind: pa.DataType) -> None:
    """Each entry has mean 0, and all have one scale, so that distances are those of the vectors."""
    vectors = np.array(embedded()["text"])
    table = table_of({"text": pa.array(list(vectors)).cast(kind)})
    features = Features.from_state(json.loads(json.dumps(Features.learn(table, ["text"]).state())))
    X = features.matrix(table)

    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose((X**2).mean(), 1, rtol=1e-6)
    apart = np.linalg.norm(vectors - vectors[0], axis=1)
    np.testing.assert_allclose(np.linalg.norm(X - X[0], axis=1), apart / features.columns[0].scale, rtol=1e-5)
    assert features.titles == ("text[0]", "text[1]", "text[2]")


def test_a_missing_vector_is_the_mean_and_marked() -> None:
    """It is 0 in each entry, with one indicator; for trees it is missing."""
    table = table_of({"text": [[1.0, 2.0], None, [3.0, 6.0]]})
    features = Features.learn(table, ["text"])

    np.testing.assert_array_equal(features.matrix(table)[:, 2], [0, 1, 0])
    np.testing.assert_array_equal(features.matrix(table)[1, :2], [0, 0])
    assert np.isnan(features.matrix(table, gaps=True)[1]).all()
    assert len(features.reach) == 3


@pytest.mark.parametrize(
    ("fitted", "text", "message"),
    [
        (
            None,
            [[1.0, 2.0], [3.0]],
            r"list of 1 numbers \(row 2 of those used\), but other rows have lists of 2",
        ),
        (None, [None, [1.0, None]], r"missing or infinite \(row 2 "),
        (None, [[1.0, math.inf], [1.0, 2.0]], r"missing or infinite \(row 1 "),
        (None, pa.array([[], []], pa.list_(pa.float64())), "lists of 0 numbers"),
        (None, pa.array([None, None], pa.list_(pa.float64())), "not hold lists"),
        (None, [["a"], ["b"]], "not a number, a text or a list of numbers"),
        ([[1.0, 2.0]], [[1.0, 2.0, 3.0]], "list of 3 numbers .* but other rows have lists of 2"),
        ([[1.0, 2.0]], ["1,2"], "a list of 2 numbers as in the fit"),
    ],
)
def test_a_vector_that_cannot_be_read_is_named(fitted: Any, text: Any, message: str) -> None:
    """The message has the column, the row and what is wrong."""
    table = table_of({"text": text})
    read = partial(Features.learn, table, ["text"])
    if fitted is not None:
        read = partial(Features.learn(table_of({"text": fitted}), ["text"]).matrix, table)
    with pytest.raises((DataError, ColumnError), match=f"'text'.*{message}"):
        read()


@pytest.mark.parametrize("method", ["logloss", "sensei"])  # folds are drawn by what is in a row
def test_a_repair_of_turned_vectors_is_the_same(method: str, tmp_path: Path) -> None:
    """What is learned from an embedding does not hang on its axes; one row at a time is read too."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    shown = []
    for name, people in (("as it is", embedded(200)), ("turned", embedded(200, turn=turn))):
        path = tmp_path / f"{name}.fairfix"
        fairfix.repair(
            people, method=method, protected="race", id="id", features=["text", "age"], output=str(path)
        )
        repaired = fairfix.load(path)
        whole = repaired.predict(people)
        number = whole[repaired.output.names[0]]
        first = repaired.predict({column: values[0] for column, values in people.items()})
        assert first[repaired.output.names[0]] == number[0]
        shown.append(number)
    np.testing.assert_allclose(shown[0], shown[1], atol=1e-5)
