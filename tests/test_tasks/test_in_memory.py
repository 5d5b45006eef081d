"""Rows, columns and models in memory give the result of the file of the same rows; the rest are errors of ours."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import fairfix
import joblib
import lightgbm
import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest
import xgboost
from fairfix.data.beside import with_arrays
from fairfix.errors import ColumnError, DataError, FairfixError, ModelError, UsageError
from fairfix.models.in_memory import content_hash
from fairfix.models.user_file import file_hash, load_model
from fairfix.sklearn import RepairedClassifier
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC

FEATURES = ["age", "job", "income"]


@cache
def people(n: int = 600) -> pd.DataFrame:
    """Numbers, a category with an unused level, a protected column and a label, with a shuffled index."""
    rng = np.random.default_rng(3)
    job = pd.Categorical(rng.choice(["nurse", "clerk"], n), categories=["nurse", "clerk", "unused"])
    sex, age = rng.choice(["f", "m"], n), rng.normal(size=n)
    y = (age + (job == "nurse") + (sex == "f") + rng.normal(size=n) > 0.5).astype(int)
    frame = pd.DataFrame({"age": age, "job": job, "income": rng.normal(size=n), "sex": sex, "y": y})
    return frame.set_axis(rng.permutation(n) + 10)


@cache
def models() -> dict[str, Any]:
    """Fitted models of every kind, each with probabilities of two classes."""
    X, y = people()[FEATURES], people()["y"]
    encoded = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    light = lightgbm.LGBMClassifier(n_estimators=8, verbose=-1, n_jobs=1).fit(X, y)
    extreme = xgboost.XGBClassifier(n_estimators=8, enable_categorical=True, n_jobs=1).fit(X, y)
    pipeline = make_pipeline(encoded, LogisticRegression()).fit(X, y)
    return {
        "pipeline": pipeline,
        "histograms": HistGradientBoostingClassifier(categorical_features="from_dtype").fit(X, y),
        "lightgbm": light,
        "booster of lightgbm": light.booster_,
        "xgboost": extreme,
        "booster of xgboost": extreme.get_booster(),
    }


def scores(name: str, X: pd.DataFrame) -> Any:
    """Return the scores that the library of a model gives the rows of its fit."""
    model = models()[{"function": "pipeline"}.get(name, name.removeprefix("booster of "))]
    return model.predict_proba(X)[:, 1]


def numbers(result: Any) -> Any:
    """Return what an audit holds, but for the names of data and score."""
    content = result.to_dict()
    return {name: content[name] for name in content if name not in ("data", "settings")}


@pytest.mark.parametrize("name", models())
def test_a_model_in_memory_scores_as_its_library_does(name: str) -> None:
    """Whatever the order of the columns, and be categories texts; the arrays beside the rows are columns."""
    frame, model = people(), models()[name]
    X = frame[FEATURES]
    expected = fairfix.audit(frame.assign(s=scores(name, X)), protected="sex", label="y", score="s")
    texts = X.assign(job=X["job"].astype(str))
    for rows in (X, texts, texts[FEATURES[::-1]], X.assign(other="x") if name != "function" else X):
        given_ = fairfix.audit(rows, model=model, protected=frame["sex"], label=frame["y"].to_numpy())
        assert numbers(given_) == numbers(expected)


def test_models_without_names_take_the_columns_in_order() -> None:
    """An array has no names; a frame has as many columns."""
    frame = people()
    X = frame[["age", "income"]].to_numpy()
    model = RandomForestClassifier(5, random_state=0).fit(X, frame["y"])
    expected = fairfix.audit(protected=frame["sex"], label=frame["y"], score=model.predict_proba(X)[:, 1])
    for rows in (X, frame[["age", "income"]]):
        given_ = fairfix.audit(rows, model=model, protected=frame["sex"], label=frame["y"])
        assert numbers(given_) == numbers(expected)
    margin = LinearSVC().fit(X, frame["y"])
    raw = fairfix.audit(X, model=margin, protected=frame["sex"], label=frame["y"], threshold=0.0)
    assert raw.content.overall.metrics["selection_rate"].value == np.mean(margin.decision_function(X) >= 0)


KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame.set_axis([0] * len(frame)),
    "arrow types": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "nullable": lambda frame: frame.convert_dtypes(),
    "categorical": lambda frame: frame.astype({"sex": "category"}),
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "batches": lambda frame: pa.Table.from_pandas(frame).to_reader(100),
    "dataset": lambda frame: pa.dataset.dataset(pa.Table.from_pandas(frame)),
    "records": lambda frame: frame.to_dict("records"),
    "columns": lambda frame: {name: frame[name].to_numpy() for name in frame},
    "structured": lambda frame: frame.to_records(index=False),
    "polars": lambda frame: pytest.importorskip("polars").from_pandas(frame),
    "lazy": lambda frame: pytest.importorskip("polars").from_pandas(frame).lazy(),
    "duckdb": lambda frame: pytest.importorskip("duckdb").connect().from_df(frame),
}


def scored() -> pd.DataFrame:
    """People with a score, without a column that only pandas and Arrow have."""
    frame = people().drop(columns="job")
    return frame.assign(score=1 / (1 + np.exp(-frame["age"]))).reset_index(drop=True)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_kind_are_those_of_the_file(kind: str, tmp_path: Path) -> None:
    """To the last byte of the JSON, but for the name of the data, also in the next step."""
    frame = scored()
    frame.to_parquet(path := tmp_path / "data.parquet")
    asked = {"protected": "sex", "label": "y", "score": "score"}
    result = fairfix.audit(path, **asked)
    assert result.content.next_step is not None
    expected = replace(result, content=msgspec.structs.replace(result.content, next_step=None))

    found = fairfix.audit(KINDS[kind](frame), **asked).to_json()
    assert found == expected.to_json().replace("data.parquet", "data")


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_come_back_in_the_kind_of_the_rows(kind: str) -> None:
    """With the same decisions; the function and the method are one."""
    frame = scored()
    made = fairfix.repair(frame, protected="sex", label="y", score="score", method="ramp", gamma=0.5)
    expected = fairfix.predict(made, frame)
    for predict in (made.repaired.predict, lambda rows: fairfix.predict(made, rows)):
        rows = KINDS[kind](frame)
        out = predict(rows)
        table = {"batches": pa.Table, "dataset": pa.Table, "structured": np.ndarray}
        assert isinstance(out, table.get(kind, type(rows)))
        decided = out.collect() if hasattr(out, "collect") else out.df() if hasattr(out, "df") else out
        decided = pd.DataFrame(decided) if isinstance(decided, list) else decided
        decided = decided.to_pandas() if hasattr(decided, "to_pandas") else decided
        assert list(decided["p_positive"]) == list(expected["p_positive"])
        assert list(decided["decision"]) == list(expected["decision"])
        if kind == "pandas":
            assert out.index.equals(rows.index)
    row = frame.iloc[3]
    assert fairfix.predict(made, row)["decision"] == expected["decision"].iloc[3]
    assert isinstance(fairfix.predict(made, row), pd.Series)
    assert fairfix.predict(made, row.to_dict()) == made.repaired.predict(row.to_dict())


def test_only_used_columns_are_fetched() -> None:
    """A column that Arrow cannot hold stops nothing; a lazy frame computes none that is not used."""
    polars = pytest.importorskip("polars")
    frame = polars.from_pandas(scored())

    def fails(column: Any) -> Any:
        raise RuntimeError("this column is not used")

    lazy = frame.lazy().with_columns(polars.col("income").map_batches(fails, polars.Float64).alias("spare"))
    asked = {"protected": "sex", "label": "y", "score": "score"}
    assert numbers(fairfix.audit(lazy, **asked)) == numbers(fairfix.audit(frame, **asked))


@given(st.integers(1, 30), st.integers(0, 30), st.booleans())
@settings(max_examples=60, deadline=None)
def test_arrays_are_aligned_or_refused(n: int, m: int, indexed: bool) -> None:
    """There is one value for each row, and an index that says otherwise than the position is refused."""
    frame = pd.DataFrame({"a": range(n)}, index=range(5, 5 + n) if indexed else None)
    values = np.arange(m) % 2
    if m != n:
        with pytest.raises(DataError, match="values"):
            with_arrays({"data": frame, "label": values})
        return
    made = with_arrays({"data": frame, "label": values})
    (part,) = made["data"].parts(["label", "a"])
    table = pa.Table.from_batches(part.batches())
    assert table.to_pydict() == {"label": values.tolist(), "a": list(range(n))}
    turned = pd.Series(values, index=frame.index[::-1])
    if n > 1:
        with pytest.raises(UsageError, match="another order"):
            with_arrays({"data": frame, "label": turned})


@cache
def given_arrays() -> dict[str, Any]:
    """Arrays of the same rows by the names that a proposed call has for them, and models of labels in words."""
    frame = people()
    X, sex = frame[["age", "income"]].assign(f=frame["sex"] == "f").astype(float), frame["sex"]
    words = np.where(frame["y"], "good", "bad")
    fitted = LogisticRegression().fit(X, words)
    return {
        "data": X, "label": words, "protected": sex, "numbers": frame["y"], "prediction": fitted.predict(X),
        "score": pd.Series(fitted.predict_proba(X)[:, 1], name="age"), "model": fitted,
        "repaired": RepairedClassifier(LogisticRegression(), protected="f").fit(X, words),
    }  # fmt: skip


@pytest.mark.parametrize(
    "given",
    ["data model protected label", "data protected label model=repaired", "data score protected label",
     "score protected label", "data score=points protected label=numbers", "data label prediction protected",
     "data prediction label=numbers protected"],
)  # fmt: skip
def test_a_call_that_is_proposed_for_arrays_runs(given: str) -> None:
    """Each line runs as it is, with the arrays of the same names, and a label in words is not decided without it."""
    arrays = {**given_arrays(), "points": pd.Series(given_arrays()["score"] * 1000, name="age")}
    named = {role: arrays[name or role] for role, _, name in (one.partition("=") for one in given.split())}
    with pytest.raises(FairfixError) as refused:
        fairfix.audit(**named)
    lines = [line for line in str(refused.value).splitlines() if line.startswith("  fairfix.audit(")]
    assert lines

    audits = [eval(line, {"fairfix": fairfix, **named}) for line in lines]  # noqa: S307  as a person types it

    assert len({json.dumps(numbers(one)) for one in audits}) == len(lines)
    assert all(("data" in given) == ("(data, " in line) for line in lines)


def test_labels_that_are_no_classes_of_the_model_are_answered_with_its_scores() -> None:
    arrays = given_arrays()
    asked = {"protected": arrays["protected"], "label": arrays["numbers"]}
    with pytest.raises(ModelError, match="`score`"):
        fairfix.audit(arrays["data"], model=arrays["model"], **asked)
    fairfix.audit(arrays["data"], score=arrays["score"], **asked)


@pytest.mark.parametrize("label", [{}, {"a": [0], "b": [1]}, {"=good": ["good"]}])
def test_a_dictionary_for_one_column_has_one_name(label: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="label"):
        fairfix.audit(score=[0.5], protected=["a"], label=label)


def test_a_repair_knows_its_model_again(tmp_path: Path) -> None:
    """In the process that made it; then as the same model in memory, as its booster, and as a file."""
    frame, model = people(), models()["lightgbm"]
    made = fairfix.repair(
        frame[FEATURES], model=model, protected=frame["sex"], label=frame["y"], method="ramp"
    )
    expected = fairfix.predict(made, frame)
    made.repaired.save(tmp_path / "r.fairfix")
    saved = fairfix.load(str(tmp_path / "r.fairfix"))
    joblib.dump(model, path := tmp_path / "m.joblib")

    for again, trust in ((model, None), (model.booster_, None), (str(path), file_hash(path))):
        assert saved.predict(frame, model=again, trust_model=trust).equals(expected)
    with pytest.raises(UsageError, match="`model`"):
        saved.predict(frame)
    with pytest.raises(ModelError, match="not the model"):
        saved.predict(frame, model=models()["xgboost"])


@pytest.mark.parametrize("name", models())
def test_what_a_model_has_learned_survives_saving(name: str, tmp_path: Path) -> None:
    """And differs from what another one has learned."""
    model = models()[name]
    joblib.dump(model, tmp_path / "m.joblib")
    assert content_hash(joblib.load(tmp_path / "m.joblib")) == content_hash(model)
    others = {content_hash(one) for one in models().values()}
    boosters = sum(one.startswith("booster") for one in models())
    assert len(others) == len(models()) - boosters  # a booster is that of its estimator


NATIVE = {
    "model.txt": lambda path: models()["lightgbm"].booster_.save_model(path),
    "model.json": lambda path: models()["xgboost"].save_model(path),
    "model.ubj": lambda path: models()["xgboost"].save_model(path),
}


@pytest.mark.parametrize("name", NATIVE)
def test_files_of_boosters_are_known_by_their_content(name: str, tmp_path: Path) -> None:
    """Whatever their name; texts of a CSV file get the levels of the fit."""
    NATIVE[name](str(tmp_path / name))
    (tmp_path / "any.bin").write_bytes((tmp_path / name).read_bytes())
    X = people()[FEATURES]
    model = load_model(tmp_path / "any.bin", trust=file_hash(tmp_path / "any.bin"))
    expected = scores("lightgbm" if name == "model.txt" else "xgboost", X)
    assert model.score(X.assign(job=X["job"].astype(str))) == pytest.approx(expected, abs=1e-7)
    with pytest.raises(ColumnError, match="'age'"):
        model.score(X.assign(age="old"))
    if name != "model.txt":
        with pytest.raises(ColumnError, match="'job' holds 'pilot'"):
            model.score(X.assign(job="pilot"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NATIVE)
def test_a_damaged_file_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    """A library that ends the process on it ends another process."""
    NATIVE[name](str(path := tmp_path / name))
    assert load_model(path).score(people()[FEATURES]).shape == (len(people()),)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ModelError, match=name):
        load_model(path)


WRONG: dict[str, Any] = {
    "object": object(),
    "frame": people(),
    "scalar array": np.array(3),
    "number": -5,
    "unfitted": LogisticRegression(),
    "list": [1, 2],
    "empty list": [],
}


@pytest.mark.slow
@pytest.mark.parametrize("function", ["audit", "repair", "compare", "count", "predict"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_thing_for_any_parameter_is_an_error_of_ours(function: str, wrong: str) -> None:
    """Never one of Python, pandas or numpy; many wrong things are right elsewhere, and run."""
    frame = scored().head(80)
    base: dict[str, Any] = {"data": frame, "protected": "sex", "label": "y", "score": "score"}
    base |= {"repair": {"method": "ramp"}, "compare": {"methods": "ramp", "slacks": 0.1}}.get(function, {})
    if function == "predict":
        made = fairfix.repair(frame, protected="sex", label="y", score="score", method="ramp")
        base = {"artifact": made, "data": frame}
    task = getattr(fairfix, function)
    for name in set(inspect.signature(task).parameters) - {"output"}:
        with suppress(FairfixError):
            task(**{**base, name: WRONG[wrong]})


def test_models_that_cannot_answer_say_what_to_type() -> None:
    """One that is not fitted, one of numbers, one of three classes, one of other features, one that is none."""
    frame = people()
    X, y = frame[["age", "income"]], frame["y"]
    three = LogisticRegression().fit(X, np.digitize(frame["age"], [-0.5, 0.5]))
    asked: dict[str, Any] = {"protected": frame["sex"], "label": y}
    for model, kind, word in (
        (LogisticRegression(), ModelError, "fit"),
        (LinearRegression().fit(X, y), UsageError, "task='regression'"),
        (three, ModelError, "0, 1, 2.*`label`"),
        (LogisticRegression().fit(X.rename(columns={"age": "years"}), y), ColumnError, "'years'"),
        (LogisticRegression, ModelError, "fitted model"),
        (3, ModelError, "`model` is a value builtins.int"),
    ):
        with pytest.raises(kind, match=word):
            fairfix.audit(X, model=model, **asked)
    labels = np.digitize(frame["age"], [-0.5, 0.5])
    of_two = fairfix.audit(X.assign(kind=labels), model=three, protected=frame["sex"], label="kind=2")
    assert of_two.content.data.rows.used == len(X)
    with pytest.raises(ColumnError, match="several levels"):
        fairfix.audit(pd.concat({"x": X}, axis=1), protected=frame["sex"], label=y, score=y)
    with pytest.raises(UsageError, match="`label`: values go with rows in memory"):
        fairfix.audit("data.csv", protected="sex", label=y)
