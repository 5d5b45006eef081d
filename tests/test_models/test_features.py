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
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import ArtifactError, ColumnError, DataError, FairfixWarning
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
    empty = table_of({"age": [3.0, 3.0, 3.0], "none": pa.nulls(3), "text": [[1.0, 2.0], None, [3.0, 6.0]]})
    X = Features.learn(empty, ["age", "none"]).matrix(empty)
    np.testing.assert_array_equal(X, [[0, 0, 1]] * 3)  # without spread, and without values
    features = Features.learn(empty, ["text"])
    np.testing.assert_array_equal(features.matrix(empty)[:, 2], [0, 1, 0])
    np.testing.assert_array_equal(features.matrix(empty)[1, :2], [0, 0])
    assert len(features.reach) == 3


def test_trees_see_missing_numbers_as_nan() -> None:
    """With gaps a missing number, truth value or vector is NaN and has no indicator."""
    table = table_of({**PEOPLE, "text": [[1.0, 2.0], [0.0, 0.0], None, [3.0, 6.0]]})
    X = Features.learn(table, ["age", "own", "text"]).matrix(table, gaps=True)

    assert X.shape == (4, 4)
    assert np.isnan(X[2]).all()
    assert not np.isnan(X[[0, 1, 3]]).any()


def test_categories_have_an_indicator_each() -> None:
    """Of the fit, missing among them; a new one is none of them. Those of groups are there where they are named."""
    features = Features.learn(table_of(PEOPLE), ["job"])
    new = features.matrix(table_of({"job": ["nurse", "pilot", None]}))

    assert features.titles == ("job=(missing)", "job=cook", "job=nurse")
    np.testing.assert_array_equal(new, [[0, 0, 1], [0, 0, 0], [1, 0, 0]])
    aware = Features.learn(table_of(PEOPLE), ["job"], ["race"])
    assert (features.groups, aware.groups) == ((), ("race",))
    assert set(aware.titles) - set(features.titles) == {"race=a", "race=b"}


def test_of_many_categories_the_most_frequent_are_kept() -> None:
    """More than the limit are cut to the most frequent; the others have no indicator."""
    jobs = [f"j{i:03d}" for i in range(150) for _ in range(3 + (i < 100) + (i == 7))]
    features = Features.learn(table_of({"job": jobs}), ["job"])

    assert len(features.titles) == MOST_LEVELS
    assert "job=j007" in features.titles
    assert "job=j120" not in features.titles


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
    decimals = pa.array([1, 2, 3], pa.int8()).cast(pa.decimal128(5, 1))
    other = table_of({"age": decimals, "job": pa.array(["a", "b", "a"]).dictionary_encode()})
    features = Features.learn(plain, ["age", "job"])

    np.testing.assert_array_equal(features.matrix(other), features.matrix(plain))


UNREADABLE: list[tuple[Any, Any, str]] = [
    *(
        (None, [day, None], "holds dates or times.*`features`")
        for day in (dt.date(2020, 1, 1), dt.timedelta(1))
    ),
    (None, [["x"], ["y"]], "not a number, a text or a list of numbers.*`features`"),
    (None, [b"x", b"y"], "not a number, a text.*`features`"),
    (None, [f"person {i}" for i in range(300)], "has 300 different texts"),
    (None, [1.0, np.inf], "holds inf"),
    ([1.0, 2.0], ["x", "y"], "is of type string"),
    (None, [[1.0, 2.0], [3.0]], r"list of 1 numbers \(row 2 of those used\), but other rows have lists of 2"),
    (None, [None, [1.0, None]], r"missing or infinite \(row 2 "),
    (None, [[1.0, math.inf], [1.0, 2.0]], r"missing or infinite \(row 1 "),
    (None, pa.array([[], []], pa.list_(pa.float64())), "lists of 0 numbers"),
    (None, pa.array([None, None], pa.list_(pa.float64())), "not hold lists"),
    ([[1.0, 2.0]], [[1.0, 2.0, 3.0]], "list of 3 numbers .* but other rows have lists of 2"),
    ([[1.0, 2.0]], ["1,2"], "a list of 2 numbers as in the fit"),
]
"""What was fitted, None where that fails; what is read; what is said of it."""


@pytest.mark.parametrize(("fitted", "entries", "message"), UNREADABLE)
def test_what_cannot_be_read_is_named(fitted: Any, entries: Any, message: str) -> None:
    """The message has the column, the row and what is wrong; types have a remedy."""
    table = table_of({"it": entries})
    read = partial(Features.learn, table, ["it"])
    if fitted is not None:
        read = partial(Features.learn(table_of({"it": fitted}), ["it"]).matrix, table)
    with pytest.raises((DataError, ColumnError), match=f"'it'.*{message}"):
        read()


@pytest.mark.parametrize(
    ("names", "message"), [(["height"], "no feature column 'height'"), ([], "no feature")]
)
def test_columns_that_are_not_there_are_named(names: list[str], message: str) -> None:
    with pytest.raises((DataError, ColumnError), match=message):
        Features.learn(table_of(PEOPLE), names)


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


NUMBER = Features((Feature("age", "number", 1.0, 2.0),)).state()
TOWN = Features((Feature("town", "category", levels=("a", "b")),)).state()


@pytest.mark.parametrize(
    ("state", "change"),
    [
        *((NUMBER, change) for change in ({"kind": "date"}, {"scale": 0.0}, {"mean": "1"}, {"levels": [1]})),
        *((NUMBER, change) for change in ({"missing": 1}, {"name": None}, {"more": 1}, {"levels": ["a"]})),
        (TOWN, {"levels": [str(i) for i in range(101)]}),  # more than are kept
        (TOWN, {"levels": []}),
        (2 * NUMBER, {}),  # each column as often as memory lasts
        ([], None),
    ],
)
def test_a_damaged_state_is_refused(state: list[dict[str, Any]], change: dict[str, Any] | None) -> None:
    """A state that does not fit together, or that no fit makes, is an artifact error."""
    Features.from_state(NUMBER + TOWN)
    changed = [{**state[0], **(change or {})}, *state[1:]] if state else []
    with pytest.raises(ArtifactError):
        Features.from_state(changed)


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


def test_values_that_no_training_row_had_are_counted() -> None:
    """Missing ones where none was missing, and categories, unless there were more than are kept."""
    many = MOST_LEVELS + 1
    names = ["age", "job", "own", "text", "often", "gaps"]
    fitted = table_of(
        {
            "age": [1.0] * many,
            "job": ["cook", "nurse"] * (many // 2) + ["cook"],
            "own": [True] * many,
            "text": [[1.0, 2.0]] * many,
            "often": [f"c{i // 2}" for i in range(many)],
            "gaps": [None, *[2.0] * (many - 1)],
        }
    )
    rare = table_of({"rare": [f"c{i // 2}" for i in range(2 * many)]})
    rows = table_of(
        {
            "age": [None, math.nan, 3.0],
            "job": ["Cook", None, "Cook"],
            "own": [None, True, False],
            "text": [None, [3.0, 4.0], None],
            "often": ["new", "c0", "other"],
            "gaps": [None, None, None],
            "rare": ["new", "new", None],
        }
    )
    columns = (*Features.learn(fitted, names).columns, *Features.learn(rare, ["rare"]).columns)
    assert [one.new_values(rows)[:2] for one in columns] == [
        (2, 0),
        (1, 2),
        (1, 0),
        (2, 0),
        (0, 2),
        (0, 0),
        (0, 0),
    ]
    assert [one.new_values(rows).example for one in columns if one.name == "job"] == ["Cook"]
    assert not any(sum(one.new_values(fitted)[:2]) for one in columns[:-1])


@pytest.mark.parametrize("method", ["fair-regression", "logloss", "sensei"])
def test_a_prediction_states_values_that_no_training_row_had(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a warning where at least half of the rows have one, from a file as from a frame."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": np.arange(600),
            "race": rng.choice(["a", "b"], 600),
            "x": rng.normal(size=600),
            "job": rng.choice(["cook", "nurse"], 600),
            "label": rng.integers(0, 2, 600),
        }
    )
    repaired = fairfix.repair(frame, method=method, protected="race", id="id").repaired
    for rows, severity in ((0, None), (60, "INFO"), (300, "WARNING")):
        other = frame.assign(job=["Cook" if i < rows else one for i, one in enumerate(frame["job"])])
        other.loc[: rows // 2 - 1, "x"] = math.nan
        other.to_csv(tmp_path / "rows.csv", index=False)
        for data in (other, str(tmp_path / "rows.csv")):
            caplog.clear()
            with caplog.at_level("INFO", "fairfix"):
                fairfix.predict(repaired, data)
            said = [one for one in caplog.records if "unseen_features" in one.getMessage()]
            assert [one.levelname for one in said] == [severity] * bool(rows)
            assert all(f"{n:,}" in one.getMessage() for one in said for n in (600, rows, rows // 2))
    with pytest.warns(FairfixWarning):
        repaired.predict(other)


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
