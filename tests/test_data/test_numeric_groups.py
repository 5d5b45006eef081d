"""Bands: numbers cut into groups, the same whatever type, file and batch they come in."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.encoder import Encoder
from fairfix.data.files import open_source
from fairfix.data.merging import MISSING
from fairfix.data.numeric_groups import EACH, MOST_NUMBERS, PARTS, band_names, parse_bands
from fairfix.data.scan import scan, settled_bands
from fairfix.errors import DataError, UsageError
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Call

EDGES = (-1.5, 0.1, 0.7, 25.0)


def encoded(column: pa.Array, edges: tuple[float, ...] = EDGES, **more: Any) -> list[str]:
    """Return the group of every row."""
    data_spec = DataSpec(ColumnRoles(("g",)), bands={"g": edges}, missing_group="group", **more)
    rows = Encoder(data_spec).encode(pa.record_batch({"g": column}))
    return [rows.cells[code][0] for code in rows.cell]


def expected(number: float | None) -> str:
    """Return the name of the band of a number, by comparing it with every edge."""
    if number is None:
        return MISSING
    inner = {
        f"{low} to under {high}": low <= number < high for low, high in ((-1.5, 0.1), (0.1, 0.7), (0.7, 25))
    }
    inner |= {"under -1.5": number < -1.5, "25 or more": number >= 25}
    (name,) = (name for name, inside in inner.items() if inside)
    return name


NUMBERS = [-2.0, -1.5, 0.0, 0.1, 0.5, 0.7, 1.0, 24.5, 25.0, 300.0, None]
TYPES = {
    "float64": pa.array(NUMBERS, pa.float64()),
    "float32": pa.array(NUMBERS, pa.float64()).cast(pa.float32()),
    "decimal": pa.array([None if n is None else Decimal(str(n)) for n in NUMBERS], pa.decimal128(9, 1)),
    "text": pa.array([None if n is None else str(n) for n in NUMBERS], pa.string()),
    "categories": pa.array([None if n is None else str(n) for n in NUMBERS]).dictionary_encode(),
    "categories of numbers": pa.array(NUMBERS).dictionary_encode(),
    "NaN": pa.array([np.nan if n is None else n for n in NUMBERS], pa.float64()),
}


@pytest.mark.parametrize("kind", TYPES)
def test_a_number_is_in_the_same_band_in_every_type(kind: str) -> None:
    """An edge belongs to the band above it, also where the type has few bits; outer bands have no end."""
    assert encoded(TYPES[kind]) == [expected(number) for number in NUMBERS]


def test_numbers_that_were_stored_in_few_bits_keep_their_bands() -> None:
    """Also where they are copied to more bits; what is no copy of an edge is compared as it is."""
    copied = TYPES["float32"].cast(pa.float64())
    assert encoded(copied) == [expected(number) for number in NUMBERS]
    near = [0.69999998, float(np.nextafter(np.float64(np.float32(0.7)), 1)), 0.7]
    assert encoded(pa.array(near)) == [expected(number) for number in near]
    whole = pa.array([2**24, 2**24 + 1])  # an edge that 32 bits do not hold is not its neighbour
    assert encoded(whole, (2.0**24 + 1,)) == ["under 16777217", "16777217 or more"]


def test_close_edges_keep_their_order() -> None:
    """An edge between another one and its copy in 32 bits: each number is in one band."""
    edges = (0.69999999, 0.7)
    names = band_names(edges)
    assert encoded(pa.array([0.6, 0.69999999, float(np.float32(0.7)), 0.7]), edges) == [
        names[0],
        names[1],
        names[2],
        names[2],
    ]


def test_integers_are_cut_too() -> None:
    assert encoded(pa.array([-3, 0, 25, 2**40, None])) == [expected(n) for n in (-3, 0, 25, 2**40, None)]


@given(
    st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30),
    st.lists(st.floats(-1e9, 1e9), min_size=1, unique=True),
)
def test_every_number_is_in_the_one_band_that_its_name_says(numbers: list[float], cuts: list[float]) -> None:
    """Names are different, and say between which edges a number lies."""
    edges = tuple(sorted({cut + 0.0 for cut in cuts}))
    names = band_names(edges)
    assert len(set(names)) == len(edges) + 1
    for number, name in zip(numbers, encoded(pa.array(numbers), edges), strict=True):
        words = name.split()
        low = -np.inf if words[0] == "under" else float(words[0])
        high = np.inf if words[-1] == "more" else float(words[-1])
        assert low <= number < high


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array(["25", "old"]), "'old' at row 2"),
        (pa.array(["25", "007"]), "'007' at row 2"),
        (pa.array([True, False]), "'True' at row 1"),
        (pa.array([1.0, float("inf")]), "inf at row 2"),
        (pa.array([1, 2], pa.date32()), "at row 1"),
    ],
)
def test_what_is_no_number_has_no_band(column: pa.Array, words: str) -> None:
    with pytest.raises(DataError, match=words):
        encoded(column)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["age"], "write COLUMN=NUMBER"),
        (["age=a,b"], "quartiles"),
        (["age=1,inf"], "have no end"),
        (["age=40,25,25"], "write `bands=age=25,40`"),
    ],
)
def test_bands_that_cannot_be_read(texts: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_bands(texts)


def test_every_way_of_writing_bands_is_one() -> None:
    both = {"a=b": (25.0, 40.0), "income": "quartiles"}
    assert parse_bands(["a=b=25, 40", "income=Quartiles"]) == both
    assert parse_bands({"a=b": [25, 40.0], "income": "quartiles"}) == both
    assert (
        parse_bands("age=40")
        == parse_bands({"age": 40})
        == parse_bands({"age": np.array([40])})
        == {"age": (40.0,)}
    )


@pytest.mark.parametrize("word", PARTS)
@pytest.mark.parametrize("ties", [False, True])
def test_quantiles_divide_the_rows_as_evenly_as_they_can(word: str, ties: bool) -> None:
    """No other number of the column has a share below it that is nearer; neither order nor type nor batches matter."""
    rng = np.random.default_rng(0)
    column = rng.integers(0, 9, 1000).astype(float) if ties else rng.normal(size=1000).round(3)
    column[:600] = 3.0 if ties else column[:600]
    table = pa.table({"g": column})
    edges = settled_bands({"g": word}, open_source(table))["g"]

    different = np.unique(column)[1:]
    below = np.array([(column < number).mean() for number in different])
    nearest = [different[np.argmin(np.abs(below - k / PARTS[word]))] for k in range(1, PARTS[word])]
    assert edges == tuple(dict.fromkeys(nearest))
    gaps = pa.concat_arrays([pa.array(rng.permutation(column).astype(str)), pa.nulls(50, pa.string())])
    for other in (pa.table({"g": gaps}), pa.table({"g": pa.chunked_array([column[:13], column[13:]])})):
        assert settled_bands({"g": word}, open_source(other))["g"] == edges
    few = settled_bands({"g": word}, open_source(pa.table({"g": column.astype(np.float32)})))["g"]
    assert few == tuple(float(str(np.float32(edge))) for edge in edges)


@pytest.mark.parametrize("column", [[5, 5, 5], [None, None]])
def test_what_cannot_be_cut_is_said(column: list[int | None]) -> None:
    with pytest.raises(DataError, match="cannot be cut into quartiles"):
        settled_bands({"g": "quartiles"}, open_source(pa.table({"g": pa.array(column, pa.int64())})))


def counted(column: Any, **more: Any) -> int:
    """Return the number of groups of a column."""
    table = pa.table({"g": column, "score": np.linspace(0, 1, len(column))})
    return len(scan(open_source(table), DataSpec(ColumnRoles(("g",), score="score"), **more)).counts.cells)


@pytest.mark.parametrize("many", [MOST_NUMBERS, MOST_NUMBERS + 1])
@pytest.mark.parametrize("kind", [int, float, np.float32, str])
def test_too_many_numbers_are_no_groups(many: int, kind: Any) -> None:
    """Twelve different numbers are; with more, options are offered, which work, and the other way is named."""
    column = np.repeat(np.arange(1, many + 1), 10).astype(kind)
    if many <= MOST_NUMBERS:
        assert counted(column) == many
        return
    with pytest.raises(DataError) as refused:
        counted(column)
    named = str(refused.value).split("`")[1::2]
    offers = [part.removeprefix("bands=") for part in named if part.startswith("bands=")]
    assert named[-1] == "constraint=covariance[g]"
    assert len(offers) == 3
    for offer, groups in zip(offers, (4, 4, many), strict=True):
        rules = parse_bands([offer])
        assert counted(column, bands=settled_bands(rules, open_source(pa.table({"g": column})))) == groups


@pytest.mark.parametrize(
    "column", [[text.format(i) for i in range(99)] for text in ("g{}", "{:03}", "{0}-{0}")]
)
def test_names_are_groups_however_many(column: list[str]) -> None:
    assert counted(2 * column) == 99


# ---------------------------------------------------------------------- through the commands


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Scored people with ages, in Parquet, CSV and two halves; the folder is the current one."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"age": rng.integers(18, 80, 1200), "sex": rng.choice(["f", "m"], 1200)})
    frame["score"] = np.clip(rng.random(1200) * 0.7 + frame["age"] / 300, 0, 1).round(6)
    frame["label"] = (rng.random(1200) < frame["score"]).astype(int)
    frame.to_parquet("d.parquet")
    frame.to_csv("d.csv", index=False)
    frame[:600].to_parquet("one.parquet")
    frame[600:].to_parquet("two.parquet")
    return frame


CUT = ("--bands", "age=25,40,60")
LEVELS = ["under 25", "25 to under 40", "40 to under 60", "60 or more"]


NUMBERED = {f"{i} {level}": level for i, level in enumerate(LEVELS)}
"""Names of which the order as texts is that of the bands."""


def by_hand(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with the numbered names of the bands in place of ages."""
    names = pd.cut(frame["age"], [-np.inf, 25, 40, 60, np.inf], right=False, labels=list(NUMBERED))
    return frame.assign(age=names.astype(str))


def numbers_of(text: str) -> Any:
    """Return what an audit in JSON says of groups, without what names its source and the last bits of sums."""
    result = json.loads(text, parse_float=lambda number: round(float(number), 10) + 0.0)
    return [result[part] for part in ("attributes", "strata", "overall", "checks")]


@pytest.mark.parametrize(
    "more", ["--protected age", "--protected age,sex --intersect", "--protected sex --strata age"]
)
def test_an_audit_of_bands_is_that_of_their_names(people: pd.DataFrame, call: Call, more: str) -> None:
    """As protected column, crossed and as stratum, from the lowest band on; from Parquet, CSV and the library."""
    by_hand(people).to_parquet("named.parquet")
    gate = ("--check", "dp.difference<=0.1", "--format", "json", "-q")
    results = []
    for name in ("d.parquet", "d.csv"):
        status, out, err = call("audit", name, *more.split(), *CUT, *gate)
        assert status in (0, 1, 3), err
        results.append(out)
    text = call("audit", "named.parquet", *more.split(), *gate)[1]
    named = reduce(lambda told, one: told.replace(*one), NUMBERED.items(), text)

    assert numbers_of(results[0]) == numbers_of(results[1]) == numbers_of(named)
    assert json.loads(results[0])["settings"]["bands"] == {"age": [25, 40, 60]}
    if more == "--protected age":
        library = fairfix.audit(
            people, protected="age", bands={"age": [25, 40, 60]}, check="dp.difference<=0.1"
        )
        assert numbers_of(library.to_json()) == numbers_of(named)


def test_counts_keep_their_bands(people: pd.DataFrame, call: Call) -> None:
    """Counts of parts add up to those of the whole where edges agree; other edges are refused, also of an audit."""
    for name, cut in (("one", CUT[1]), ("two", CUT[1]), ("other", "age=30")):
        data = "two.parquet" if name == "other" else f"{name}.parquet"
        assert call("count", data, "--protected", "age", "--bands", cut, "-o", f"{name}.counts", "-q")[0] == 0
    status, _, err = call("audit", "one.counts", "other.counts")
    assert (status, "bands is age=25,40,60 in one.counts, age=30 in other.counts" in err) == (2, True)
    assert call("count", "one.counts", "two.counts", "-o", "all.counts")[0] == 0
    line = ("--format", "json", "-q")
    whole = json.loads(call("audit", "d.parquet", "--protected", "age", *CUT, *line)[1])
    for agreed in ((), CUT, ("--bands", "age=quartiles")):
        merged = json.loads(call("audit", "all.counts", *agreed, "--format", "json", "-q")[1])
        assert [g["group"] for g in merged["attributes"][0]["groups"]] == LEVELS
        assert merged["attributes"][0]["groups"][0]["rows"] == whole["attributes"][0]["groups"][0]["rows"]
    for other in ("age=25", f"age={EACH}", "sex=3"):
        assert call("audit", "all.counts", "--bands", other)[0] == 2


@pytest.mark.parametrize("rule", ["age=25,40,60", "age=quartiles"])
def test_a_repair_keeps_its_bands(people: pd.DataFrame, call: Call, rule: str) -> None:
    """New rows fall into the bands of the fit, whatever file and type they come in, also beyond its range."""
    Path("fairfix.toml").write_text(f'protected = "age"\nbands = ["{rule}"]\n')
    call.ran("repair", "d.parquet", "--method", "ramp", "-o", "r.fairfix", "-q")
    assert "age=" in next(
        line for line in call("inspect", "r.fairfix")[1].splitlines() if line.startswith("bands")
    )
    Path("fairfix.toml").unlink()
    new = people.assign(age=people["age"].replace({79: 130, 18: -4}))
    new.to_parquet("int.parquet")
    new.astype({"age": "float32"}).to_parquet("float.parquet")
    new.astype({"age": str}).to_parquet("text.parquet")
    new.to_csv("new.csv", index=False)
    new.assign(age=people["age"]).to_parquet("within.parquet")
    decided = []
    for name in ("int.parquet", "float.parquet", "text.parquet", "new.csv", "within.parquet"):
        call.ran("predict", "r.fairfix", name, "-o", "out.parquet", "-q")
        decided.append(pd.read_parquet("out.parquet")["p_positive"].tolist())
    assert all(one == decided[0] for one in decided)
    assert 0 < np.mean(decided[0]) < 1


def test_a_missing_age_is_an_error_or_a_group(people: pd.DataFrame, call: Call) -> None:
    people.assign(age=people["age"].where(people["age"] != 30)).to_parquet("gaps.parquet")
    line = ("audit", "gaps.parquet", "--protected", "age", *CUT, "--format", "json", "-q")
    status, _, err = call(*line)
    assert (status, "missing group (age)" in err) == (2, True)
    groups = json.loads(call.ran(*line, "--missing", "age=group"))["attributes"][0]["groups"]
    assert sorted(group["group"] for group in groups) == sorted([MISSING, *LEVELS])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--bands", "sex=3"], "'f' at row"),
        (["--bands", "score=0.5"], "it is not a group column; the group columns are age, sex"),
        (["--bands", "age=quarters"], "quartiles"),
        ([], " or --bands age=quartiles, or treat each number as a group with --bands age=values"),
    ],
)
@pytest.mark.usefixtures("people")
def test_what_bands_are_refused(call: Call, more: list[str], words: str) -> None:
    Path("d.parquet").rename("e.parquet")
    frame = pd.read_parquet("e.parquet")
    frame.loc[0, "sex"] = "f"
    frame.to_parquet("e.parquet")
    cut = [] if not more or "age=" in more[1] else CUT
    err = call.refused("audit", "e.parquet", "--protected", "age,sex", *cut, *more)
    assert words in err


def test_a_classifier_keeps_its_bands(people: pd.DataFrame) -> None:
    """By names of columns and beside X; ages that the fit has not seen have a band."""
    from fairfix.sklearn import RepairedClassifier
    from sklearn.linear_model import LogisticRegression

    X, y = people[["age", "score"]], people["label"]
    with pytest.raises(ValueError, match="bands=age=quartiles"):
        RepairedClassifier(LogisticRegression(), "age").fit(X, y)
    with pytest.raises(ValueError, match="ages"):
        RepairedClassifier(LogisticRegression(), "age", bands={"ages": [30]}).fit(X, y)
    cut = RepairedClassifier(LogisticRegression(), "age", bands={"age": [25, 40, 60]}).fit(X, y)
    named = RepairedClassifier(LogisticRegression()).fit(X[["score"]], y, protected=by_hand(people)["age"])
    assert cut.bands_ == {"age": (25.0, 40.0, 60.0)}
    assert np.array_equal(
        cut.predict_proba(X), named.predict_proba(X[["score"]], protected=by_hand(people)["age"])
    )
    assert cut.predict(X.assign(age=130)).size == len(X)
    thirds = RepairedClassifier(LogisticRegression(), "age", bands="age=tertiles").fit(X, y)
    assert len(thirds.bands_["age"]) == 2
