"""The gate: whatever the type of a column, its values mean the same, and what cannot be used is named."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.data.canonical import canonical_text
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.encoder import Encoder, Rows, group_codes
from fairfix.data.files import open_source
from fairfix.data.merging import MISSING
from fairfix.data.scan import read_table, scan
from fairfix.data.table import assemble
from fairfix.errors import DataError, UsageError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Frames
from tests.strategies import examples

LAW = settings(max_examples=examples(60))
READING = DataSpec(ColumnRoles(("g",), label="label", score="score"))

DAYS = st.dates(dt.date(1950, 1, 1), dt.date(2050, 1, 1))
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text("ab é", max_size=2),
    pa.large_string(): st.text("ab", max_size=2),
    pa.string_view(): st.text("ab", max_size=2),
    pa.binary(): st.sampled_from([b"a", b"b", b""]),
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-2, 2),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.sampled_from([0.5, -1.0, 2.0, math.nan]),
    pa.float64(): st.sampled_from([0.1, 1.0, math.nan]),
    pa.date32(): DAYS,
    pa.timestamp("s"): DAYS.map(lambda day: dt.datetime(day.year, 1, 1)),
    pa.decimal128(5, 2): st.sampled_from([Decimal("1.00"), Decimal("-0.50")]),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from("abc"),
    pa.dictionary(pa.uint16(), pa.int64()): st.integers(0, 3),
}


def text_of(value: Any) -> str:
    """Return the level that a value names; numbers are written as few signs as there can be, midnight is a date."""
    if value is None or value != value:  # NaN differs from itself
        return MISSING
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float | Decimal):
        return shortest(value)
    return str(value).removesuffix(" 00:00:00")


def shortest(value: float | Decimal) -> str:
    """Return the shortest plain text of a number of few digits, or that of a float."""
    if float(value).is_integer() and abs(value) < 2**53:
        return str(int(value))
    return repr(float(value)) if isinstance(value, float) else str(value).rstrip("0")


@st.composite
def sliced(draw: st.DrawFn, kind: pa.DataType) -> pa.Array:
    """Draw a slice of an array with nulls, which starts anywhere in its buffers."""
    values = draw(st.lists(st.none() | VALUES[kind], max_size=40))
    array = pa.array(values, kind)
    start = draw(st.integers(0, len(values)))
    return array.slice(start, draw(st.integers(0, len(values) - start)))


@pytest.mark.parametrize("kind", VALUES, ids=str)
@LAW
@given(data=st.data())
def test_groups_are_the_text_of_the_values(kind: pa.DataType, data: st.DataObject) -> None:
    """Of every type, at any offset, nulls and NaN missing."""
    array = data.draw(sliced(kind))
    codes, names, missing = group_codes(array, "g")
    expected = [text_of(value) for value in array.to_pylist()]

    assert [names[code] for code in codes] == expected
    assert (missing is not None and missing.any()) == (MISSING in expected)
    if missing is not None:
        assert missing.tolist() == [name == MISSING for name in expected]


@pytest.mark.parametrize(("index", "levels"), [(pa.int8(), 128), (pa.uint8(), 256)])
def test_a_full_dictionary_keeps_missing_rows_apart(index: pa.DataType, levels: int) -> None:
    """A null is no group, even where the code type has no number left for it."""
    codes = pa.array([0, levels - 1, None], index)
    array = pa.DictionaryArray.from_arrays(codes, pa.array([str(i) for i in range(levels)]))
    found, names, _ = group_codes(array, "g")

    assert [names[code] for code in found] == ["0", str(levels - 1), MISSING]


NUMBERS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.float16(): st.sampled_from([0.5, 0.25, math.nan]).map(np.float16),
    pa.float32(): st.sampled_from([0.5, 0.25, math.nan]),
    pa.float64(): st.sampled_from([0.1, 0.9, math.nan]),
    pa.int8(): st.integers(0, 1),
    pa.uint64(): st.integers(0, 1),
    pa.bool_(): st.booleans(),
    pa.decimal128(5, 2): st.sampled_from([Decimal("0.25"), Decimal("1.00")]),
    pa.dictionary(pa.int8(), pa.float64()): st.sampled_from([0.1, 0.7]),
}


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@LAW
@given(data=st.data())
def test_scores_are_the_numbers_of_the_column(kind: pa.DataType, data: st.DataObject) -> None:
    """Of every numeric type, at any offset; null and NaN rows are left out and counted."""
    values = data.draw(st.lists(st.none() | NUMBERS[kind], min_size=1, max_size=40))
    start = data.draw(st.integers(0, len(values)))
    batch = pa.record_batch({"g": ["a"] * len(values), "score": pa.array(values, kind)}).slice(start)
    rows = Encoder(DataSpec(ColumnRoles(("g",), score="score"))).encode(batch)
    expected = [float(v) for v in values[start:] if v is not None and v == v]

    assert rows.score is not None
    assert rows.score.tolist() == expected
    assert rows.read == len(values) - start
    assert sum(rows.excluded.values()) == rows.read - len(rows)


@LAW
@given(
    st.lists(st.tuples(*[st.booleans()] * 5, st.booleans()), min_size=1, max_size=30),
    st.sampled_from(["drop", "group"]),
)
def test_every_row_is_used_or_left_out_for_one_reason(faults: list[tuple[bool, ...]], policy: Any) -> None:
    """Read = used + excluded for any pattern of missing values; a missing group can be a group."""
    g, h, label, score, weight, one = np.array(faults).T

    def column(missing: Any, value: Any) -> pa.Array:
        return pa.array([None if m else value for m in missing])

    batch = pa.record_batch(
        {
            "g": column(g, "a"),
            "h": column(h, "b"),
            "label": pa.array([None if m else int(v) for m, v in zip(label, one, strict=True)]),
            "score": column(score, 0.5),
            "weight": column(weight, 2.0),
        }
    )
    columns = ColumnRoles(("g", "h"), label="label", score="score", weight="weight")
    rows = Encoder(DataSpec(columns, missing_group=policy, missing_rows="drop")).encode(batch)
    good = ~(label | score | weight)
    if policy == "drop":
        good &= ~(g | h)

    assert rows.read == len(faults) == len(rows) + sum(rows.excluded.values())
    assert len(rows) == good.sum()
    if policy == "group":
        expected = [
            (MISSING if a else "a", MISSING if b else "b") for a, b in zip(g[good], h[good], strict=True)
        ]
        assert [rows.cells[c] for c in rows.cell] == expected
    assert rows.label is not None
    assert rows.label.tolist() == one[good].tolist()


def labelled(values: Any, **how: Any) -> Rows:
    """Encode a label column."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    batch = pa.record_batch({"g": ["a"] * len(array), "label": array})
    return Encoder(DataSpec(ColumnRoles(("g",), label="label"), **how), "d.csv", 100).encode(batch)


@pytest.mark.parametrize(
    ("bad", "value"),
    [
        ([0, 2], "2"),
        ([0, -1], "-1"),
        ([1.0, -1.0], "-1"),
        ([1.0, 0.5], "0.5"),
        ([0.0, math.inf], "inf"),
        ([1.0, 1e20], "1e+20"),
        ([0, 257], "257"),
        ([0, 256], "256"),
        (["1", "maybe"], "maybe"),
        ([None, "maybe"], "maybe"),
    ],
)
def test_what_is_no_label_is_named(bad: list[Any], value: str) -> None:
    with pytest.raises(DataError) as error:
        labelled(bad)

    for word in ("'label'", f"'{value}'", "row 102 of d.csv", "`label=label=VALUE`"):
        assert word in str(error.value)


def test_rows_are_counted_over_batches_and_row_groups(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    label = ["1", "0"] * 500
    label[876] = "maybe"
    table = pa.table({"g": ["a", "b"] * 500, "label": label, "score": np.linspace(0, 1, 1000)})
    for size, batch in ((100, 65_536), (1000, 300), (100, 30)):
        pq.write_table(table, tmp_path / "d.parquet", row_group_size=size)
        monkeypatch.setattr("fairfix.data.files.PART_ROWS", 200)
        monkeypatch.setattr("fairfix.data.files.BATCH_ROWS", batch)
        with pytest.raises(DataError, match=r"'maybe' at row 877 of d\.parquet"):
            scan(open_source(tmp_path / "d.parquet"), READING)


def test_levels_that_no_row_has_are_no_levels() -> None:
    """A category that is only declared neither breaks a label nor counts as a group."""
    label = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1]), pa.array(["0", "1", "maybe"]))
    rows = labelled(label)
    declared = pd.Categorical(["a", "b"] * 5, [*"ab", *map(str, range(5000))])
    counts = scan(
        open_source(pd.DataFrame({"g": declared, "score": 0.5})), DataSpec(ColumnRoles(("g",), score="score"))
    ).counts

    assert rows.label is not None
    assert rows.label.tolist() == [0, 1, 1]
    assert counts.cells == (("a",), ("b",))


@pytest.mark.parametrize("sizes", [(3, 4), (20, 30), (90, 90)])
def test_cells_are_the_combinations_that_appear(sizes: tuple[int, int]) -> None:
    """Few, many and very many possible cells take different ways to the same rows."""
    rng = np.random.default_rng(0)
    g, h = (np.char.add("v", rng.integers(0, size, 500).astype(str)) for size in sizes)
    rows = Encoder(DataSpec(ColumnRoles(("g", "h")))).encode(
        pa.record_batch({"g": g.tolist(), "h": h.tolist()})
    )

    assert [rows.cells[c] for c in rows.cell] == list(zip(g, h, strict=True))


@pytest.mark.parametrize(
    ("labels", "positive", "expected"),
    [
        ([1, 2, 2], "2", [0, 1, 1]),
        ([1.0, 2.0, 2.0], "2", [0, 1, 1]),
        ([1.0, 2.0, None], "2.0", [0, 1]),
        ([True, False, False], "true", [1, 0, 0]),
        ([True, False, False], "0", [0, 1, 1]),
        ([Decimal("1.00"), Decimal("2.00")], "2", [0, 1]),
        (["good", "bad", "good"], "bad", [0, 1, 0]),
        (["1", "2"], "2", [0, 1]),
    ],
)
def test_a_positive_label_is_found_in_any_type(labels: list[Any], positive: str, expected: list[int]) -> None:
    """The option is text; the column may hold numbers or truth values."""
    rows = labelled(labels, positive_label=(canonical_text(positive),), missing_rows="drop")

    assert rows.label is not None
    assert rows.label.tolist() == expected


@pytest.mark.parametrize("decided", [[1, 0, 1], [True, False, True], ["1", "0", "1"], ["yes", "no", "yes"]])
def test_the_positive_label_does_not_blank_decisions(decided: list[Any]) -> None:
    """Decisions written as truth values keep their meaning beside labels that are names."""
    batch = pa.record_batch({"g": ["a"] * 3, "label": ["yes", "no", "no"], "p": decided})
    data_spec = DataSpec(ColumnRoles(("g",), label="label", prediction="p"), positive_label=("yes",))
    rows = Encoder(data_spec).encode(batch)

    assert rows.label is not None
    assert rows.decision is not None
    assert (rows.label.tolist(), rows.decision.tolist()) == ([1, 0, 0], [1.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("score", "how", "words"),
    [
        ([0.1, math.inf], {}, "score column 'score' holds inf at row 2"),
        ([0.1, -math.inf], {"score_scale": "raw"}, "holds -inf at row 2"),
        ([0.1, 1.5], {}, r"holds 1.5 at row 2, outside \[0, 1\].*`score_scale"),
        ([0.1, -0.1], {}, "holds -0.1 at row 2"),
        ([0.1, 1.5], {"score_scale": "margin"}, r"outside \[-1, 1\]"),
        (["a", "b"], {}, "'score' is of type string, but numbers are needed.*`score`"),
    ],
)
def test_what_is_no_score_is_named(score: list[Any], how: dict[str, Any], words: str) -> None:
    batch = pa.record_batch({"g": ["a", "b"], "score": score})

    with pytest.raises(DataError, match=words):
        Encoder(DataSpec(ColumnRoles(("g",), score="score"), **how)).encode(batch)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("weight", [1.0, -2.0], "weight column 'v' holds -2 at row 2"),
        ("weight", [1.0, math.inf], "weight column 'v' holds inf"),
        ("probability", [0.5, 1.1], "decision probability column 'v' holds 1.1 at row 2"),
        ("prediction", [0.0, 0.4], "prediction column 'v' holds '0.4' at row 2"),
    ],
)
def test_what_is_no_weight_or_decision_is_named(name: str, values: list[float], words: str) -> None:
    """Negative weights, chances above one, and scores given as decisions."""
    batch = pa.record_batch({"g": ["a", "b"], "v": values})

    with pytest.raises(DataError, match=words):
        Encoder(DataSpec(ColumnRoles(("g",), **{name: "v"}))).encode(batch)


# ---------------------------------------------------------------------- whole tables


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (ColumnRoles(()), "no protected column"),
        (ColumnRoles(("g", "g")), "given to `protected` and to `protected`"),
        (ColumnRoles(("g",), strata=("g",)), "given to `protected` and to `strata`"),
        (ColumnRoles(("g",), prediction="p", probability="q"), "give one of them"),
    ],
)
def test_columns_play_one_part(columns: ColumnRoles, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        DataSpec(columns).check()


def test_a_positive_label_that_never_appears_is_refused() -> None:
    """A misspelt value would make everybody negative in silence."""
    table = pa.table({"g": ["a", "b"], "label": ["yes", "no"], "score": [0.1, 0.2]})
    with pytest.raises(DataError, match="no row used has the value 'yess' in label column 'label'"):
        read_table(table, DataSpec(READING.columns, positive_label=("yess",)))


def test_a_table_holds_the_rows_of_the_frame(frames: Frames) -> None:
    """Labels, scores, weights, groups and features, in order; arrays cannot be written to."""
    data = frames()
    columns = ColumnRoles(("race", "member"), label="label", score="score", weight="weight", strata=("town",))
    table = read_table(data, DataSpec(columns))
    groups = table.groups()

    assert table.rows.label is not None
    assert table.rows.score is not None
    assert table.rows.weight is not None
    for name in ("label", "score", "weight"):
        np.testing.assert_array_equal(getattr(table.rows, name), data[name])
    truth = list(zip(data.race, data.member.astype(str), strict=True))
    assert [groups.levels[c] for c in groups.codes] == truth
    assert list(groups.levels) == sorted(set(truth))
    assert groups.names[0] == " & ".join(groups.levels[0])
    assert table.features.column_names == ["x"]
    for array in (table.rows.score, table.rows.label, table.rows.cell, table.rows.weight, groups.codes):
        assert not array.flags.writeable


@LAW
@given(st.data())
def test_taking_rows_takes_them_everywhere(data: st.DataObject) -> None:
    """take() keeps scores, groups and features together, repeats included."""
    n = data.draw(st.integers(1, 20))
    chosen = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=30)), dtype=np.int64)
    frame = pd.DataFrame({"g": [str(i % 3) for i in range(n)], "score": np.arange(n) / n, "x": range(n)})
    table = read_table(frame, DataSpec(ColumnRoles(("g",), score="score")))
    some = table.take(chosen)
    groups = some.groups()

    assert len(some) == chosen.size
    assert some.rows.score is not None
    np.testing.assert_array_equal(some.rows.score, chosen / n)
    assert some.features["x"].to_pylist() == chosen.tolist()
    assert [groups.levels[c][0] for c in groups.codes] == [str(i % 3) for i in chosen]


def test_decisions_can_be_replaced_and_stay_the_callers(frames: Frames) -> None:
    """with_decision() copies: the caller's array is not frozen."""
    table = read_table(frames(), DataSpec(ColumnRoles(("race",), score="score")))
    decision = np.zeros(len(table))
    decided = table.with_decision(decision)
    decision[:] = 1.0

    assert decided.rows.decision is not None
    assert not decided.rows.decision.any()


def test_probabilities_of_every_scale(frames: Frames) -> None:
    """Probability, margin and log-odds agree; a raw score stands for none."""
    data = frames()
    p = data.score.clip(0.01, 0.99)
    forms = {"probability": p, "margin": 2 * p - 1, "logit": np.log(p / (1 - p)), "raw": p}
    for scale, score in forms.items():
        data_spec = DataSpec(ColumnRoles(("race",), score="score"), score_scale=scale)
        table = read_table(data.assign(score=score), data_spec)
        if scale == "raw":
            with pytest.raises(DataError, match="is not a probability"):
                _ = table.probability
        else:
            np.testing.assert_allclose(table.probability, p, rtol=1e-12)


def test_features_of_files_must_agree(tmp_path: Any) -> None:
    """Two files whose features differ in type are refused with the column."""
    import pyarrow.parquet as pq

    for name, x in (("1", [1]), ("2", [0.5])):
        pq.write_table(pa.table({"g": ["a"], "score": [0.5], "x": x}), tmp_path / f"{name}.parquet")

    with pytest.raises(DataError, match=r"differ in type from file to file.*x: int64"):
        read_table(tmp_path, DataSpec(ColumnRoles(("g",), score="score")))


def test_nothing_left_is_said() -> None:
    """No rows at all, and none that the policies leave."""
    data_spec = DataSpec(ColumnRoles(("g",), score="score"), missing_group="drop")
    nobody = pa.record_batch({"g": pa.array([None], pa.string()), "score": [0.5]})

    with pytest.raises(DataError, match="the data has no rows"):
        assemble([], data_spec)
    with pytest.raises(DataError, match="no rows are left"):
        assemble([nobody], data_spec)
    with pytest.raises(DataError, match=r"no rows are left to audit; left out: missing group \(g\) 1"):
        scan(open_source(nobody), data_spec)
