"""Exported repairs: a query, a model, a script and JSON give what ``fairfix predict`` gives."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import fairfix
import hypothesis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.cli import run as command
from fairfix.data.canonical import canonical_text
from fairfix.data.choices import Database
from fairfix.data.table import assemble
from fairfix.errors import ArtifactError, UsageError
from fairfix.models import standalone
from fairfix.models.export import document, export
from fairfix.models.export.lowering import exported
from fairfix.models.export.sql import DIALECTS, ROW, query
from fairfix.models.identity import RowDraws
from fairfix.models.program import Step
from fairfix.models.repaired import Repaired
from fairfix.models.tree_arrays import of_histograms
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from tests.data import people
from tests.databases import postgresql

FEATURES = ["town", "real", "yes"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as url:
        yield url


REPAIRS: dict[str, dict[str, Any]] = {
    "ramp": {"method": "ramp"},
    "ramp of crossed groups": {"method": "ramp", "protected": ["race", "sex"]},
    "ramp of bands": {
        "method": "ramp",
        "protected": "real",
        "bands": "real=-0.5,0,0.8",
        "missing": "real=group",
    },
    "curves of a recalibrated score": {
        "method": "ramp",
        "constraint": "equal_opportunity",
        "calibrate": "sigmoid",
    },
    "tube": {"method": "fair-regression", "group": "used"},
    "plug-in rule": {"method": "fair-regression", "slack": 0.05},
    "truncated logit by label": {
        "method": "logloss",
        "constraint": "equalized_odds",
        "holds": "given-label",
        "features": FEATURES,
    },
    "logit of splines": {"method": "logloss", "learner": "linear(basis=splines)", "features": FEATURES},
    "trees": {"method": "sensei", "features": FEATURES},
}
"""Repairs of real rows; rules of every kind are drawn in ``test_rules.py``."""


@cache
def rows() -> pd.DataFrame:
    """Rows with missing numbers and missing groups; a group is called by quotes and a backslash."""
    frame = people(600, 3, shares=(0.5, 0.35, 0.15))
    frame["yes"] = frame["yes"].astype(bool)
    frame["town"] = frame["town"].replace("north", "no'r\\th \"")
    frame.loc[::17, "real"] = np.nan
    return frame[["race", "sex", "label", "score", "id", *FEATURES]]


@cache
def repaired(name: str) -> Repaired:
    given = {"protected": "race", "label": "label", "score": "score", "id": "id", "seed": 1, **REPAIRS[name]}
    made = fairfix.repair(rows(), **given).repaired
    if name != "trees":  # few of them, in the place of the linear model
        return made
    scorer = made.predictor.models[0]
    table = assemble(pa.Table.from_pandas(rows()).to_batches(), made.data_spec)
    X = scorer.features.matrix(table, gaps=True)
    model = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(X, rows()["label"])
    grown = replace(scorer, member=of_histograms(model, "sigmoid"))
    bare = {part: entry for part, entry in made.facts.items() if part != "vectors"}
    return replace(made, predictor=replace(made.predictor, models=(grown,)), facts=bare)


@cache
def expected(name: str) -> pd.DataFrame:
    return fairfix.predict(repaired(name), rows())


def result(name: str) -> str:
    return "p_positive" if repaired(name).predictor.gives == "decision" else "prediction"


def draws(name: str) -> np.ndarray[Any, Any]:
    made = RowDraws(pa.Table.from_pandas(rows()), {"id": "text"}, repaired(name).key, by_id=True)
    return made(np.arange(len(rows())))


def close(got: Any, name: str) -> None:
    """Equal but for the last bits of exponentials and logarithms, of which each system has its own."""
    np.testing.assert_allclose(
        np.asarray(got, dtype=float), expected(name)[result(name)], rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("name", ["ramp of crossed groups", "plug-in rule", "truncated logit by label"])
def test_a_query_runs_where_numbers_have_no_types(name: str) -> None:
    """SQLite: a number that was written as a whole one would be divided as one."""
    base = sqlite3.connect(":memory:")
    try:
        base.execute("select exp(1e0), ln(1e0)")
    except sqlite3.OperationalError:
        pytest.skip("this SQLite was built without mathematical functions")
    rows().assign(fairfix_draw=draws(name)).to_sql("data", base)
    got = pd.read_sql(str(export(repaired(name), "sql", dialect="sqlite")), base)
    close(got[result(name)], name)


@pytest.mark.parametrize("dialect", ["sqlite", "duckdb", "postgresql"])
@pytest.mark.parametrize("name", ["ramp of crossed groups", "truncated logit by label", "logit of splines"])
def test_a_query_fails_where_a_column_is_missing(
    name: str, dialect: Database, request: pytest.FixtureRequest
) -> None:
    """A quoted name must be no text: SQLite would take ``"score"`` for the text score, which is the number 0."""
    made, data = repaired(name), rows().head(20)
    sql = str(export(made, "sql", dialect=dialect, table="data"))
    inputs = exported(made).inputs
    assert inputs
    for gone in inputs:
        left = data.drop(columns=gone)
        if dialect == "sqlite":
            base = sqlite3.connect(":memory:")
            left.to_sql("data", base)
            with pytest.raises(sqlite3.OperationalError, match=gone):
                base.execute(sql)
        elif dialect == "duckdb":
            duckdb = pytest.importorskip("duckdb", reason="runs the queries")
            with duckdb.connect() as session:
                session.register("data", left)
                with pytest.raises(duckdb.Error, match=gone):
                    session.execute(sql)
        else:
            psycopg = pytest.importorskip("psycopg", reason="runs the queries")
            kinds = {"f": "double precision", "i": "bigint", "b": "boolean"}
            columns = ", ".join(
                f'"{one}" {kinds.get(kind.kind, "text")}' for one, kind in left.dtypes.items()
            )
            with psycopg.connect(request.getfixturevalue("server")) as session:
                session.execute(f"CREATE TEMPORARY TABLE data ({columns})")
                with pytest.raises(psycopg.errors.UndefinedColumn, match=gone):
                    session.execute(sql)


@hypothesis.given(
    # sqlglot takes a name of BigQuery with a dot for several
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0."), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
)
@hypothesis.example("a\\", "b\\")
@hypothesis.example("a` FROM x; DROP TABLE y; --", "' OR 1=1 --")
@hypothesis.example("line\nbreak", "line\r\nbreak")
@hypothesis.example("\\`", "\\'")
def test_names_and_texts_are_read_again_as_they_were(name: str, text: str) -> None:
    sqlglot = pytest.importorskip("sqlglot", reason="reads the dialects")
    for dialect in DIALECTS:
        level = Step("level", settings={"column": name, "levels": [text]})
        written = query([level], {"p": 0}, [name], "data", dialect)
        (tree,) = sqlglot.parse(written, read=dialect.replace("postgresql", "postgres"))
        names = {one.name for one in tree.find_all(sqlglot.expressions.Identifier)}
        texts = {one.this for one in tree.find_all(sqlglot.expressions.Literal) if one.is_string}
        assert (dialect, names) == (dialect, {name, "p", "data", ROW})
        assert {text, "(missing)"} <= texts
        # a number may be written in several ways, all of which mean the level, and is shorn of its zeros
        assert {canonical_text(one) for one in texts - {"(missing)", "0"}} <= {canonical_text(text)}, dialect


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nul_is_refused_in_names_and_texts(dialect: Database) -> None:
    for name, level in (("a\0b", "x"), ("a", "x\0y")):
        step = Step("level", settings={"column": name, "levels": [level]})
        with pytest.raises(UsageError, match="NUL"):
            query([step], {"p": 0}, [], "data", dialect)


@pytest.mark.slow
def test_a_graph_is_exported_to_nothing() -> None:
    """It is applied by predict alone, and says so."""
    pytest.importorskip("skl2onnx", reason="makes the graph")
    learner = make_pipeline(PolynomialFeatures(2), LogisticRegression())
    given: dict[str, Any] = {
        "protected": "race",
        "label": "label",
        "id": "id",
        "features": FEATURES,
        "slack": 1.0,
    }
    made = fairfix.repair(rows(), method="fair-regression", learner=learner, **given).repaired
    with pytest.raises(
        UsageError, match="a rule with a learner that is stored as an ONNX graph, cannot be exported"
    ):
        export(made, "sql", table="t")
    row = rows().drop(columns=["label"]).to_dict("records")[0]
    alone, whole = made._row_rule, fairfix.predict(made, rows())
    assert alone is not None
    assert alone(row)["prediction"] == whole["prediction"][0]


def test_a_missing_score_and_an_unknown_group_have_no_result() -> None:
    frame = rows().head(4).assign(race=["a", "x", "b", None], score=[0.7, 0.7, np.nan, 0.7])
    inputs = frame.astype(object).where(frame.notna(), None).to_dict("records")
    program = document(repaired("ramp"), exported(repaired("ramp")))
    got = [one["p_positive"] for one in standalone.predict(inputs, program)]
    assert [one is None for one in got] == [False, True, True, True]


def test_an_unknown_group_gets_the_base_where_the_artifact_says_so(tmp_path: Path) -> None:
    for method in ("ramp", "logloss"):
        made = fairfix.repair(
            rows(),
            protected="race",
            label="label",
            score="score",
            id="id",
            method=method,
            unseen="original",
        ).repaired
        frame = rows().head(60).assign(race="x")
        inputs = frame.astype(object).where(frame.notna(), None).to_dict("records")
        got = pd.DataFrame(standalone.predict(inputs, document(made, exported(made))))
        assert (got["decision"] == fairfix.predict(made, frame)["decision"]).all()
        assert set(got["decision"]) == {0, 1}


def test_bands_of_few_bits_are_those_of_predict() -> None:
    """An edge such as 0.7 is a smaller number in 32 bits, and is in the band that it begins nevertheless."""
    frame = people(400, 3)[["score", "label", "id"]]
    frame["dose"] = np.resize([0.0, 0.1, 0.3, 0.7, 0.9], len(frame)).astype(np.float32)
    frame["score"] *= 0.4 + 0.6 * (frame["dose"] >= np.float32(0.7))
    given = {"protected": "dose", "bands": "dose=0.1,0.7", "label": "label", "score": "score", "id": "id"}
    made = fairfix.repair(frame, **given, method="ramp").repaired
    wanted = fairfix.predict(made, frame)["p_positive"]
    assert fairfix.predict(made, frame.astype({"dose": float}))["p_positive"].equals(wanted)

    got = pd.DataFrame(standalone.predict(frame.to_dict("records"), document(made, exported(made))))
    np.testing.assert_allclose(got["p_positive"], wanted, rtol=1e-12)
    duckdb = pytest.importorskip("duckdb", reason="runs the queries")
    with duckdb.connect() as base:
        base.register("data", frame)
        queried = base.execute(str(export(made, "sql"))).df()
    np.testing.assert_allclose(queried["p_positive"], wanted, rtol=1e-12)
    runtime = pytest.importorskip("onnxruntime", reason="runs the models")
    session = runtime.InferenceSession(export(made, "onnx"), providers=["CPUExecutionProvider"])
    feed = {name: frame[name].to_numpy(float) for name in ("dose", "score")}
    np.testing.assert_allclose(session.run(["p_positive"], feed)[0], wanted, rtol=1e-12)


def test_the_vectors_know_that_an_unseen_crossing_gets_the_base() -> None:
    """Race c and sex f were there in the fit, but never in one row."""
    frame = rows()[(rows()["race"] != "c") | (rows()["sex"] != "f")]
    given: dict[str, Any] = {"label": "label", "score": "score", "id": "id", "method": "ramp"}
    made = fairfix.repair(frame, protected=["race", "sex"], unseen="original", **given).repaired

    whole = document(made, exported(made))

    assert whole["vectors"] == made.facts["vectors"]
    crossed = set(zip(whole["vectors"]["rows"]["race"], whole["vectors"]["rows"]["sex"], strict=True))
    assert ("c", "f") in crossed
    assert None not in whole["vectors"]["results"]["decision"]
    assert standalone.failures(whole) == []


def test_equal_rows_without_ids_are_told_apart_as_by_predict() -> None:
    frame = pd.concat([people(300, 5)[["race", "score", "label"]].round(1)] * 3, ignore_index=True)
    made = fairfix.repair(frame, protected="race", label="label", score="score", method="ramp").repaired
    got = pd.DataFrame(standalone.predict(frame.to_dict("records"), document(made, exported(made))))
    assert (got["decision"] == fairfix.predict(made, frame)["decision"]).all()


def test_the_command_writes_a_script_that_checks_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a process of its own, which cannot import fairfix; a changed constant is noticed."""
    artifact, script = tmp_path / "r.fairfix", tmp_path / "rule.py"
    repaired("ramp").save(artifact)
    assert command(["export", str(artifact), "--to", "python", "-o", str(script)]) == 0
    check = [sys.executable, "-I", str(script), "--check"]
    assert subprocess.run(check, capture_output=True, text=True, check=True).stdout.startswith("all results")
    line = rows()[["race", "score", "id"]].head(1).to_json(orient="records", lines=True)
    done = subprocess.run(check[:-1], input=line, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["p_positive"] == expected("ramp")["p_positive"][0]
    script.write_text(script.read_text().replace("0.05", "0.06"))
    assert subprocess.run(check, capture_output=True, check=False).returncode == 1
    assert command(["export", str(artifact), "--to", "onnx"]) == 2
    assert "--output" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("reader", [("java", "Program.java"), ("Rscript", "program.R")])
def test_readers_in_other_languages_give_the_results(reader: tuple[str, str], tmp_path: Path) -> None:
    runner, file = reader
    if shutil.which(runner) is None:
        pytest.skip(f"{runner} is not installed")
    source = Path(fairfix.__file__).parents[1] / "docs" / "readers" / file
    for name in ("tube", "trees", "curves of a recalibrated score"):
        (tmp_path / "rule.json").write_text(str(export(repaired(name), "json")))
        done = subprocess.run(
            [runner, source, tmp_path / "rule.json"], capture_output=True, text=True, check=False
        )
        if "there is no package called" in done.stderr:
            pytest.skip(done.stderr.strip())
        assert done.stdout.startswith("0 of 48 "), (name, done.stderr)


@pytest.mark.parametrize("name", ["ramp", "ramp of bands", "tube"])
def test_a_rule_that_contradicts_its_vectors_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By whoever shows it or uses it; the whole one is taken, and one from before there were vectors."""
    made, path = repaired(name), tmp_path / "r.fairfix"
    bare = {part: entry for part, entry in made.facts.items() if part != "vectors"}
    for facts in (made.facts, bare):
        replace(made, facts=facts).save(path)
        assert fairfix.predict(fairfix.load(str(path)), rows()).equals(expected(name))
    rows().to_csv(tmp_path / "rows.csv", index=False)
    predict = ["predict", str(path), str(tmp_path / "rows.csv"), "-o", str(tmp_path / "o.csv")]
    held = made.facts["vectors"]
    changed = {**held, "draws": [1 - draw for draw in held["draws"]]}
    replace(made, facts={**made.facts, "vectors": changed}).save(path)
    for line in (["inspect", str(path)], predict):
        capsys.readouterr()
        assert command(line) == 2, line
        assert "vectors" in capsys.readouterr().err
    with pytest.raises(ArtifactError):
        fairfix.load(str(path))
    assert not (tmp_path / "o.csv").exists()


def test_another_rule_contradicts_the_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Vectors of one repair do not vouch for another one of the same kind."""
    asked: dict[str, Any] = {"protected": "race", "label": "label", "score": "score", "method": "ramp"}
    ones = [fairfix.repair(people(400, seed), **asked).repaired for seed in (1, 2)]
    replace(ones[0], facts=ones[1].facts).save(tmp_path / "r.fairfix")
    assert command(["inspect", str(tmp_path / "r.fairfix")]) == 2
    assert "vectors" in capsys.readouterr().err


@pytest.mark.parametrize("group", ["unused", "used"])
def test_a_constant_of_learned_features_has_vectors(group: str) -> None:
    """Its program looks at no column, and prediction still asks for all that it was made of."""
    asked: dict[str, Any] = {"method": "fair-regression", "solver": "reduction", "slack": 0.0, "group": group}
    data = people(120, shares=(0.6, 0.4, 0.0))
    facts = fairfix.repair(data, protected="race", features="p", id="id", **asked).repaired.facts

    assert {"p", *(["race"] if group == "used" else [])} <= facts["vectors"]["rows"].keys()
