"""Levels of columns for slices: the rows of a level are those that its condition selects."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.data.files import open_source
from fairfix.data.row_filter import mask_of, parse_condition
from fairfix.data.slice_levels import SliceLevels, conjunction, levels_of
from fairfix.errors import ColumnError


def columns(rows: int = 400, seed: int = 0) -> pa.Table:
    """Return columns of many types, each with missing entries where it can have them."""
    rng = np.random.default_rng(seed)
    gone = rng.random(rows) < 0.2
    real = rng.normal(size=rows)
    text = rng.choice(["car", "it's", "a b", 'say "x"', "True", "1.0", "007", "é"], rows)
    return pa.table(
        {
            "real": pa.array(real, mask=gone),
            "nan": pa.array(np.where(gone, np.nan, real)),
            "short": pa.array((real * 0.7).astype(np.float32)),
            "infinite": pa.array(np.where(gone, np.inf, real).astype(np.float32)),
            "endless": pa.array(np.where(gone, -np.inf, real)),
            "half": pa.array(np.round(real, 1).astype(np.float16)),
            "large": pa.array(rng.integers(-(2**60), 2**60, rows)),
            "few": pa.array(rng.integers(0, 5, rows), mask=gone),
            "price": pa.array([Decimal(i % 40) / 4 for i in range(rows)]),
            "is it": pa.array(rng.random(rows) < 0.5),
            "and": pa.array(text.tolist(), mask=gone),
            "numbers": pa.array([str(i % 30) for i in range(rows)], mask=gone),
            "mixed": pa.array([str(i % 20) if i % 3 else "none" for i in range(rows)]),
            "coded": pa.array(text.tolist()).dictionary_encode(),
            "day": pa.array(np.array([f"2024-01-0{1 + i % 4}" for i in range(rows)], dtype="datetime64[D]")),
        }
    )


def selected(table: pa.Table, level: SliceLevels, code: int) -> np.ndarray:
    """Return the rows that the text of a level's condition selects."""
    condition = parse_condition(str(level.conditions[code]))
    return np.concatenate([mask_of(batch, condition) for batch in table.to_batches()])


@pytest.mark.parametrize("least", [1, 30, 60])
def test_a_level_has_the_rows_that_its_condition_selects(least: int) -> None:
    table = columns()
    levels, left_out = levels_of(table, table.column_names, {}, least)

    assert {one.column for one in levels} | set(left_out) == set(table.column_names)
    assert "half" in left_out
    for one in levels:
        for code in range(len(one.conditions)):
            np.testing.assert_array_equal(one.codes == code, selected(table, one, code), err_msg=one.column)
            assert one.rows[code] == np.count_nonzero(one.codes == code) >= least


@pytest.mark.parametrize("name", ["real", "short", "large", "price", "numbers"])
def test_given_edges_select_the_same_rows(name: str) -> None:
    table = columns(seed=1)
    (one,), _ = levels_of(table, [name], {name: (-0.7, 0.7, 3.0)}, 1)

    held = np.zeros(table.num_rows, dtype=int)
    for code in range(len(one.conditions)):
        np.testing.assert_array_equal(one.codes == code, selected(table, one, code))
        held += one.codes == code
    assert (held == 1).all()


def test_bands_of_values_are_a_level_each() -> None:
    """The word means in a slice what it means in a protected column, whatever the type and however many there are."""
    table = columns(seed=2)
    names = [name for name in table.column_names if name != "half"]
    levels, _ = levels_of(table, names, dict.fromkeys(names, "values"), 1)
    for one in levels:
        entries = table[one.column].to_pandas()
        assert len(one.conditions) == entries.nunique() + entries.isna().any(), one.column
        for code in range(len(one.conditions)):
            np.testing.assert_array_equal(one.codes == code, selected(table, one, code), err_msg=one.column)


def test_conditions_select_the_same_rows_of_a_file(tmp_path: object) -> None:
    """The text of a conjunction, read by a row filter of a CSV file, selects the rows of the frame."""
    frame = columns().to_pandas().drop(columns=["half", "infinite", "endless", "short"])
    path = f"{tmp_path}/data.csv"
    frame.to_csv(path, index=False)
    source = open_source(path)
    table = pa.Table.from_batches(
        [batch for part in source.parts(list(source.columns)) for batch in part.batches()]
    )
    levels, _ = levels_of(table, table.column_names, {}, 20)
    from fairfix.data.row_filter import filtered

    for one, other in pairwise(levels):
        both = (one.codes == 0) & (other.codes == 0)
        if both.any():
            condition = conjunction((one.conditions[0], other.conditions[0]))
            assert filtered(open_source(path), parse_condition(str(condition))).rows == both.sum()


def test_columns_that_make_no_slice_are_named_with_a_reason() -> None:
    rows = 100
    table = pa.table(
        {
            "id": pa.array([f"p{i}" for i in range(rows)]),
            "one": pa.array(["x"] * rows),
            "void": pa.nulls(rows),
            "same": pa.array([1.5] * rows),
            "nested": pa.array([[1]] * rows),
            "fine": pa.array(["a", "b"] * (rows // 2)),
        }
    )
    levels, left_out = levels_of(table, table.column_names, {}, 10)

    assert [one.column for one in levels] == ["fine"]
    assert set(left_out) == {"id", "one", "void", "same", "nested"}
    assert "100" in left_out["id"]
    with pytest.raises(ColumnError, match="fine"):
        levels_of(table, ["fine"], {"fine": (1.0,)}, 10)


def test_levels_of_few_rows_share_a_code_that_is_no_condition() -> None:
    table = pa.table({"x": pa.array(["a"] * 50 + ["b"] * 50 + [f"c{i}" for i in range(9)])})
    (one,), _ = levels_of(table, ["x"], {}, 10)

    assert (len(one.conditions), one.pooled) == (2, 9)
    assert (one.codes[100:] == 2).all()
    assert one.take(np.arange(50)).rows == (50, 0)


def test_edges_are_those_of_the_entries_whatever_their_order() -> None:
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=500)})
    (one,), _ = levels_of(pa.Table.from_pandas(frame), ["x"], {}, 20)
    (other,), _ = levels_of(pa.Table.from_pandas(frame[::-1].reset_index(drop=True)), ["x"], {}, 20)

    assert one.conditions == other.conditions
    assert max(one.rows) - min(one.rows) <= 2
