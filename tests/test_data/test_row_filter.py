"""Row filters: a condition is parsed back from its text, keeps what pandas keeps, and accounts for the other rows."""

from __future__ import annotations

import tempfile
from functools import reduce
from pathlib import Path
from typing import Any

import duckdb
import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.data.files import Source, open_source
from fairfix.data.row_filter import (
    KEYWORDS,
    ColumnTest,
    Condition,
    Junction,
    Negation,
    columns_of,
    filtered,
    parse_condition,
)
from fairfix.data.urls import closing_connections
from fairfix.errors import DataError, FairfixError, UsageError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.databases import differences, without_source

VALUES: dict[str, list[Any]] = {
    "year": [2022, 2023, 2024],
    "share": [0.25, 0.5, 1.0, -3.0],
    "code": ["01", "1", "2.0", "x"],
    "product": ["car", "van", "it's", 'a "b"', "Née"],
    "flag": [True, False],
    "day": ["2024-01-31", "2024-02-01", "2023-12-31"],
    "my column": ["a,b", "c", " d"],
}
"""Column -> its entries."""

OPTIONAL = ("share", "product", "my column", "day")
"""Columns in which entries may be missing."""

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            name: st.sampled_from([*values, *([None] if name in OPTIONAL else [])])
            for name, values in VALUES.items()
        }
    ),
    min_size=8,
    max_size=40,
)


def text_of(value: Any) -> str:
    """Return a value as a condition has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, (int, float)) else "'" + value.replace("'", "''") + "'"


@st.composite
def leaves(draw: st.DrawFn) -> tuple[str, Any]:
    """Return a comparison as text, and what makes a mask of a frame by pandas alone."""
    name = draw(st.sampled_from(list(VALUES)))
    values = draw(st.lists(st.sampled_from(VALUES[name]), min_size=1, max_size=3, unique=True))
    written = f"`{name}`" if name == "my column" or draw(st.booleans()) else name
    ordered = name in ("year", "share", "day")
    word = draw(
        st.sampled_from(["==", "!=", "in", "not in", "missing", *(["<", "<=", ">", ">="] if ordered else [])])
    )
    if word == "missing":
        return f"{written} is missing", lambda frame: frame[name].isna()
    if word.endswith("in"):
        text = f"{written} {word} ({', '.join(map(text_of, values))})"
        return text, lambda frame: frame[name].isin(values) ^ (word == "not in")
    one = values[0]

    def mask(frame: pd.DataFrame) -> Any:
        column = frame[name]
        if word == "!=":
            return ~column.isin([one])
        there = column[column.notna()]
        met = {"==": there.eq, "<": there.lt, "<=": there.le, ">": there.gt, ">=": there.ge}[word](one)
        return met.astype(bool).reindex(frame.index, fill_value=False)

    return f"{written} {word} {text_of(one)}", mask


def conditions() -> st.SearchStrategy[tuple[str, Any]]:
    """Return conditions of a few comparisons."""

    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            inner.map(lambda one: (f"not ({one[0]})", lambda frame: ~one[1](frame))),
            st.tuples(inner, inner).map(
                lambda two: (
                    f"({two[0][0]}) and ({two[1][0]})",
                    lambda frame: two[0][1](frame) & two[1][1](frame),
                )
            ),
            st.tuples(inner, inner).map(
                lambda two: (
                    f"({two[0][0]}) or ({two[1][0]})",
                    lambda frame: two[0][1](frame) | two[1][1](frame),
                )
            ),
        )

    return st.recursive(leaves(), extend, max_leaves=4)


def frame_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a frame of rows, with their numbers."""
    frame = pd.DataFrame(rows, columns=list(VALUES))
    return frame.assign(row=np.arange(len(frame)), share=frame["share"].astype(float))


def kept(source: Source) -> list[int]:
    """Return the numbers of the rows that a source yields."""
    return [
        int(entry)
        for part in source.parts(["row"], {"row": pa.int64()})
        for batch in part.batches()
        for entry in batch.column(0).to_pylist()
    ]


def sources_of(frame: pd.DataFrame, folder: Path, kind: str) -> Source:
    """Return a frame as data of a kind."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if kind == "frame":
        return open_source(frame)
    if kind == "parquet":
        pq.write_table(table, folder / "d.parquet", row_group_size=5)
        return open_source(str(folder / "d.parquet"))
    if kind == "csv":
        frame.to_csv(folder / "d.csv", index=False)
        return open_source(str(folder / "d.csv"))
    (folder / "d.duckdb").unlink(missing_ok=True)
    connection = duckdb.connect(str(folder / "d.duckdb"))
    connection.register("rows", table)
    connection.execute("CREATE TABLE d AS SELECT * FROM rows ORDER BY row")
    connection.close()
    return open_source(f"duckdb:///{folder / 'd.duckdb'}#d")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["frame", "parquet", "csv", "duckdb"])
@settings(max_examples=25, deadline=None)
@given(rows=ROWS, condition=conditions())
def test_a_condition_keeps_the_rows_that_pandas_keeps(kind: str, rows: list[Any], condition: Any) -> None:
    """In every kind of data, and the other rows are counted."""
    text, mask = condition
    frame = frame_of(rows)
    wanted = frame[mask(frame)]["row"].tolist()
    with tempfile.TemporaryDirectory() as folder, closing_connections():
        source = sources_of(frame, Path(folder), kind)
        try:
            chosen = filtered(source, parse_condition(text))
        except UsageError as error:
            if "matches no row" not in str(error):  # of a column whose entries are all of another kind
                raise
            return
        except DataError:
            assert not wanted
            return
        assert sorted(kept(chosen)) == wanted
        assert chosen.left_out == len(frame) - len(wanted)
        assert chosen.rows == len(wanted)


def trees() -> st.SearchStrategy[Condition]:
    """Return conditions as they are parsed."""
    name = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
    value = st.one_of(
        st.integers(-(10**6), 10**6).map(str),
        st.sampled_from(["True", "False", "01", "-0.5", "1e400", "+5", "x", "", "a'b", 'a"b', "and"]),
    )
    leaf = st.one_of(
        st.builds(ColumnTest, name, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), st.tuples(value)),
        st.builds(
            ColumnTest,
            name,
            st.sampled_from(["in", "not in"]),
            st.lists(value, min_size=1, max_size=3, unique=True).map(tuple),
        ),
        st.builds(ColumnTest, name, st.sampled_from(["is missing", "is not missing"])),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(Negation, inner),
            st.builds(Junction, st.sampled_from(["and", "or"]), st.tuples(inner, inner)),
        ),
        max_leaves=6,
    )


@given(tree=trees())
def test_a_condition_is_parsed_back_from_its_text(tree: Condition) -> None:
    """The text that results keep means the condition that was parsed."""
    assert parse_condition(str(tree)) == tree


@given(
    text=st.lists(
        st.sampled_from([*"ab1 '\"`()=<>!,.-&|\t\né", *(f" {one} " for one in sorted(KEYWORDS))]), max_size=30
    ).map("".join)
)
def test_any_text_is_a_condition_or_a_usage_error(text: str) -> None:
    """Nothing else happens, and what is parsed has columns."""
    try:
        condition = parse_condition(text)
    except UsageError:
        return
    assert columns_of(condition)


WRONG = [
    ("year=", 6),
    ("year==", 7),
    ("year==product", 14),
    ("year==2024 product=='car'", 12),
    ("year==2024 & share>0", 12),
    ("(year==2024", 12),
    ("year in 2024", 9),
    ("year==null", 7),
    ("product=='car", 10),
    ("2024", 1),
]


@pytest.mark.parametrize(("text", "character"), WRONG)
def test_a_syntax_error_names_the_character(text: str, character: int) -> None:
    with pytest.raises(UsageError, match=rf"character ({character - 1}|{character}|{character + 1}) "):
        parse_condition(text)


@pytest.mark.parametrize(
    "text", ["(" * 200 + "a==1" + ")" * 200, "not " * 200 + "a==1", "a==1 or " * 3000 + "a==1"]
)
def test_a_condition_is_bounded(text: str) -> None:
    """No condition of a stranger fills the stack or the processor."""
    with pytest.raises(UsageError):
        parse_condition(text)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Return scored rows of three years and two products."""
    rng = np.random.default_rng(0)
    n = 900
    score = rng.random(n).round(3)
    return pd.DataFrame(
        {
            "year": rng.integers(2022, 2025, n),
            "product": rng.choice(["car", "van"], n),
            "race": rng.choice(["A", "B"], n),
            "income": rng.normal(size=n).round(2),
            "score": score,
            "label": (rng.random(n) < score).astype(int),
            "row": np.arange(n),
        }
    )


CONDITION = "year==2024 and product=='car'"


@pytest.mark.parametrize("kind", ["frame", "parquet", "csv", "duckdb"])
def test_an_audit_is_that_of_rows_filtered_before(kind: str, frame: pd.DataFrame, tmp_path: Path) -> None:
    """All numbers are the same; the rows left out are accounted for by their reason."""
    before = frame[(frame["year"] == 2024) & (frame["product"] == "car")]
    with closing_connections():
        sources_of(frame, tmp_path, kind)
    data = {"frame": frame, "duckdb": f"duckdb:///{tmp_path / 'd.duckdb'}#d"}.get(
        kind, str(tmp_path / f"d.{kind}")
    )
    wanted = fairfix.audit(before, protected="race").to_dict()
    own = fairfix.audit(data, protected="race", where=CONDITION).to_dict()
    rows = own["data"]["rows"]
    gone = len(frame) - len(before)
    assert rows == {"read": len(frame), "used": len(before), "excluded": [{"reason": "where", "rows": gone}]}
    assert own["settings"].pop("where") == str(parse_condition(CONDITION))
    own["data"]["rows"] = wanted["data"]["rows"]
    assert not differences(without_source(own), without_source(wanted))


def test_a_repair_is_that_of_rows_filtered_before(frame: pd.DataFrame, tmp_path: Path) -> None:
    """The rule is the same, a column of the condition alone is no feature, and the artifact keeps the condition."""
    before = frame[(frame["year"] == 2024) & (frame["product"] == "car")]
    asked: dict[str, Any] = {"protected": "race", "id": "row", "method": "ramp"}
    wanted = fairfix.repair(before, **asked)
    own = fairfix.repair(frame, where=CONDITION, output=str(tmp_path / "r.fairfix"), **asked)
    assert own.to_dict()["rule"] == wanted.to_dict()["rule"]
    assert own.to_dict()["data"]["rows"]["read"] == len(frame)
    loaded = fairfix.load(str(tmp_path / "r.fairfix"))
    assert loaded.facts["settings"]["where"] == str(parse_condition(CONDITION))
    every = loaded.predict(frame)
    assert len(every) == len(frame)  # a prediction filters nothing
    learned = fairfix.repair(
        frame, protected="race", method="logloss", features="all", id="row", where=CONDITION, score=None
    )
    assert not {"year", "product"} & set(learned.repaired.required)


def test_counts_keep_the_condition(frame: pd.DataFrame, tmp_path: Path) -> None:
    """An audit of counts has the rows, the reason and the condition, and refuses another one."""
    path = str(tmp_path / "x.counts")
    fairfix.count(frame, protected="race", where=CONDITION).save(path)
    report = fairfix.audit(path).to_dict()
    assert report["settings"]["where"] == str(parse_condition(CONDITION))
    assert report["data"]["rows"]["read"] == len(frame)
    assert [one["reason"] for one in report["data"]["rows"]["excluded"]] == ["where"]
    fairfix.audit(path, where=" year == 2024 and product == 'car' ")
    with pytest.raises(UsageError):
        fairfix.audit(path, where="year==2023")


def test_a_baseline_of_other_rows_warns(frame: pd.DataFrame) -> None:
    old = fairfix.audit(frame, protected="race", where="year==2023")
    same = fairfix.audit(frame, protected="race", where="year == 2023", baseline=old.to_dict()).to_dict()
    other = fairfix.audit(frame, protected="race", where="year==2024", baseline=old.to_dict()).to_dict()
    codes = [{one["code"] for one in result.get("messages", ())} for result in (same, other)]
    assert ["other_rows" in one for one in codes] == [False, True]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("yaer==2024", "'year'"),
        ("year=='old'", "matches no row"),
        ("product>3", "matches no row"),
        ("product=='cra'", "'car'"),
        ("year==1999", "none of the 900 rows"),
    ],
)
@pytest.mark.parametrize("kind", ["frame", "csv", "duckdb"])
def test_what_can_keep_nothing_is_refused(
    kind: str, condition: str, words: str, frame: pd.DataFrame, tmp_path: Path
) -> None:
    source = sources_of(frame, tmp_path, kind)
    with pytest.raises(FairfixError, match=words):
        filtered(source, parse_condition(condition))


def test_a_value_that_no_row_has_is_noted(frame: pd.DataFrame) -> None:
    """Beside one that rows have, a misspelt value would be left out without a word."""
    result = fairfix.audit(frame, protected="race", where="product in ('car','vna')").to_dict()
    (note,) = (one for one in result["messages"] if one["code"] == "where_unmatched")
    assert "'vna'" in note["text"]
    assert "'van'" in note["text"]


@pytest.mark.parametrize("value", [2024, 2024.0, "2024", "2024.0"])
def test_a_value_means_the_same_however_it_is_stored(value: Any) -> None:
    table = pa.table({"year": pa.array([value, value, None]), "row": [0, 1, 2]})
    for text in (
        "year==2024",
        "year=='2024'",
        "year==2024.0",
        "year in (2024, 2025)",
        "year>=2024",
        "2023 < year < 2025",
    ):
        assert kept(filtered(open_source(table), parse_condition(text))) == [0, 1]
    assert kept(filtered(open_source(table), parse_condition("year!=2024"))) == [2]


NARROW = [
    pa.array([0.1, 0.2, None], pa.float32()),
    pa.array(["0.1", "0.2", None]).dictionary_encode(),
    pa.array(["0.10", "0.20", None]),
]


@pytest.mark.parametrize("column", NARROW, ids=["float32", "dictionary", "text"])
def test_narrow_numbers_are_what_they_are_written_as(column: pa.Array) -> None:
    """0.1 is met by a column of float32, whose nearest double is another."""
    table = pa.table({"x": column, "row": [0, 1, 2]})
    assert kept(filtered(open_source(table), parse_condition("x == 0.1"))) == [0]
    assert kept(filtered(open_source(table), parse_condition("x <= 0.1"))) == [0]


def test_a_table_of_frequencies_accounts_for_people(frame: pd.DataFrame) -> None:
    few = frame.groupby(["race", "label", "product"], as_index=False).agg(n=("row", "size"))
    few["prediction"] = few["label"]
    result = fairfix.audit(few, protected="race", count="n", where="product=='car'").to_dict()
    cars = int((frame["product"] == "car").sum())
    assert result["data"]["rows"]["used"] == cars
    assert result["data"]["rows"]["read"] == len(frame)


def test_conjunctions_of_many_conditions_agree_with_all() -> None:
    """``and`` binds before ``or``."""
    frame = pd.DataFrame({"a": [0, 0, 1, 1], "b": [0, 1, 0, 1], "row": range(4)})
    source = filtered(open_source(frame), parse_condition("a==1 or a==0 and b==1"))
    assert kept(source) == [1, 2, 3]
    masks = [frame["a"] == 1, (frame["a"] == 0) & (frame["b"] == 1)]
    assert kept(source) == frame[reduce(lambda one, two: one | two, masks)]["row"].tolist()


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.string(), None])
def test_infinity_is_a_value_in_every_type(kind: pa.DataType | None, tmp_path: Path) -> None:
    """The condition of a slice with infinite entries selects its rows, also where all others are finite numbers."""
    entries = [5.3, float("inf"), 7.0, float("-inf")]
    data: Any = pa.table(
        {"x": pa.array(map(str, entries) if kind == pa.string() else entries, kind or pa.float64())}
    )
    if kind is None:
        data.to_pandas().to_csv(tmp_path / "d.csv", index=False)
        data = str(tmp_path / "d.csv")
    for condition, rows in {"x == 'inf'": 1, "x != 'inf'": 3, "x in ('inf', '-inf')": 2}.items():
        assert filtered(open_source(data), parse_condition(condition)).rows == rows, condition
