"""The one text of a name: laws over spellings, types, files, frames, databases, saved rules and exports."""

from __future__ import annotations

import math
import uuid
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.data.canonical import canonical, canonical_text, spellings, stems
from fairfix.data.encoder import group_codes
from fairfix.data.row_hash import identity_of
from fairfix.models import standalone
from hypothesis import given
from hypothesis import strategies as st

ALIKE: list[list[Any]] = [
    [1, 1.0, "1", "1.0", "1.00", Decimal(1), Decimal("1.00"), np.float32(1), np.int8(1), b"1", b"1.0"],
    [0, 0.0, -0.0, "0", "-0", "-0.0", "0.00", Decimal("0.0")],
    [-3, -3.0, "-3", "-3.0"],
    [1.5, "1.5", "1.50", Decimal("1.500"), np.float32(1.5)],
    [True, "True", "true", "TRUE", np.bool_(True)],
    [False, "False", "false", "FALSE"],
    [2**52, float(2**52), str(2**52), f"{2**52}.0"],
    [
        date(2020, 1, 2),
        datetime(2020, 1, 2),
        pd.Timestamp("2020-01-02"),
        "2020-01-02 00:00:00",
        "2020-01-02T00:00:00.000",
    ],
    [datetime(2020, 1, 2, 3, 4, 5, 500000), pd.Timestamp("2020-01-02 03:04:05.5"), "2020-01-02T03:04:05.500"],
    [uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"],
]
"""Values of which each line is one."""

APART = [
    *("1", "01", "001", "1e0", " 1", "1 ", "+1", "v1.0", "1.0.0"),
    *("1,0", "True", " true", "yes", "", "10", "0.1"),
]
"""Texts that stay what they are."""


def test_values_of_one_meaning_have_one_text() -> None:
    names = []
    for line in ALIKE:
        assert len({canonical(one) for one in line}) == 1, line
        assert len({identity_of([one]) for one in line}) == 1
        names.append(canonical(line[0]))
    assert len(set(names)) == len(names)


def test_codes_stay_what_they_are() -> None:
    assert [canonical(one) for one in APART] == APART


TEXTS = st.one_of(
    st.text(max_size=24),
    st.from_regex(r"-?[0-9]{1,3}(\.[0-9]{0,3})?", fullmatch=True),
    st.sampled_from([str(one) for line in ALIKE for one in line] + APART),
)


@pytest.mark.slow
@given(TEXTS)
def test_the_text_of_a_text_is_its_own_and_that_of_the_script(text: str) -> None:
    once = canonical(text)
    assert canonical(once) == once
    assert standalone.canonical(text) == once


@given(
    st.one_of(
        st.integers(-(10**6), 10**6),
        st.booleans(),
        st.floats(allow_nan=False),
        st.decimals(allow_nan=False, allow_infinity=False, places=3),
    )
)
def test_numbers_are_what_their_texts_are(value: Any) -> None:
    if isinstance(value, float) and "e" in repr(value):
        return
    assert canonical(value) == canonical(str(value)) == standalone.canonical(value)


@given(TEXTS)
def test_usual_spellings_mean_their_name(text: str) -> None:
    name = canonical_text(text)
    assert {canonical_text(one) for one in spellings(name)} == {name}
    assert {canonical_text(f"{one}0") for one in stems(name)} <= {name}


TYPES: dict[str, pa.Array] = {
    "int8": pa.array([1, 2, None, 1], pa.int8()),
    "uint64": pa.array([1, 2, None, 1], pa.uint64()),
    "float64": pa.array([1.0, 2.0, None, 1.0]),
    "nan": pa.array([1.0, 2.0, math.nan, 1.0]),
    "float32": pa.array([1.0, 2.0, None, 1.0], pa.float32()),
    "decimal": pa.array([Decimal("1.00"), Decimal("2.00"), None, Decimal("1.00")]),
    "text": pa.array(["1", "2", None, "1"]),
    "mixed": pa.array(["1", "2.0", None, "1.0"]),
    "large": pa.array(["1.0", "2", None, "1"], pa.large_string()),
    "bytes": pa.array([b"1.0", b"2", None, b"1"]),
    "category": pa.array(["1.0", "2", None, "1"]).dictionary_encode(),
    "coded floats": pa.array([1.0, 2.0, None, 1.0]).dictionary_encode(),
    "null inside": pa.DictionaryArray.from_arrays(pa.array([0, 2, 1, 0]), ["1", None, "2"]),
    "other order": pa.DictionaryArray.from_arrays(pa.array([2, 1, None, 2], pa.int8()), ["0", "2", "1"]),
}


@pytest.mark.parametrize("kind", TYPES)
def test_columns_of_any_type_have_the_same_groups(kind: str) -> None:
    codes, levels, missing = group_codes(TYPES[kind], "g")
    assert [levels[i] for i in codes] == ["1", "2", "(missing)", "1"]
    assert missing is not None
    assert missing.tolist() == [False, False, True, False]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_narrow_floats_are_named_as_they_are_written(kind: pa.DataType) -> None:
    assert group_codes(pa.array([0.1, 2.5], kind), "g")[1] == ["0.1", "2.5"]
